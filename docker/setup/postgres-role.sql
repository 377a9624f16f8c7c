-- A role that may log in to the database that psql is connected to; what it may do there is said by
-- the files that include this one. A role that is there keeps its password.
SELECT FROM set_config('setup.user', :'user', false);
SELECT FROM set_config('setup.password', :'password', false);
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = current_setting('setup.user')) THEN
        EXECUTE format('CREATE ROLE %I LOGIN PASSWORD %L',
            current_setting('setup.user'), current_setting('setup.password'));
    END IF;
END
$$;
SELECT FROM set_config('setup.password', '', false);
GRANT CONNECT ON DATABASE :"DBNAME" TO :"user";
