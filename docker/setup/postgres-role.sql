-- A role that may log in to the database that psql is connected to; what it may do there is said by
-- the files that include this one.
SELECT set_config('setup.user', :'user', false);
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = current_setting('setup.user')) THEN
        EXECUTE format('CREATE ROLE %I', current_setting('setup.user'));
    END IF;
END
$$;
ALTER ROLE :"user" LOGIN PASSWORD :'password';
GRANT CONNECT ON DATABASE :"DBNAME" TO :"user";
