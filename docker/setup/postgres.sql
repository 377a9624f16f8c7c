-- The role that Tableferry reads PostgreSQL as, in the database that psql is connected to; as its
-- owner or a superuser:
--   psql --set=user=ferry --set=password=... --file=postgres.sql demo
-- All of it may be repeated. Tables that somebody else creates later need a GRANT of their own.
SELECT set_config('setup.user', :'user', false);
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = current_setting('setup.user')) THEN
        EXECUTE format('CREATE ROLE %I', current_setting('setup.user'));
    END IF;
END
$$;
ALTER ROLE :"user" LOGIN PASSWORD :'password';
ALTER ROLE :"user" IN DATABASE :"DBNAME" SET default_transaction_read_only = on;

GRANT CONNECT ON DATABASE :"DBNAME" TO :"user";
GRANT USAGE ON SCHEMA public TO :"user";
GRANT SELECT ON ALL TABLES IN SCHEMA public TO :"user";
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO :"user";
