-- The role that Tableferry reads PostgreSQL as, in the database that psql is connected to; as its
-- owner or a superuser:
--   psql --set=user=ferry --set=password=... --file=postgres.sql demo
-- All of it may be repeated. Tables that somebody else creates later need a GRANT of their own.
\ir postgres-role.sql
ALTER ROLE :"user" IN DATABASE :"DBNAME" SET default_transaction_read_only = on;

GRANT USAGE ON SCHEMA public TO :"user";
GRANT SELECT ON ALL TABLES IN SCHEMA public TO :"user";
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO :"user";
