"""Moves tables between PostgreSQL, SQL Server and ClickHouse, key range by key range."""
