-- SQL Server's catalog views. A line of a view that is not indented is a column: its name, its
-- T-SQL type, and its PostgreSQL expression; FROM ends the columns. {words} stand for what a
-- paragraph `define` above says. `db` is the T-SQL database. Read by sysviews.py.

-- define collation
'SQL_Latin1_General_CP1_CI_AS'

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

-- define information_type
CASE WHEN k.type = 'sysname' THEN 'nvarchar' ELSE k.type END

-- define character
k.type IN ('char','varchar','nchar','nvarchar','text','ntext')

-- define length
CASE k.type WHEN 'text' THEN 2147483647 WHEN 'ntext' THEN 1073741823 WHEN 'image' THEN
    2147483647 WHEN 'xml' THEN -1 ELSE k.length END

-- define numbers
'tinyint','smallint','int','bigint','decimal','numeric','money','smallmoney','float','real'

-- define object_columns
name sysname r.name
object_id int r.oid::bigint
principal_id int NULL
schema_id int s.id
parent_object_id int 0
type char(2) rpad(r.kind, 2)
type_desc nvarchar(60) CASE r.kind WHEN 'U' THEN 'USER_TABLE' ELSE 'VIEW' END
create_date datetime sys.to_datetime(r.created)
modify_date datetime sys.to_datetime(r.created)
is_ms_shipped bit 0
is_published bit 0
is_schema_published bit 0

-- define table_columns
{object_columns}
lob_data_space_id int 0
max_column_id_used int (SELECT max(k.attnum) FROM sys._column k WHERE k.oid = r.oid)
lock_on_bulk_load bit 0
uses_ansi_nulls bit 1
is_replicated bit 0
is_memory_optimized bit 0
durability tinyint 0
temporal_type tinyint 0
temporal_type_desc nvarchar(60) 'NON_TEMPORAL_TABLE'
is_external bit 0
is_node bit 0
is_edge bit 0
is_filetable bit 0
history_table_id int NULL

-- define column_columns
object_id int k.oid::bigint
name sysname k.name
column_id int k.attnum
system_type_id tinyint t.system_type_id
user_type_id int t.user_type_id
max_length smallint sys.max_length(k.type, k.length, k.precision, k.scale)
precision tinyint sys.type_precision(k.type, k.precision, k.scale)
scale tinyint sys.type_scale(k.type, k.scale)
collation_name sysname CASE WHEN k.type IN ('char','varchar','nchar','nvarchar','text','ntext')
    THEN COALESCE(k.collated, {collation}) END
is_nullable bit k.nullable::int
is_ansi_padded bit 1
is_rowguidcol bit 0
is_identity bit (k.identity_seed IS NOT NULL)::int
is_computed bit (k.computed IS NOT NULL)::int
is_filestream bit 0
is_replicated bit 0
is_sparse bit 0
is_column_set bit 0
is_hidden bit 0
is_masked bit 0
is_xml_document bit 0
xml_collection_id int 0
default_object_id int CASE WHEN k.default_name IS NULL THEN 0 ELSE hashtext(k.default_name) END
rule_object_id int 0
generated_always_type tinyint 0
generated_always_type_desc nvarchar(60) 'NOT_APPLICABLE'
encryption_type int NULL
graph_type int NULL

-- view sys.databases
name sysname d.name
database_id int d.id
source_database_id int NULL
owner_sid varbinary(85) '\x01'::bytea
create_date datetime sys.to_datetime(d.created)
compatibility_level tinyint 150
collation_name sysname {collation}
user_access tinyint 0
user_access_desc nvarchar(60) 'MULTI_USER'
is_read_only bit 0
is_auto_close_on bit 0
is_auto_shrink_on bit 0
state tinyint 0
state_desc nvarchar(60) 'ONLINE'
is_in_standby bit 0
snapshot_isolation_state tinyint 1
snapshot_isolation_state_desc nvarchar(60) 'ON'
is_read_committed_snapshot_on bit 1
recovery_model tinyint 3
recovery_model_desc nvarchar(60) 'SIMPLE'
is_encrypted bit 0
is_query_store_on bit 0
containment tinyint 0
FROM sys._database d

