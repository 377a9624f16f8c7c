-- SQL Server's catalog views. A line of a view that is not indented is a column: its name, its
-- T-SQL type, and its PostgreSQL expression; FROM ends the columns. {words} stand for what a
-- paragraph `define` above says. `db` is the T-SQL database. Read by views.py.

-- define collation
CASE WHEN k.type IN ('char','varchar','nchar','nvarchar','text','ntext')
    THEN COALESCE(k.collated, 'SQL_Latin1_General_CP1_CI_AS') END

-- define relations
sys._relation r JOIN pg_class c ON c.oid = r.oid JOIN sys._schema s ON s.pg_schema = r.pg_schema
    AND s.database = lower(db)

-- define shown
(NOT sys.limited() OR lower(s.name) = 'dbo')

-- define columns
sys._column k JOIN {relations} ON k.oid = r.oid JOIN sys._type t ON t.name = k.type

-- define indexes
sys._index i JOIN pg_class ic ON ic.oid = i.oid JOIN {relations} ON r.oid = i.relation

-- define index_id
CASE WHEN i.is_clustered THEN 1 ELSE 1 + (SELECT count(*) FROM sys._index o WHERE o.relation =
    i.relation AND NOT o.is_clustered AND o.oid <= i.oid) END

-- define keys
'PK', 'UQ'

-- define numbers
'tinyint','smallint','int','bigint','decimal','numeric','money','smallmoney','float','real'

-- view sys.databases
name sysname d.name
database_id int d.id
create_date datetime sys.to_datetime(d.created)
snapshot_isolation_state tinyint 1
snapshot_isolation_state_desc nvarchar(60) 'ON'
FROM sys._database d

-- view sys.database_recovery_status
database_id int d.id
recovery_fork_guid uniqueidentifier md5(d.name || d.created)::uuid
FROM sys._database d

-- view sys.schemas
name sysname s.name
schema_id int s.id
FROM sys._schema s WHERE s.database = lower(db)

-- view sys.tables
name sysname r.name
object_id int r.oid::bigint
principal_id int NULL
schema_id int s.id
create_date datetime sys.to_datetime(r.created)
is_published bit 0
is_replicated bit 0
is_memory_optimized bit 0
temporal_type tinyint 0
FROM {relations} WHERE r.kind = 'U'

-- view sys.objects
name sysname o.name
object_id int o.id
schema_id int o.schema_id
type char(2) rpad(o.kind, 2)
FROM (SELECT r.name, r.oid::bigint AS id, s.id AS schema_id, r.kind FROM {relations} UNION ALL
    SELECT i.name, i.oid::bigint, s.id, i.kind FROM {indexes} WHERE i.kind IN ({keys})) AS o

-- view sys.columns
object_id int k.oid::bigint
name sysname k.name
column_id int k.attnum
system_type_id tinyint t.system_type_id
user_type_id int t.user_type_id
max_length smallint sys.max_length(k.type, k.length, k.precision, k.scale)
precision tinyint sys.type_precision(k.type, k.precision, k.scale)
scale tinyint sys.type_scale(k.type, k.scale)
collation_name sysname {collation}
is_identity bit (k.identity_seed IS NOT NULL)::int
is_computed bit (k.computed IS NOT NULL)::int
is_filestream bit 0
is_sparse bit 0
is_masked bit 0
default_object_id int CASE WHEN k.default_name IS NULL THEN 0 ELSE hashtext(k.default_name) END
generated_always_type tinyint 0
encryption_type int NULL
FROM {columns}

-- view sys.indexes
object_id int i.object_id
name sysname i.name
index_id int i.index_id
type tinyint i.type
is_unique bit i.is_unique::int
data_space_id int 1
is_primary_key bit (i.kind = 'PK')::int
FROM (SELECT r.oid::bigint AS object_id, i.name, {index_id} AS index_id, CASE WHEN
    i.is_clustered THEN 1 ELSE 2 END AS type, i.is_unique, i.kind FROM {indexes} UNION ALL
    SELECT r.oid::bigint, NULL, 0, 0, false, 'IX' FROM {relations} WHERE r.kind = 'U' AND NOT
    EXISTS (SELECT FROM sys._index o WHERE o.relation = r.oid AND o.is_clustered)) AS i

-- view sys.index_columns
object_id int r.oid::bigint
index_id int {index_id}
column_id int a.attnum
key_ordinal tinyint a.n
FROM {indexes} CROSS JOIN LATERAL unnest(i.attnums) WITH ORDINALITY AS a(attnum, n)

-- view sys.key_constraints
parent_object_id int r.oid::bigint
unique_index_id int {index_id}
is_system_named bit (i.name LIKE '%\_\_%')::int
FROM {indexes} WHERE i.kind IN ({keys})

-- view sys.triggers
name sysname g.tgname
parent_id int r.oid::bigint
is_disabled bit (g.tgenabled = 'D')::int
is_instead_of_trigger bit (g.tgtype & 64 <> 0)::int
FROM {relations} JOIN pg_trigger g ON g.tgrelid = r.oid AND NOT g.tgisinternal

-- view sys.foreign_keys
name sysname k.conname
object_id int k.oid::bigint
parent_object_id int r.oid::bigint
referenced_object_id int k.confrelid::bigint
is_disabled bit 0
delete_referential_action tinyint strpos('cnd', k.confdeltype::text)
update_referential_action tinyint strpos('cnd', k.confupdtype::text)
FROM {relations} JOIN pg_constraint k ON k.conrelid = r.oid AND k.contype = 'f' AND {shown}

