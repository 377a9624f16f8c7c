-- System procedures that are one T-SQL query of their parameters. Read by sysprocs.py.

-- procedure sp_columns_100 @table_name @table_owner @table_qualifier @column_name @namescope @odbcver @fusepattern
SELECT DB_NAME() AS TABLE_QUALIFIER, s.name AS TABLE_OWNER, o.name AS TABLE_NAME, c.name AS
  COLUMN_NAME,
  CAST(CASE t.name WHEN 'bigint' THEN -5 WHEN 'int' THEN 4 WHEN 'smallint' THEN 5 WHEN 'tinyint'
    THEN -6 WHEN 'bit' THEN -7 WHEN 'decimal' THEN 3 WHEN 'numeric' THEN 2 WHEN 'money' THEN 3
    WHEN 'smallmoney' THEN 3 WHEN 'float' THEN 6 WHEN 'real' THEN 7 WHEN 'char' THEN 1 WHEN
    'varchar' THEN 12 WHEN 'text' THEN -1 WHEN 'nchar' THEN -8 WHEN 'nvarchar' THEN -9 WHEN
    'sysname' THEN -9 WHEN 'ntext' THEN -10 WHEN 'binary' THEN -2 WHEN 'timestamp' THEN -2 WHEN
    'varbinary' THEN -3 WHEN 'image' THEN -4 WHEN 'date' THEN 91 WHEN 'time' THEN -154 WHEN
    'datetimeoffset' THEN -155 WHEN 'uniqueidentifier' THEN -11 WHEN 'xml' THEN -152 WHEN
    'datetime' THEN 93 WHEN 'smalldatetime' THEN 93 WHEN 'datetime2' THEN 93 ELSE -150 END AS
    smallint) AS DATA_TYPE,
  CASE WHEN c.is_identity = 1 THEN CONCAT(t.name, ' identity') ELSE t.name END AS TYPE_NAME,
  CAST(CASE WHEN c.precision > 0 THEN c.precision WHEN c.max_length = -1 THEN 0 WHEN t.name IN
    ('nchar','nvarchar') THEN c.max_length / 2
    WHEN t.name = 'uniqueidentifier' THEN 36 ELSE c.max_length END AS int) AS PRECISION,
  CAST(CASE WHEN t.name IN ('decimal','numeric') THEN c.precision + 2 WHEN c.max_length = -1
    THEN 0 WHEN t.name IN ('date','time') THEN 6 WHEN t.name IN
    ('datetime','datetime2','smalldatetime') THEN 16
    ELSE c.max_length END AS int) AS LENGTH,
  CAST(CASE WHEN t.name IN
    ('char','varchar','nchar','nvarchar','binary','varbinary','bit','float','real','uniqueidentifier','xml','text','ntext','image')
    THEN NULL ELSE c.scale END AS smallint) AS SCALE,
  CAST(CASE WHEN t.name IN ('float','real') THEN 2 WHEN t.name IN
    ('bigint','int','smallint','tinyint','decimal','numeric','money','smallmoney') THEN 10 END
    AS smallint) AS RADIX,
  CAST(c.is_nullable AS smallint) AS NULLABLE, CAST(NULL AS varchar(254)) AS REMARKS,
  i.COLUMN_DEFAULT AS COLUMN_DEF,
  CAST(CASE WHEN CASE t.name WHEN 'bigint' THEN -5 WHEN 'int' THEN 4 WHEN 'smallint' THEN 5 WHEN
    'tinyint' THEN -6 WHEN 'bit' THEN -7 WHEN 'decimal' THEN 3 WHEN 'numeric' THEN 2 WHEN
    'money' THEN 3 WHEN 'smallmoney' THEN 3 WHEN 'float' THEN 6 WHEN 'real' THEN 7 WHEN 'char'
    THEN 1 WHEN 'varchar' THEN 12 WHEN 'text' THEN -1 WHEN 'nchar' THEN -8 WHEN 'nvarchar' THEN
    -9 WHEN 'sysname' THEN -9 WHEN 'ntext' THEN -10 WHEN 'binary' THEN -2 WHEN 'timestamp' THEN
    -2 WHEN 'varbinary' THEN -3 WHEN 'image' THEN -4 WHEN 'date' THEN 91 WHEN 'time' THEN -154
    WHEN 'datetimeoffset' THEN -155 WHEN 'uniqueidentifier' THEN -11 WHEN 'xml' THEN -152 WHEN
    'datetime' THEN 93 WHEN 'smalldatetime' THEN 93 WHEN 'datetime2' THEN 93 ELSE -150 END IN
    (91, 93, -154, -155) THEN 9 ELSE CASE t.name WHEN 'bigint' THEN -5 WHEN 'int' THEN 4 WHEN
    'smallint' THEN 5 WHEN 'tinyint' THEN -6 WHEN 'bit' THEN -7 WHEN 'decimal' THEN 3 WHEN
    'numeric' THEN 2 WHEN 'money' THEN 3 WHEN 'smallmoney' THEN 3 WHEN 'float' THEN 6 WHEN
    'real' THEN 7 WHEN 'char' THEN 1 WHEN 'varchar' THEN 12 WHEN 'text' THEN -1 WHEN 'nchar'
    THEN -8 WHEN 'nvarchar' THEN -9 WHEN 'sysname' THEN -9 WHEN 'ntext' THEN -10 WHEN 'binary'
    THEN -2 WHEN 'timestamp' THEN -2 WHEN 'varbinary' THEN -3 WHEN 'image' THEN -4 WHEN 'date'
    THEN 91 WHEN 'time' THEN -154 WHEN 'datetimeoffset' THEN -155 WHEN 'uniqueidentifier' THEN
    -11 WHEN 'xml' THEN -152 WHEN 'datetime' THEN 93 WHEN 'smalldatetime' THEN 93 WHEN
    'datetime2' THEN 93 ELSE -150 END END AS smallint) AS SQL_DATA_TYPE,
  CAST(CASE CASE t.name WHEN 'bigint' THEN -5 WHEN 'int' THEN 4 WHEN 'smallint' THEN 5 WHEN
    'tinyint' THEN -6 WHEN 'bit' THEN -7 WHEN 'decimal' THEN 3 WHEN 'numeric' THEN 2 WHEN
    'money' THEN 3 WHEN 'smallmoney' THEN 3 WHEN 'float' THEN 6 WHEN 'real' THEN 7 WHEN 'char'
    THEN 1 WHEN 'varchar' THEN 12 WHEN 'text' THEN -1 WHEN 'nchar' THEN -8 WHEN 'nvarchar' THEN
    -9 WHEN 'sysname' THEN -9 WHEN 'ntext' THEN -10 WHEN 'binary' THEN -2 WHEN 'timestamp' THEN
    -2 WHEN 'varbinary' THEN -3 WHEN 'image' THEN -4 WHEN 'date' THEN 91 WHEN 'time' THEN -154
    WHEN 'datetimeoffset' THEN -155 WHEN 'uniqueidentifier' THEN -11 WHEN 'xml' THEN -152 WHEN
    'datetime' THEN 93 WHEN 'smalldatetime' THEN 93 WHEN 'datetime2' THEN 93 ELSE -150 END WHEN
    91 THEN 1 WHEN 93 THEN 3 WHEN -154 THEN 0 WHEN -155 THEN 0 END AS smallint) AS
    SQL_DATETIME_SUB,
  CAST(CASE WHEN t.name IN
    ('char','varchar','nchar','nvarchar','binary','varbinary','text','ntext','image','xml') THEN
    CASE WHEN c.max_length = -1 THEN 0 ELSE c.max_length END END AS int) AS CHAR_OCTET_LENGTH,
  c.column_id AS ORDINAL_POSITION, i.IS_NULLABLE AS IS_NULLABLE, CAST(0 AS tinyint) AS
    SS_DATA_TYPE
FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON
  s.schema_id = o.schema_id
JOIN sys.types t ON t.user_type_id = c.user_type_id
JOIN INFORMATION_SCHEMA.COLUMNS i ON i.TABLE_SCHEMA = s.name AND i.TABLE_NAME = o.name AND
  i.COLUMN_NAME = c.name
WHERE (@table_name IS NULL OR o.name LIKE @table_name) AND (@table_owner IS NULL OR s.name LIKE
  @table_owner) AND (@column_name IS NULL OR c.name LIKE @column_name)
ORDER BY s.name, o.name, c.column_id

-- procedure sp_columns @table_name @table_owner @table_qualifier @column_name @odbcver

-- procedure sp_columns_90 @table_name @table_owner @table_qualifier @column_name @odbcver

-- procedure sp_tables @table_name @table_owner @table_qualifier @table_type @fusepattern
SELECT DB_NAME() AS TABLE_QUALIFIER, s.name AS TABLE_OWNER, o.name AS TABLE_NAME,
  CAST('TABLE' AS varchar(32)) AS TABLE_TYPE,
    CAST(NULL AS varchar(254)) AS REMARKS
FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
WHERE o.type = 'U' AND (@table_name IS NULL OR o.name LIKE @table_name) AND
  (@table_owner IS NULL OR s.name LIKE @table_owner)
  AND (@table_type IS NULL OR @table_type LIKE '%''TABLE''%')