-- view sys.database_recovery_status
database_id int d.id
recovery_fork_guid uniqueidentifier md5(d.name || d.created)::uuid
FROM sys._database d

-- view sys.schemas
name sysname s.name
schema_id int s.id
principal_id int 1
FROM sys._schema s WHERE s.database = lower(db)

-- view sys.tables
{table_columns}
FROM {relations} WHERE r.kind = 'U'

-- view sys.objects
name sysname o.name
object_id int o.id
principal_id int NULL
schema_id int o.schema_id
parent_object_id int o.parent
type char(2) rpad(o.kind, 2)
type_desc nvarchar(60) CASE o.kind WHEN 'U' THEN 'USER_TABLE' WHEN 'PK' THEN
    'PRIMARY_KEY_CONSTRAINT' WHEN 'UQ' THEN 'UNIQUE_CONSTRAINT' END
create_date datetime sys.to_datetime(o.created)
modify_date datetime sys.to_datetime(o.created)
is_ms_shipped bit 0
is_published bit 0
is_schema_published bit 0
FROM (SELECT r.name, r.oid::bigint AS id, s.id AS schema_id, 0 AS parent, r.kind, r.created FROM
    {relations} UNION ALL SELECT i.name, i.oid::bigint, s.id, r.oid::bigint, i.kind, r.created
    FROM {indexes} WHERE i.kind IN ({keys})) AS o

-- view sys.columns
{column_columns}
FROM {columns}

-- view sys.types
name sysname t.name
system_type_id tinyint t.system_type_id
user_type_id int t.user_type_id
schema_id int 4
principal_id int NULL
max_length smallint t.max_length
precision tinyint t.precision
scale tinyint t.scale
collation_name sysname CASE WHEN t.system_type_id IN (35, 99, 167, 175, 231, 239) THEN
    {collation} END
is_nullable bit (t.name <> 'sysname')::int
is_user_defined bit 0
is_assembly_type bit (t.name IN ('hierarchyid', 'geometry', 'geography'))::int
default_object_id int 0
rule_object_id int 0
is_table_type bit 0
FROM sys._type t

-- view sys.indexes
object_id int i.object_id
name sysname i.name
index_id int i.index_id
type tinyint i.type
type_desc nvarchar(60) CASE i.type WHEN 0 THEN 'HEAP' WHEN 1 THEN 'CLUSTERED' ELSE
    'NONCLUSTERED' END
is_unique bit i.is_unique::int
data_space_id int 1
ignore_dup_key bit 0
is_primary_key bit (i.kind = 'PK')::int
is_unique_constraint bit (i.kind = 'UQ')::int
fill_factor tinyint 0
is_padded bit 0
is_disabled bit 0
is_hypothetical bit 0
allow_row_locks bit 1
allow_page_locks bit 1
has_filter bit 0
filter_definition nvarchar(max) NULL
FROM (SELECT r.oid::bigint AS object_id, i.name, {index_id} AS index_id, CASE WHEN
    i.is_clustered THEN 1 ELSE 2 END AS type, i.is_unique, i.kind FROM {indexes} UNION ALL
    SELECT r.oid::bigint, NULL, 0, 0, false, 'IX' FROM {relations} WHERE r.kind = 'U' AND NOT
    EXISTS (SELECT FROM sys._index o WHERE o.relation = r.oid AND o.is_clustered)) AS i

-- view sys.index_columns
object_id int r.oid::bigint
index_id int {index_id}
index_column_id int a.n
column_id int a.attnum
key_ordinal tinyint CASE WHEN a.n <= cardinality(i.attnums) THEN a.n ELSE 0 END
partition_ordinal tinyint 0
is_descending_key bit COALESCE(i.descending[a.n], false)::int
is_included_column bit (a.n > cardinality(i.attnums))::int
FROM {indexes} CROSS JOIN LATERAL unnest(i.attnums || i.included) WITH ORDINALITY AS a(attnum,
    n)

-- view sys.key_constraints
name sysname i.name
object_id int i.oid::bigint
principal_id int NULL
schema_id int s.id
parent_object_id int r.oid::bigint
type char(2) i.kind
type_desc nvarchar(60) CASE i.kind WHEN 'PK' THEN 'PRIMARY_KEY_CONSTRAINT' ELSE
    'UNIQUE_CONSTRAINT' END
