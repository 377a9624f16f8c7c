-- The database that Tableferry loads and reads on SQL Server, and its login; as a sysadmin:
--   sqlcmd -v database=tableferry user=ferry password=... -i sqlserver.sql
-- All of it may be repeated; a login that is there keeps its password.
IF DB_ID(N'$(database)') IS NULL CREATE DATABASE [$(database)];
GO
-- Each range is then read as of one moment, and a reader waits for no writer.
ALTER DATABASE [$(database)] SET ALLOW_SNAPSHOT_ISOLATION ON;
GO
IF SUSER_ID(N'$(user)') IS NULL
    CREATE LOGIN [$(user)] WITH PASSWORD = N'$(password)', DEFAULT_DATABASE = [$(database)];
GO
USE [$(database)];
GO
IF USER_ID(N'$(user)') IS NULL
    CREATE USER [$(user)] FOR LOGIN [$(user)] WITH DEFAULT_SCHEMA = dbo;
GO
-- ALTER: staging tables, and views of them, are created, emptied and dropped beside their targets.
-- VIEW DEFINITION: what others have bound to the tables is looked at before rows are replaced.
GRANT CREATE TABLE, CREATE VIEW, VIEW DEFINITION TO [$(user)];
GRANT SELECT, INSERT, UPDATE, DELETE, ALTER ON SCHEMA::dbo TO [$(user)];
GO
