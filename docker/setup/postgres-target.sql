-- The role that Tableferry loads PostgreSQL as, and the schema of its tables, in the database that
-- psql is connected to; as a superuser:
--   psql --set=user=ferry_loader --set=password=... --set=schema=copies --file=postgres-target.sql dwh
-- All of it may be repeated. In a schema that is there already, tables that somebody else created
-- need a GRANT of their own: SELECT, INSERT, UPDATE, DELETE.
\ir postgres-role.sql

CREATE SCHEMA IF NOT EXISTS :"schema" AUTHORIZATION :"user";
-- Staging tables are created beside their targets.
GRANT USAGE, CREATE ON SCHEMA :"schema" TO :"user";
