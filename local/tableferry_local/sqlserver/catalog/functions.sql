-- What T-SQL computes and PostgreSQL does not. Ticks are 100 ns since 0001-01-01 (datetime2(7)) or
-- since midnight (time(7)).

CREATE TYPE sys.datetimeoffset AS (utc bigint, minutes smallint);

-- A call whose arguments are all constants would be evaluated by the planner, reached or not: give
-- the message a part of the value, if only an empty one.
CREATE FUNCTION sys.fail(number int, severity int, message text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RAISE EXCEPTION '%|%|%', number, severity, message USING ERRCODE = 'TS000';
END $$;

-- Whether the login is shown what belongs to `dbo` alone, and no definitions.
CREATE FUNCTION sys.limited() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN COALESCE(current_setting('tsql.limited', true), '') <> '';

-- Text ----------------------------------------------------------------------------------------

-- What the default collation compares: case and trailing blanks do not count.
CREATE FUNCTION sys.ci(x text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN lower(rtrim(x, ' ') COLLATE "pg_c_utf8") COLLATE "C";

CREATE FUNCTION sys.cs(x text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN rtrim(x, ' ') COLLATE "C";

-- A text that orders as if it were filled up with blanks for ever: each blank is followed by \x01 if a
-- control character comes behind the blanks, by \x02 if nothing does, by \x03 if anything else does.
CREATE FUNCTION sys.filled(x text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN strpos(rtrim(x, ' '), ' ') = 0 THEN rtrim(x, ' ')
  ELSE regexp_replace(regexp_replace(rtrim(x, ' '), ' (?= *[\x01-\x1f])', E' \x01', 'g'),
    ' (?= *[^\x01-\x20])', E' \x03', 'g') END || E' \x02';

-- What a binary collation compares, by UTF-16 code units, where U+E000 and above come behind the
-- surrogates, or by UTF-8 bytes.
CREATE FUNCTION sys.bin(x text, units bool) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN units AND x ~ '[\uE000-\uFFFF]'
  THEN regexp_replace(sys.filled(x), '([\uE000-\uFFFF])', E'\U0010FFFF\\1', 'g')
  ELSE sys.filled(x) END COLLATE "C";

-- Length in UTF-16 code units, as SQL Server counts.
CREATE FUNCTION sys.units(x text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(x) = length(x) THEN length(x)
  ELSE length(x) + length(regexp_replace(x, '[^\U00010000-\U0010ffff]', '', 'g')) END;

CREATE FUNCTION sys.len(x text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sys.units(rtrim(x, ' '));

-- The first n UTF-16 units; a surrogate pair that does not fit is dropped.
CREATE FUNCTION sys.cut(x text, n int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE result text := left(x, n);
BEGIN
  IF n < 0 THEN PERFORM sys.fail(537, 16, 'Invalid length parameter passed to the LEFT or SUBSTRING function.'); END IF;
  WHILE sys.units(result) > n LOOP
    result := left(result, length(result) - 1);
  END LOOP;
  RETURN result;
END $$;

CREATE FUNCTION sys.pad(x text, n int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(x) >= n AND sys.units(x) >= n THEN x
  ELSE x || repeat(' ', n - sys.units(x)) END;

-- varchar holds code page 1252 only; anything else becomes a question mark per UTF-16 unit.
CREATE FUNCTION sys.cp1252(x text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(x) = length(x) THEN x ELSE
  regexp_replace(regexp_replace(x, '[\U00010000-\U0010ffff]', '??', 'g'),
    '[^\u0001-\u0081\u008d\u008f\u0090\u009d\u00a0-\u00ff€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]', '?', 'g') END;

-- Assignment to a column of n units: blanks beyond the end are cut, anything else is error 2628.
CREATE FUNCTION sys.fit(x text, n int, place text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE result text;
BEGIN
  IF octet_length(x) <= n OR sys.units(x) <= n THEN RETURN x; END IF;
  result := sys.cut(x, n);
  IF rtrim(substr(x, length(result) + 1), ' ') <> '' THEN
    PERFORM sys.fail(2628, 16, format('String or binary data would be truncated in table %s. Truncated value: ''%s''.', place, left(result, 100)));
  END IF;
  RETURN result;
END $$;

CREATE FUNCTION sys.fit(x bytea, n int, place text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  IF octet_length(x) > n THEN
    PERFORM sys.fail(2628, 16, format('String or binary data would be truncated in table %s. Truncated value: ''''.', place));
  END IF;
  RETURN x;
END $$;

CREATE FUNCTION sys.pad(x bytea, n int) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substr(x, 1, n) || decode(repeat('00', greatest(n - octet_length(x), 0)), 'hex');

CREATE FUNCTION sys.utf16(x text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE result text := ''; point int; c text;
BEGIN
  FOREACH c IN ARRAY regexp_split_to_array(x, '') LOOP
    CONTINUE WHEN c = '';
    point := ascii(c);
    IF point < 65536 THEN
      result := result || lpad(to_hex(((point & 255) << 8) | (point >> 8)), 4, '0');
    ELSE
      point := point - 65536;
      result := result
        || lpad(to_hex((((55296 + (point >> 10)) & 255) << 8) | ((55296 + (point >> 10)) >> 8)), 4, '0')
        || lpad(to_hex((((56320 + (point & 1023)) & 255) << 8) | ((56320 + (point & 1023)) >> 8)), 4, '0');
    END IF;
  END LOOP;
  RETURN decode(result, 'hex');
END $$;

CREATE FUNCTION sys.from_utf16(x bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE result text := ''; unit int; low int; i int := 0;
BEGIN
  WHILE i + 1 < octet_length(x) LOOP
    unit := get_byte(x, i) | (get_byte(x, i + 1) << 8);
    i := i + 2;
    IF unit BETWEEN 55296 AND 56319 AND i + 1 < octet_length(x) THEN
      low := get_byte(x, i) | (get_byte(x, i + 1) << 8);
      i := i + 2;
      unit := 65536 + ((unit - 55296) << 10) + (low - 56320);
    END IF;
    result := result || chr(unit);
  END LOOP;
  RETURN result;
END $$;

CREATE FUNCTION sys.like_pattern(pattern text, esc text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE result text := ''; c text; i int := 1; inner_text text; stop int;
BEGIN
  WHILE i <= length(pattern) LOOP
    c := substr(pattern, i, 1);
    IF c = esc AND i < length(pattern) THEN
      i := i + 1;
      result := result || regexp_replace(substr(pattern, i, 1), '([^[:alnum:][:space:]_])', '\\\1');
    ELSIF c = '%' THEN result := result || '.*';
    ELSIF c = '_' THEN result := result || '.';
    ELSIF c = '[' AND strpos(substr(pattern, i + 1), ']') > 0 THEN
      stop := i + strpos(substr(pattern, i + 1), ']');
      inner_text := substr(pattern, i + 1, stop - i - 1);
      result := result || CASE
        WHEN left(inner_text, 1) = '^' THEN '[^' || replace(replace(substr(inner_text, 2), '\', '\\'), '[', '\[') || ']'
        ELSE '[' || replace(replace(inner_text, '\', '\\'), '[', '\[') || ']' END;
      i := stop;
    ELSE result := result || regexp_replace(c, '([^[:alnum:][:space:]_])', '\\\1');
    END IF;
    i := i + 1;
  END LOOP;
  RETURN '^(?:' || result || ')$';
END $$;

-- Numbers -------------------------------------------------------------------------------------

CREATE FUNCTION sys.tinyint(x bigint) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN x BETWEEN 0 AND 255 OR x IS NULL THEN x::smallint
  ELSE sys.fail(220, 16, 'Arithmetic overflow error for data type tinyint, value = ' || x || '.')::smallint END;

CREATE FUNCTION sys.text_number(x text, kind text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN btrim(x) = '' THEN CASE WHEN kind = 'numeric'
    THEN sys.fail(8114, 16, 'Error converting data type varchar to numeric.' || left(x::text, 0)) ELSE '0' END
  WHEN kind = 'float' AND x ~ '[A-DF-Za-df-z_]' OR kind = 'numeric' AND x ~ '[A-Za-z_]'
    THEN sys.fail(8114, 16, 'Error converting data type varchar to ' || kind || '.' || left(x, 0))
  WHEN kind = 'int' AND btrim(x) !~ '^[+-]?\s*[0-9]+$' THEN
    sys.fail(245, 16, 'Conversion failed when converting the varchar value ''' || x || ''' to data type int.')
  ELSE btrim(x) END;

CREATE FUNCTION sys.text_money(x text) RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(nullif(regexp_replace(x, '[$, ]', '', 'g'), ''), '0')::numeric(19, 4);

CREATE FUNCTION sys.text_bit(x text) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE lower(btrim(x)) WHEN 'true' THEN 1 WHEN 'false' THEN 0
  ELSE (sys.text_number(x, 'int')::bigint <> 0)::int END::smallint;

-- Style 0 is CAST's.
CREATE FUNCTION sys.float_text(x float8, style int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE digits int := CASE style WHEN 0 THEN 6 ELSE 17 END;
  shown text := btrim(to_char(x, '9.' || repeat('9', digits - 1) || 'EEEE'));
  mantissa text := split_part(lower(shown), 'e', 1); exponent int := split_part(lower(shown), 'e', 2)::int;
BEGIN
  IF style = 0 THEN
    IF x = 0 THEN RETURN '0'; END IF;
    IF exponent BETWEEN -5 AND digits - 1 THEN
      RETURN trim_scale(round(mantissa::numeric * (10::numeric ^ exponent), digits - 1 - exponent))::text;
    END IF;
    mantissa := trim_scale(mantissa::numeric)::text;
  END IF;
  RETURN mantissa || 'e' || CASE WHEN exponent < 0 THEN '-' ELSE '+' END || lpad(abs(exponent)::text, 3, '0');
END $$;

CREATE FUNCTION sys.bytes_int(x bytea) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE result bigint := 0; b bytea := substr(x, greatest(octet_length(x) - 7, 1));
BEGIN
  FOR i IN 0 .. octet_length(b) - 1 LOOP
    result := (result << 8) | get_byte(b, i);
  END LOOP;
  RETURN result;
END $$;

-- uniqueidentifier orders by its last six bytes first, and is stored with its first three fields swapped.
CREATE FUNCTION sys.guid_bytes(x uuid) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT substr(b, 4, 1) || substr(b, 3, 1) || substr(b, 2, 1) || substr(b, 1, 1)
    || substr(b, 6, 1) || substr(b, 5, 1) || substr(b, 8, 1) || substr(b, 7, 1) || substr(b, 9)
  FROM (SELECT uuid_send(x)) AS s(b));

CREATE FUNCTION sys.bytes_guid(x bytea) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT encode(substr(b, 4, 1) || substr(b, 3, 1) || substr(b, 2, 1) || substr(b, 1, 1)
    || substr(b, 6, 1) || substr(b, 5, 1) || substr(b, 8, 1) || substr(b, 7, 1) || substr(b, 9), 'hex')::uuid
  FROM (SELECT sys.pad(x, 16)) AS s(b));

CREATE FUNCTION sys.guid_order(x uuid) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT substr(b, 11, 6) || substr(b, 9, 2) || substr(b, 7, 2) || substr(b, 5, 2) || substr(b, 1, 4)
  FROM (SELECT sys.guid_bytes(x)) AS s(b));

-- Dates and times -----------------------------------------------------------------------------

CREATE FUNCTION sys.ts_ticks(x timestamp) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(epoch FROM x) * 10000000)::bigint + 621355968000000000;

-- Rounded to n digits of a second, n at most 6.
-- Ticks rounded to n digits of a second; beyond the last instant nothing is rounded up. + 0 * x keeps NULL, which
-- least() passes over. Whole numbers and few calls: a table's dates all come this way.
CREATE FUNCTION sys.step(n int) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE n WHEN 7 THEN 1 WHEN 6 THEN 10 WHEN 5 THEN 100 WHEN 4 THEN 1000 WHEN 3 THEN 10000 WHEN 2 THEN 100000
  WHEN 1 THEN 1000000 ELSE 10000000 END;

CREATE FUNCTION sys.round_ticks(x bigint, n int) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least((x + sys.step(n) / 2) / sys.step(n) * sys.step(n), 3155378976000000000 - sys.step(n)) + 0 * x;

CREATE FUNCTION sys.ticks_ts(x bigint, n int DEFAULT 6) RETURNS timestamp LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN date '0001-01-01' + (sys.round_ticks(x, n) / 864000000000)::int
  + (sys.round_ticks(x, n) % 864000000000 / 10)::float8 * interval '1 microsecond';

CREATE FUNCTION sys.time_ticks(x time) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(epoch FROM x) * 10000000)::bigint;

CREATE FUNCTION sys.ticks_time(x bigint, n int DEFAULT 6) RETURNS time LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN time '00:00' + round(x, n - 7)::bigint % 864000000000 / 10 * interval '1 microsecond';

CREATE FUNCTION sys.to_datetime(x timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN x < '1753-01-01' THEN sys.fail(242, 16, 'The conversion of a datetime2 data type to a datetime data type resulted in an out-of-range value.' || left(x::text, 0))::timestamp
  ELSE date_trunc('second', x) + round(round(extract(microsecond FROM x) % 1000000 * 3 / 10000) * 10000 / 3) * interval '1 microsecond' END;

-- A datetime counts in 1/300 s, of which no digits of a second are exact; datetime2 has the nearest 100 ns.
CREATE FUNCTION sys.datetime_ticks(x timestamp) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sys.ts_ticks(date_trunc('second', x))
  + round(round(extract(microsecond FROM x)::numeric % 1000000 * 3 / 10000) * 100000 / 3)::bigint;

CREATE FUNCTION sys.to_smalldatetime(x timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN x < '1900-01-01' OR x >= '2079-06-06 23:59:30' THEN sys.fail(242, 16, 'The conversion of a datetime2 data type to a smalldatetime data type resulted in an out-of-range value.' || left(x::text, 0))::timestamp
  ELSE date_trunc('minute', x + interval '30 seconds') END;

CREATE FUNCTION sys.text_dto(x text) RETURNS sys.datetimeoffset LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE m text[]; fraction text; local bigint; minutes int := 0;
BEGIN
  m := regexp_match(btrim(x), '^(\d{4}-\d{1,2}-\d{1,2}|\d{8}|\d{6}|\d{4}|\d{1,2}/\d{1,2}/\d{4}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}-\d{1,2}-\d{4}|[A-Za-z]{3,9} +\d{1,2},? +\d{4}|\d{1,2} +[A-Za-z]{3,9},? +\d{4})?[T ]*(?:(\d{1,2}(?::\d{1,2}(?::\d{1,2})?)?)(?:[.:](\d+))?\s*([AaPp][Mm])?)?\s*(Z|[+-]\d{1,2}:\d{2})?$');
  IF m IS NULL OR length(m[3]) > 7 OR (m[2] IS NOT NULL AND strpos(m[2], ':') = 0 AND m[4] IS NULL) THEN
    PERFORM sys.fail(241, 16, 'Conversion failed when converting date and/or time from character string.');
  END IF;
  IF length(m[1]) = 4 THEN m[1] := m[1] || '-01-01'; END IF;
  fraction := rpad(coalesce(m[3], ''), 7, '0');
  local := sys.ts_ticks((coalesce(m[1], '1900-01-01') || ' ' || coalesce(m[2], '00:00') || coalesce(' ' || m[4], ''))::timestamp) + fraction::bigint;
  IF m[5] IS NOT NULL AND m[5] <> 'Z' THEN
    minutes := split_part(m[5], ':', 1)::int * 60 + (CASE WHEN m[5] LIKE '-%' THEN -1 ELSE 1 END) * split_part(m[5], ':', 2)::int;
  END IF;
  IF local < 0 OR local >= 3155378976000000000 OR abs(minutes) > 840 THEN
    PERFORM sys.fail(241, 16, 'Conversion failed when converting date and/or time from character string.');
  END IF;
  RETURN ROW(local - minutes * 600000000::bigint, minutes)::sys.datetimeoffset;
EXCEPTION WHEN datetime_field_overflow OR invalid_datetime_format THEN
  PERFORM sys.fail(241, 16, 'Conversion failed when converting date and/or time from character string.');
END $$;

CREATE FUNCTION sys.dto_local(x sys.datetimeoffset) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (x).utc + (x).minutes * 600000000::bigint;

CREATE FUNCTION sys.text_ticks(x text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sys.dto_local(sys.text_dto(x));

CREATE FUNCTION sys.make_dto(local bigint, minutes int) RETURNS sys.datetimeoffset LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN local IS NULL OR minutes IS NULL THEN NULL ELSE ROW(local - minutes * 600000000::bigint, minutes::smallint)::sys.datetimeoffset END;

CREATE FUNCTION sys.dto_round(x sys.datetimeoffset, n int) RETURNS sys.datetimeoffset LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN (x).utc IS NULL THEN NULL ELSE ROW(round((x).utc, n - 7)::bigint, (x).minutes)::sys.datetimeoffset END;

CREATE FUNCTION sys.offset_text(minutes int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN minutes < 0 THEN '-' ELSE '+' END || lpad((abs(minutes) / 60)::text, 2, '0') || ':' || lpad((abs(minutes) % 60)::text, 2, '0');

-- yyyy-mm-dd hh:mm:ss[.fraction of n digits]
-- plpgsql: a function of SQL that names its argument so often is not inlined, and costs ten times as much.
CREATE FUNCTION sys.stamp_text(x bigint, n int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE r bigint := sys.round_ticks(x, n);
  shown text := to_char(sys.ticks_ts(r / 10000000 * 10000000), 'YYYY-MM-DD HH24:MI:SS');
BEGIN
  RETURN CASE WHEN n > 0 THEN shown || '.' || left(lpad((r % 10000000)::text, 7, '0'), n) ELSE shown END;
END $$;

CREATE FUNCTION sys.time_text(x bigint, n int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substr(sys.stamp_text(x, n), 12);

CREATE FUNCTION sys.datetime_text(x timestamp) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_char(x, 'Mon ') || lpad(to_char(x, 'FMDD'), 2) || to_char(x, ' YYYY ') || lpad(to_char(x, 'FMHH12:MIAM'), 7);

CREATE FUNCTION sys.date_add(x bigint, amount bigint) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN x + amount BETWEEN 0 AND 3155378975999999999 THEN x + amount
  ELSE sys.fail(517, 16, 'Adding a value to a ''datetime2'' column caused an overflow.' || left(x::text, 0))::bigint END;

CREATE FUNCTION sys.int4(x numeric) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN x BETWEEN -2147483648 AND 2147483647 OR x IS NULL THEN x::int
  ELSE sys.fail(535, 16, 'The datediff function resulted in an overflow. The number of dateparts separating two date/time instances is too large. Try to use datediff with a less precise datepart.' || left(x::text, 0))::int END;

CREATE FUNCTION sys.number_text(x text, n int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length(x) > n
  THEN sys.fail(8115, 16, 'Arithmetic overflow error converting expression to data type varchar.' || left(x::text, 0)) ELSE x END;

CREATE FUNCTION sys.replace_ci(x text, old text, new text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN old = '' THEN x ELSE regexp_replace(x, regexp_replace(old, '([^[:alnum:][:space:]_])', '\\\1', 'g'),
  replace(new, '\', '\\'), 'gi') END;
