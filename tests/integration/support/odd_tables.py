"""Tables and views as databases that grew for years have them: each odd in one way."""

from __future__ import annotations

_WIDE = ", ".join(f"column_{n} int DEFAULT {n}" for n in range(300))

TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE TYPE place AS (street text, number int)",
    "CREATE DOMAIN percentage AS int CHECK (VALUE BETWEEN 0 AND 100)",
)

TABLES = {
    "composite": "CREATE TABLE composite (a int, b int, note text, PRIMARY KEY (a, b))",
    "text_key": "CREATE TABLE text_key (code text PRIMARY KEY, note text)",
    "odd_collation": 'CREATE TABLE odd_collation (code text COLLATE "C" PRIMARY KEY)',
    "text_pair": "CREATE TABLE text_pair (code varchar(9), no int, PRIMARY KEY (code, no))",
    "uuid_key": "CREATE TABLE uuid_key (id uuid PRIMARY KEY, note text)",
    "numeric_key": "CREATE TABLE numeric_key (id numeric(20,4) PRIMARY KEY, note text)",
    "big_numeric_key": "CREATE TABLE big_numeric_key (id numeric(38,0) PRIMARY KEY, note text)",
    "float_key": "CREATE TABLE float_key (x float8 PRIMARY KEY, note text)",
    "date_key": "CREATE TABLE date_key (day date PRIMARY KEY, note text)",
    "moment_key": "CREATE TABLE moment_key (at timestamptz PRIMARY KEY, note text)",
    "boolean_key": "CREATE TABLE boolean_key (yes boolean PRIMARY KEY, note text)",
    "bytes_key": "CREATE TABLE bytes_key (id bytea PRIMARY KEY, note text)",
    "enum_key": "CREATE TABLE enum_key (m mood PRIMARY KEY, note text)",
    "inet_key": "CREATE TABLE inet_key (host inet PRIMARY KEY, note text)",
    "negative_key": "CREATE TABLE negative_key (id bigint PRIMARY KEY, note text)",
    "unique_only": "CREATE TABLE unique_only (id int NOT NULL UNIQUE, note text)",
    "no_key": "CREATE TABLE no_key (a int, note text)",
    "twice": "CREATE TABLE twice (a int, note text)",
    "empty": "CREATE TABLE empty (id int PRIMARY KEY, note text)",
    "parted": "CREATE TABLE parted (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
    "heirs": "CREATE TABLE heirs (more text) INHERITS (composite)",
    "arrays": "CREATE TABLE arrays (id int PRIMARY KEY, numbers int[], texts text[])",
    "documents": "CREATE TABLE documents (id int PRIMARY KEY, doc jsonb, raw json, tree xml)",
    "moods": "CREATE TABLE moods (id int PRIMARY KEY, m mood, ms mood[])",
    "domains": "CREATE TABLE domains (id int PRIMARY KEY, p percentage)",
    "rows_in_rows": "CREATE TABLE rows_in_rows (id int PRIMARY KEY, p place)",
    "generated": (
        "CREATE TABLE generated (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int,"
        " b int GENERATED ALWAYS AS (a * 2) STORED)"
    ),
    "wide": f"CREATE TABLE wide (id int PRIMARY KEY, {_WIDE})",
    "MixedCase": 'CREATE TABLE "MixedCase" ("Id" int PRIMARY KEY, "someNote" text)',
    "odd names": 'CREATE TABLE "odd names" (id int PRIMARY KEY, "a: b" text, "c]d" text)',
    "Ключи": 'CREATE TABLE "Ключи" ("Ключ" int PRIMARY KEY, "größe" text)',
    "select": 'CREATE TABLE "select" ("order" int PRIMARY KEY, "group" text, "user" text)',
    'quo""ted': 'CREATE TABLE "quo""ted" (id int PRIMARY KEY, "x\'y" text)',
    "not_numbers": "CREATE TABLE not_numbers (id int PRIMARY KEY, n numeric, x float8, y real)",
    "big_numbers": "CREATE TABLE big_numbers (id int PRIMARY KEY, n numeric, m numeric(60,20))",
    "infinite": "CREATE TABLE infinite (id int PRIMARY KEY, day date, at timestamptz)",
    "ancient": "CREATE TABLE ancient (id int PRIMARY KEY, day date, at timestamp)",
    "midnight": "CREATE TABLE midnight (id int PRIMARY KEY, t time, z timetz)",
    "prices": "CREATE TABLE prices (id int PRIMARY KEY, price money)",
    "spans": "CREATE TABLE spans (id int PRIMARY KEY, span interval)",
    "hosts": "CREATE TABLE hosts (id int PRIMARY KEY, host inet, net cidr, mac macaddr)",
    "searches": "CREATE TABLE searches (id int PRIMARY KEY, words tsvector)",
    "ranges": "CREATE TABLE ranges (id int PRIMARY KEY, r int4range, ts tstzrange)",
    "shapes": "CREATE TABLE shapes (id int PRIMARY KEY, p point, b box)",
    "bits": "CREATE TABLE bits (id int PRIMARY KEY, b bit(8), v bit varying)",
    "padded": "CREATE TABLE padded (id int PRIMARY KEY, c char(10), v varchar(10))",
    "blanks": "CREATE TABLE blanks (id int PRIMARY KEY, note text, data bytea)",
}
"""Each table by a name for it. None has the columns of a key and nothing else to move but those."""

NOTHING = {"columnless": "CREATE TABLE columnless ()"}
"""What `ferry init` leaves out: there is nothing to move."""

VIEWS = {
    "open_notes": "CREATE VIEW open_notes AS SELECT id, note FROM unique_only WHERE id > 5",
    "counts": "CREATE VIEW counts AS SELECT count(*) AS rows FROM unique_only",
}

