-- The database that Tableferry loads on ClickHouse. Its user and grants are in clickhouse-users.xml.
CREATE DATABASE IF NOT EXISTS warehouse;