create_date datetime sys.to_datetime(r.created)
unique_index_id int {index_id}
is_system_named bit (i.name LIKE '%\_\_%')::int
FROM {indexes} WHERE i.kind IN ({keys})

-- view sys.triggers
name sysname g.tgname
object_id int g.oid::bigint
parent_class tinyint 1
parent_class_desc nvarchar(60) 'OBJECT_OR_COLUMN'
parent_id int r.oid::bigint
type char(2) 'TR'
type_desc nvarchar(60) 'SQL_TRIGGER'
create_date datetime sys.to_datetime(r.created)
modify_date datetime sys.to_datetime(r.created)
is_ms_shipped bit 0
is_disabled bit (g.tgenabled = 'D')::int
is_not_for_replication bit 0
is_instead_of_trigger bit (g.tgtype & 64 <> 0)::int
FROM {relations} JOIN pg_trigger g ON g.tgrelid = r.oid AND NOT g.tgisinternal

-- view sys.foreign_keys
name sysname k.conname
object_id int k.oid::bigint
principal_id int NULL
schema_id int s.id
parent_object_id int r.oid::bigint
type char(2) 'F'
type_desc nvarchar(60) 'FOREIGN_KEY_CONSTRAINT'
create_date datetime sys.to_datetime(r.created)
modify_date datetime sys.to_datetime(r.created)
is_ms_shipped bit 0
is_published bit 0
is_schema_published bit 0
referenced_object_id int k.confrelid::bigint
key_index_id int NULL
is_disabled bit 0
is_not_for_replication bit 0
is_not_trusted bit 0
delete_referential_action tinyint strpos('cnd', k.confdeltype::text)
delete_referential_action_desc nvarchar(60) CASE k.confdeltype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN
    'SET_NULL' WHEN 'd' THEN 'SET_DEFAULT' ELSE 'NO_ACTION' END
update_referential_action tinyint strpos('cnd', k.confupdtype::text)
update_referential_action_desc nvarchar(60) CASE k.confupdtype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN
    'SET_NULL' WHEN 'd' THEN 'SET_DEFAULT' ELSE 'NO_ACTION' END
is_system_named bit 0
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
is_user_process bit 1
FROM pg_stat_activity a WHERE a.datname = current_database() AND a.application_name LIKE 'session %'

-- view sys.dm_exec_requests
session_id smallint 51 + a.pid % 32000
start_time datetime sys.to_datetime(a.query_start AT TIME ZONE 'UTC')
status nvarchar(30) CASE WHEN a.wait_event_type = 'Lock' THEN 'suspended' ELSE 'running' END
command nvarchar(32) upper(split_part(ltrim(a.query), ' ', 1))
database_id smallint 1
blocking_session_id smallint COALESCE(51 + (pg_blocking_pids(a.pid))[1] % 32000, 0)
wait_type nvarchar(60) a.wait_event
wait_time int 0
open_transaction_count int (a.xact_start IS NOT NULL)::int
FROM pg_stat_activity a WHERE a.datname = current_database() AND a.state = 'active'

-- view information_schema.tables
TABLE_CATALOG nvarchar(128) db
TABLE_SCHEMA nvarchar(128) s.name
TABLE_NAME sysname r.name
TABLE_TYPE varchar(10) CASE r.kind WHEN 'U' THEN 'BASE TABLE' ELSE 'VIEW' END
FROM {relations}

-- view information_schema.schemata
CATALOG_NAME nvarchar(128) db
SCHEMA_NAME nvarchar(128) s.name
SCHEMA_OWNER nvarchar(128) 'dbo'
FROM sys._schema s WHERE s.database = lower(db)