ROWS = (
    "INSERT INTO composite SELECT i % 5, i, 'n' || i FROM generate_series(1, 40) i",
    "INSERT INTO text_key SELECT 'k' || i, NULL FROM generate_series(1, 40) i",
    "INSERT INTO text_key VALUES ('', 'empty'), ('é', 'accent'), ('K1', 'case')",
    "INSERT INTO odd_collation VALUES ('a'), ('B'), ('_'), ('ä'), ('Z')",
    "INSERT INTO text_pair SELECT 'c' || i % 4, i FROM generate_series(1, 40) i",
    "INSERT INTO uuid_key SELECT gen_random_uuid(), 'u' || i FROM generate_series(1, 40) i",
    "INSERT INTO numeric_key SELECT i * 1.25 - 20, 'n' FROM generate_series(1, 40) i",
    "INSERT INTO big_numeric_key SELECT i * 10 ^ 30::numeric, 'n' FROM generate_series(1, 9) i",
    "INSERT INTO float_key SELECT i / 3.0, 'f' FROM generate_series(1, 40) i",
    "INSERT INTO date_key SELECT '2024-02-01'::date + i, 'd' FROM generate_series(1, 40) i",
    "INSERT INTO moment_key SELECT '2024-02-01'::timestamptz + i * interval '1 hour 3 us', 'm'"
    " FROM generate_series(1, 40) i",
    "INSERT INTO boolean_key VALUES (true, 'y'), (false, 'n')",
    "INSERT INTO bytes_key VALUES ('\\x00', 'zero'), ('\\xff00', 'more')",
    "INSERT INTO enum_key VALUES ('sad', 's'), ('happy', 'h')",
    "INSERT INTO inet_key VALUES ('10.0.0.1', 'a'), ('10.0.0.0/8', 'b'), ('::1', 'c')",
    "INSERT INTO negative_key VALUES (-9223372036854775808, 'l'), (0, 'z'), (9e18::bigint, 'g')",
    "INSERT INTO unique_only SELECT i, 'n' FROM generate_series(1, 40) i",
    "INSERT INTO no_key SELECT i, 'n' FROM generate_series(1, 40) i",
    "INSERT INTO twice SELECT 1, 'same' FROM generate_series(1, 9) i",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (20)",
    "CREATE TABLE parted_2 PARTITION OF parted DEFAULT",
    "INSERT INTO parted SELECT i, 'n' FROM generate_series(1, 40) i",
    "INSERT INTO heirs SELECT 9, i, 'n', 'm' FROM generate_series(1, 20) i",
    "INSERT INTO arrays VALUES (1, '{1,2,NULL}', '{a,\"b c\",NULL}'), (2, '{}', NULL)",
    "INSERT INTO documents VALUES (1, '{\"a\": [1, null]}', '{\"b\":  2}', NULL),"
    " (2, 'null', NULL, NULL)",
    "INSERT INTO moods VALUES (1, 'ok', '{sad,happy}'), (2, NULL, NULL)",
    "INSERT INTO domains VALUES (1, 0), (2, 100), (3, NULL)",
    "INSERT INTO rows_in_rows VALUES (1, ROW('High St', 5)), (2, NULL)",
    "INSERT INTO generated (a) SELECT i FROM generate_series(1, 20) i",
    "INSERT INTO wide (id) SELECT i FROM generate_series(1, 5) i",
    "INSERT INTO \"MixedCase\" VALUES (1, 'x'), (2, NULL)",
    "INSERT INTO \"odd names\" VALUES (1, 'x', 'y'), (2, '', NULL)",
    "INSERT INTO \"Ключи\" VALUES (1, 'groß'), (2, '日本')",
    "INSERT INTO \"select\" VALUES (1, 'g', 'u')",
    'INSERT INTO "quo""ted" VALUES (1, \'q\')',
    "INSERT INTO not_numbers VALUES (1, 'NaN', 'NaN', 'NaN'), (2, 1.5, 1.5, 1.5),"
    " (3, NULL, 'Infinity', '-Infinity')",
    "INSERT INTO big_numbers VALUES (1, 1.5, 2.5), (2, NULL, 10 ^ 15::numeric)",
    "INSERT INTO infinite VALUES (1, 'infinity', '-infinity'), (2, '2024-01-01', now())",
    "INSERT INTO ancient VALUES (1, '0001-01-01', '0001-01-01'), (2, '0044-03-15 BC', NULL)",
    "INSERT INTO midnight VALUES (1, '24:00', '24:00+00'), (2, '00:00', '12:00+05:30')",
    "INSERT INTO prices VALUES (1, 12.34), (2, -92233720368547758.08)",
    "INSERT INTO spans VALUES (1, '1 year 2 days -3 seconds'), (2, '-5 minutes')",
    "INSERT INTO hosts VALUES (1, '10.0.0.1', '10.0.0.0/8', '08:00:2b:01:02:03')",
    "INSERT INTO searches VALUES (1, to_tsvector('simple', 'a few words'))",
    "INSERT INTO ranges VALUES (1, '[1,5)', '[2024-01-01, infinity)'), (2, 'empty', NULL)",
    "INSERT INTO shapes VALUES (1, '(1,2)', '(3,4),(1,2)')",
    "INSERT INTO bits VALUES (1, B'10101010', B'1'), (2, NULL, B'')",
    "INSERT INTO padded VALUES (1, 'a', 'a '), (2, '', '')",
    "INSERT INTO blanks VALUES (1, '', ''), (2, ' ', '\\x00'), (3, NULL, NULL), (4, E'\\t\\n', '')",
)
