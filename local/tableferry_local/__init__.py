"""The local stack: PostgreSQL, ClickHouse and a stand-in for SQL Server, for demo and tests."""

FOLDER = "TABLEFERRY_LOCAL_STACK"
"""The variable that names the folder of the stack to use."""