-- view information_schema.columns
TABLE_CATALOG nvarchar(128) db
TABLE_SCHEMA nvarchar(128) s.name
TABLE_NAME nvarchar(128) r.name
COLUMN_NAME nvarchar(128) k.name
ORDINAL_POSITION int k.attnum
COLUMN_DEFAULT nvarchar(4000) CASE WHEN NOT sys.limited() THEN '(' || k.default_definition || ')' END
IS_NULLABLE varchar(3) CASE WHEN k.nullable THEN 'YES' ELSE 'NO' END
DATA_TYPE nvarchar(128) {information_type}
CHARACTER_MAXIMUM_LENGTH int {length}
CHARACTER_OCTET_LENGTH int CASE WHEN k.type IN ('nchar','nvarchar') AND k.length > 0 THEN
    k.length * 2 WHEN k.type = 'ntext' THEN 2147483646 ELSE {length} END
NUMERIC_PRECISION tinyint CASE WHEN k.type IN ({numbers}) THEN sys.type_precision(k.type,
    k.precision, k.scale) END
NUMERIC_PRECISION_RADIX smallint CASE WHEN k.type IN ('float', 'real') THEN 2 WHEN k.type IN
    ({numbers}) THEN 10 END
NUMERIC_SCALE int CASE WHEN k.type IN ('float', 'real') THEN NULL WHEN k.type IN ({numbers})
    THEN sys.type_scale(k.type, k.scale) END
DATETIME_PRECISION smallint CASE k.type WHEN 'date' THEN 0 WHEN 'datetime' THEN 3 WHEN
    'smalldatetime' THEN 0 WHEN 'time' THEN k.scale WHEN 'datetime2' THEN k.scale WHEN
    'datetimeoffset' THEN k.scale END
CHARACTER_SET_CATALOG sysname NULL
CHARACTER_SET_SCHEMA sysname NULL
CHARACTER_SET_NAME sysname CASE WHEN k.type IN ('nchar','nvarchar','ntext') THEN 'UNICODE' WHEN
    {character} THEN 'iso_1' END
COLLATION_CATALOG sysname NULL
COLLATION_SCHEMA sysname NULL
COLLATION_NAME sysname CASE WHEN {character} THEN COALESCE(k.collated, {collation}) END
DOMAIN_CATALOG sysname NULL
DOMAIN_SCHEMA sysname NULL
DOMAIN_NAME sysname NULL
FROM {columns}

-- view information_schema.table_constraints
CONSTRAINT_CATALOG nvarchar(128) db
CONSTRAINT_SCHEMA nvarchar(128) s.name
CONSTRAINT_NAME sysname x.name
TABLE_CATALOG nvarchar(128) db
TABLE_SCHEMA nvarchar(128) s.name
TABLE_NAME sysname r.name
CONSTRAINT_TYPE varchar(11) CASE x.kind WHEN 'PK' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END
IS_DEFERRABLE varchar(2) 'NO'
INITIALLY_DEFERRED varchar(2) 'NO'
FROM (SELECT relation, name, kind FROM sys._index WHERE kind IN ({keys})) AS x JOIN
    {relations} ON r.oid = x.relation

-- view information_schema.key_column_usage
CONSTRAINT_CATALOG nvarchar(128) db
CONSTRAINT_SCHEMA nvarchar(128) s.name
CONSTRAINT_NAME nvarchar(128) x.name
TABLE_CATALOG nvarchar(128) db
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
principal_id int NULL
schema_id int (SELECT s.id FROM sys._schema s WHERE s.database = lower(db) AND lower(s.name) = lower(p.schema))
parent_object_id int 0
type char(2) 'SP'
type_desc nvarchar(60) 'SECURITY_POLICY'
is_ms_shipped bit 0
is_enabled bit bool_or(p.enabled)::int
is_not_for_replication bit 0
is_schema_bound bit 1
FROM sys._predicate p WHERE NOT sys.limited() AND p.database = lower(db) GROUP BY p.schema, p.policy

-- view sys.security_predicates
object_id int min(p.id) OVER (PARTITION BY p.schema, p.policy) + 2000000000
security_predicate_id int row_number() OVER (PARTITION BY p.schema, p.policy ORDER BY p.id)
target_object_id int p.relation::bigint
predicate_definition nvarchar(max) p.definition
predicate_type int p.blocks::int
predicate_type_desc nvarchar(60) CASE WHEN p.blocks THEN 'BLOCK' ELSE 'FILTER' END
operation int NULL
operation_desc nvarchar(60) NULL
FROM sys._predicate p WHERE NOT sys.limited() AND p.database = lower(db)