-- view sys.foreign_key_columns
constraint_object_id int k.oid::bigint
constraint_column_id int p.at
parent_object_id int k.conrelid::bigint
parent_column_id int p.own
referenced_object_id int k.confrelid::bigint
referenced_column_id int p.other
FROM {relations} JOIN pg_constraint k ON k.conrelid = r.oid AND k.contype = 'f' AND {shown}
    CROSS JOIN LATERAL unnest(k.conkey, k.confkey) WITH ORDINALITY AS p(own, other, at)

-- view sys.partitions
partition_id bigint i.object_id * 1000 + i.index_id
object_id int i.object_id
index_id int i.index_id
partition_number int 1
hobt_id bigint i.object_id * 1000 + i.index_id
rows bigint sys.row_count(i.object_id::bigint::oid)
data_compression tinyint 0
data_compression_desc nvarchar(60) 'NONE'
FROM sys."v_indexes"(db) AS i

-- view sys.dm_exec_sessions
session_id smallint 51 + a.pid % 32000
login_time datetime sys.to_datetime(substr(a.application_name, 9)::timestamptz AT TIME ZONE 'UTC')
program_name nvarchar(128) ''
login_name nvarchar(128) a.usename
status nvarchar(30) COALESCE(a.state, '')
FROM pg_stat_activity a WHERE a.datname = current_database() AND a.application_name LIKE 'session %'

-- view sys.dm_exec_requests
session_id smallint 51 + a.pid % 32000
blocking_session_id smallint COALESCE(51 + (pg_blocking_pids(a.pid))[1] % 32000, 0)
FROM pg_stat_activity a WHERE a.datname = current_database() AND a.state = 'active'

-- view information_schema.tables
TABLE_SCHEMA nvarchar(128) s.name
TABLE_NAME sysname r.name
TABLE_TYPE varchar(10) CASE r.kind WHEN 'U' THEN 'BASE TABLE' ELSE 'VIEW' END
FROM {relations}

-- view information_schema.columns
TABLE_SCHEMA nvarchar(128) s.name
TABLE_NAME nvarchar(128) r.name
COLUMN_NAME nvarchar(128) k.name
ORDINAL_POSITION int k.attnum
COLUMN_DEFAULT nvarchar(4000) CASE WHEN NOT sys.limited() THEN '(' || k.default_definition || ')' END
IS_NULLABLE varchar(3) CASE WHEN k.nullable THEN 'YES' ELSE 'NO' END
DATA_TYPE nvarchar(128) CASE WHEN k.type = 'sysname' THEN 'nvarchar' ELSE k.type END
CHARACTER_MAXIMUM_LENGTH int CASE k.type WHEN 'text' THEN 2147483647 WHEN 'ntext' THEN 1073741823
    WHEN 'image' THEN 2147483647 WHEN 'xml' THEN -1 ELSE k.length END
NUMERIC_PRECISION tinyint CASE WHEN k.type IN ({numbers}) THEN sys.type_precision(k.type,
    k.precision, k.scale) END
NUMERIC_SCALE int CASE WHEN k.type IN ('float', 'real') THEN NULL WHEN k.type IN ({numbers})
    THEN sys.type_scale(k.type, k.scale) END
DATETIME_PRECISION smallint CASE k.type WHEN 'date' THEN 0 WHEN 'datetime' THEN 3 WHEN
    'smalldatetime' THEN 0 WHEN 'time' THEN k.scale WHEN 'datetime2' THEN k.scale WHEN
    'datetimeoffset' THEN k.scale END
COLLATION_NAME sysname {collation}
FROM {columns}

-- view information_schema.table_constraints
CONSTRAINT_SCHEMA nvarchar(128) s.name
CONSTRAINT_NAME sysname x.name
TABLE_SCHEMA nvarchar(128) s.name
TABLE_NAME sysname r.name
CONSTRAINT_TYPE varchar(11) CASE x.kind WHEN 'PK' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END
FROM (SELECT relation, name, kind FROM sys._index WHERE kind IN ({keys})) AS x JOIN
    {relations} ON r.oid = x.relation

-- view information_schema.key_column_usage
CONSTRAINT_SCHEMA nvarchar(128) s.name
CONSTRAINT_NAME nvarchar(128) x.name
TABLE_SCHEMA nvarchar(128) s.name
TABLE_NAME nvarchar(128) r.name
COLUMN_NAME nvarchar(128) k.name
ORDINAL_POSITION int a.n
FROM (SELECT relation, name, attnums FROM sys._index WHERE kind IN ({keys})) AS x JOIN
    {relations} ON r.oid = x.relation CROSS JOIN LATERAL unnest(x.attnums) WITH ORDINALITY AS a(attnum, n) JOIN
    sys._column k ON k.oid = r.oid AND k.attnum = a.attnum

-- view sys.security_policies
name sysname p.policy
object_id int min(p.id) + 2000000000
is_enabled bit bool_or(p.enabled)::int
FROM sys._predicate p WHERE NOT sys.limited() AND p.database = lower(db) GROUP BY p.schema, p.policy

-- view sys.security_predicates
object_id int min(p.id) OVER (PARTITION BY p.schema, p.policy) + 2000000000
target_object_id int p.relation::bigint
predicate_type int p.blocks::int
FROM sys._predicate p WHERE NOT sys.limited() AND p.database = lower(db)
