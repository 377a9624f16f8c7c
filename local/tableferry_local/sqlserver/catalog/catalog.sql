-- What T-SQL declared, keyed by PostgreSQL's object ids, so that it follows transactions and renames.

CREATE TABLE sys._database (
  id int PRIMARY KEY, name text NOT NULL, key text NOT NULL UNIQUE, created timestamp NOT NULL DEFAULT now()
);
CREATE TABLE sys._schema (
  id int GENERATED ALWAYS AS IDENTITY (START 5), database text NOT NULL, name text NOT NULL,
  pg_schema text PRIMARY KEY
);
CREATE TABLE sys._relation (
  oid oid PRIMARY KEY, pg_schema text NOT NULL, name text NOT NULL, kind text NOT NULL,
  created timestamp NOT NULL DEFAULT now()
);
CREATE INDEX ON sys._relation (pg_schema, lower(name));
CREATE TABLE sys._column (
  oid oid, attnum int, name text NOT NULL, type text NOT NULL, length int, precision int, scale int,
  nullable boolean NOT NULL, collated text, identity_seed bigint, identity_increment bigint,
  computed text, default_name text, default_definition text, PRIMARY KEY (oid, attnum)
);
-- An index, and the PRIMARY KEY or UNIQUE constraint that it may stand for.
CREATE TABLE sys._index (
  oid oid PRIMARY KEY, relation oid NOT NULL, name text NOT NULL, kind text NOT NULL,
  is_unique boolean NOT NULL, is_clustered boolean NOT NULL, attnums int[] NOT NULL,
  descending boolean[] NOT NULL
);
CREATE INDEX ON sys._index (relation);
CREATE SEQUENCE sys._index_names;
CREATE TABLE sys._type (
  name text PRIMARY KEY, system_type_id int NOT NULL, user_type_id int NOT NULL, max_length int NOT NULL,
  precision int NOT NULL, scale int NOT NULL
);

-- functions
CREATE SEQUENCE IF NOT EXISTS sys._dbts;
-- A predicate of a security policy, which is shown but not heeded.
CREATE TABLE IF NOT EXISTS sys._predicate (
  id int GENERATED ALWAYS AS IDENTITY, database text NOT NULL, schema text NOT NULL, policy text NOT NULL,
  definition text NOT NULL, blocks boolean NOT NULL, relation oid NOT NULL, enabled boolean NOT NULL
);

CREATE FUNCTION sys.max_length(type text, length int, digits int, scale int) RETURNS int LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN type IN ('nchar', 'nvarchar') AND length > 0 THEN length * 2
  WHEN length IS NOT NULL THEN length
  WHEN type IN ('decimal', 'numeric') THEN CASE WHEN digits <= 9 THEN 5 WHEN digits <= 19 THEN 9 WHEN digits <= 28 THEN 13 ELSE 17 END
  WHEN type = 'time' THEN CASE WHEN scale <= 2 THEN 3 WHEN scale <= 4 THEN 4 ELSE 5 END
  WHEN type = 'datetime2' THEN CASE WHEN scale <= 2 THEN 6 WHEN scale <= 4 THEN 7 ELSE 8 END
  WHEN type = 'datetimeoffset' THEN CASE WHEN scale <= 2 THEN 8 WHEN scale <= 4 THEN 9 ELSE 10 END
  ELSE (SELECT t.max_length FROM sys._type t WHERE t.name = type) END;

CREATE FUNCTION sys.type_precision(type text, digits int, scale int) RETURNS int LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN type IN ('decimal', 'numeric') THEN digits
  WHEN type = 'time' THEN 8 + CASE WHEN scale > 0 THEN scale + 1 ELSE 0 END
  WHEN type = 'datetime2' THEN 19 + CASE WHEN scale > 0 THEN scale + 1 ELSE 0 END
  WHEN type = 'datetimeoffset' THEN 26 + CASE WHEN scale > 0 THEN scale + 1 ELSE 0 END
  ELSE (SELECT t.precision FROM sys._type t WHERE t.name = type) END;

CREATE FUNCTION sys.type_scale(type text, scale int) RETURNS int LANGUAGE sql IMMUTABLE
RETURN CASE WHEN type IN ('decimal', 'numeric', 'time', 'datetime2', 'datetimeoffset') THEN scale
  ELSE (SELECT t.scale FROM sys._type t WHERE t.name = type) END;

-- The parts of a T-SQL name: [a]].b]."c".d
CREATE FUNCTION sys.name_parts(x text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE parts text[] := '{}'; part text := ''; c text; stop text := ''; i int := 1;
BEGIN
  WHILE i <= length(x) LOOP
    c := substr(x, i, 1);
    IF stop <> '' THEN
      IF c = stop AND substr(x, i + 1, 1) = stop THEN part := part || c; i := i + 1;
      ELSIF c = stop THEN stop := '';
      ELSE part := part || c;
      END IF;
    ELSIF c = '[' THEN stop := ']';
    ELSIF c = '"' THEN stop := '"';
    ELSIF c = '.' THEN parts := parts || btrim(part); part := '';
    ELSE part := part || c;
    END IF;
    i := i + 1;
  END LOOP;
  RETURN parts || part;
END $$;

CREATE FUNCTION sys.object_id(db text, name text, kind text DEFAULT NULL) RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE parts text[] := sys.name_parts(name); n int; result int; wanted text; space text;
BEGIN
  n := array_length(parts, 1);
  IF name IS NULL OR n > 3 THEN RETURN NULL; END IF;
  wanted := lower(parts[n]);
  IF wanted LIKE '#%' THEN
    SELECT r.oid::int INTO result FROM sys._relation r JOIN pg_class c ON c.oid = r.oid
    WHERE c.relnamespace = pg_my_temp_schema() AND lower(r.name) = wanted;
    RETURN result;
  END IF;
  space := lower(coalesce(nullif(parts[n - 2], ''), db) || '.' || coalesce(nullif(parts[n - 1], ''), 'dbo'));
  SELECT o.id INTO result FROM (
    SELECT r.oid::int AS id, r.kind FROM sys._relation r JOIN pg_class c ON c.oid = r.oid WHERE r.pg_schema = space AND lower(r.name) = wanted
    UNION ALL SELECT i.oid::int, i.kind FROM sys._index i JOIN sys._relation r ON r.oid = i.relation JOIN pg_class c ON c.oid = i.oid
      WHERE i.kind <> 'IX' AND r.pg_schema = space AND lower(i.name) = wanted
  ) AS o WHERE object_id.kind IS NULL OR btrim(upper(object_id.kind)) = btrim(o.kind) LIMIT 1;
  RETURN result;
END $$;

CREATE FUNCTION sys.row_count(relation oid) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE result bigint;
BEGIN
  EXECUTE format('SELECT count(*) FROM %s', relation::regclass) INTO result;
  RETURN result;
END $$;

CREATE FUNCTION sys.sequence_value(relation oid, attnum int) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE result bigint; sequence text;
BEGIN
  SELECT pg_get_serial_sequence(relation::regclass::text, a.attname) INTO sequence
  FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum = sequence_value.attnum;
  IF sequence IS NULL THEN RETURN NULL; END IF;
  EXECUTE format('SELECT CASE WHEN is_called THEN last_value END FROM %s', sequence) INTO result;
  RETURN result;
END $$;