ORDER BY 4, 2, 3

-- procedure sp_pkeys @table_name @table_owner @table_qualifier
SELECT DB_NAME() AS TABLE_QUALIFIER, s.name AS TABLE_OWNER, o.name AS TABLE_NAME, c.name AS
  COLUMN_NAME,
  CAST(x.key_ordinal AS smallint) AS KEY_SEQ, k.name AS PK_NAME
FROM sys.key_constraints k JOIN sys.tables o ON o.object_id = k.parent_object_id JOIN
  sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.index_columns x ON x.object_id = o.object_id AND x.index_id = k.unique_index_id
JOIN sys.columns c ON c.object_id = o.object_id AND c.column_id = x.column_id
WHERE k.type = 'PK' AND o.name = @table_name AND (@table_owner IS NULL OR s.name = @table_owner)
  ORDER BY x.key_ordinal

-- procedure sp_statistics_100 @table_name @table_owner @table_qualifier @index_name @is_unique @accuracy
SELECT DB_NAME() AS TABLE_QUALIFIER, s.name AS TABLE_OWNER, o.name AS TABLE_NAME, CAST(1 -
  i.is_unique AS smallint) AS NON_UNIQUE,
  o.name AS INDEX_QUALIFIER, i.name AS INDEX_NAME, CAST(CASE i.type WHEN 1 THEN 1 ELSE 3 END AS
    smallint) AS TYPE,
  CAST(x.key_ordinal AS smallint) AS SEQ_IN_INDEX, c.name AS COLUMN_NAME, CAST('A' AS
    varchar(1)) AS COLLATION,
  CAST(NULL AS int) AS CARDINALITY, CAST(NULL AS int) AS PAGES, CAST(NULL AS varchar(128)) AS
    FILTER_CONDITION
FROM sys.indexes i JOIN sys.tables o ON o.object_id = i.object_id JOIN sys.schemas s ON
  s.schema_id = o.schema_id
JOIN sys.index_columns x ON x.object_id = o.object_id AND x.index_id = i.index_id
JOIN sys.columns c ON c.object_id = o.object_id AND c.column_id = x.column_id
WHERE o.name = @table_name AND (@table_owner IS NULL OR s.name = @table_owner) ORDER BY 4, 7, 6,
  8

-- procedure sp_statistics @table_name @table_owner @table_qualifier @index_name @is_unique @accuracy

