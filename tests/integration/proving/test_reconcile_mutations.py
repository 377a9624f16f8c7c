"""Every damage of `docs.tools.detection_matrix`, on every pair of systems, and who notices it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import duckdb
import pytest
from docs.tools.detection_matrix import CLAIMS, Claim, claims_between

from tableferry.checks.levels import LEVELS, Level
from tableferry.checks.verdict import Difference, Differences, Verdict
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.digest.measure import DIGEST, ROWS
from tableferry.resources.keys.range import KeyRange
from tests.integration.conftest import table_name
from tests.integration.support.pairs import PAIRS, TEXT, Hop, graph
from tests.servers import Servers

pytestmark = pytest.mark.integration

EVERYTHING = KeyRange("integer")
KEYS = 100
"""The keys of the stretch in which one damage is done; the first stretch stays as it is."""

ROWS_OF_EACH = (5, 6, 7)
"""The last digits of the keys of each stretch: what is damaged is row 5, at times 6 with it."""

BY_CLAIM = {
    claim: KeyRange("integer", KEYS * number, KEYS * (number + 1))
    for number, claim in enumerate(CLAIMS, 1)
}
UNDAMAGED = KeyRange("integer", 0, KEYS)
STRETCHES = [UNDAMAGED, *BY_CLAIM.values()]

WIDE = "9876543210987654321098765432.1098765432"
LONG = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich"
"""63 characters."""

COLUMNS = {
    "n": ("bigint", "1000 + i"),
    "n0": ("integer", "NULL"),
    "yes": ("boolean", "i % 2 = 0"),
    "yes0": ("boolean", "NULL"),
    "price": ("numeric(12,2)", "i * 10.01"),
    "wide": ("numeric(38,10)", f"{WIDE} - i"),
    "ratio": ("double precision", "0.1 * i"),
    "zero": ("double precision", "0"),
    "tiny": ("double precision", "i * 5e-324"),
    "huge": ("double precision", "1.7976931348623157e308 - i * 1e293"),
    "single": ("real", "0.1::real * i"),
    "note": ("text", f"'{LONG} ' || i"),
    "long": ("text", "repeat('abcdefghij', 1000)"),
    "code": ("varchar(8)", "'abcdefg' || i % 10"),
    "blank": ("text", "'x '"),
    "lines": ("text", "E'a\\nb'"),
    "face": ("text", "'😀 smile'"),
    "nothing": ("text", "''"),
    "unknown": ("text", "NULL"),
    "raw": ("bytea", "decode('00ff1000', 'hex')"),
    "raw0": ("bytea", "''"),
    "day": ("date", "date '2024-02-28' + i"),
    "clock": ("time", "time '23:59:59.999991' - i * interval '1 s'"),
    "moment": ("timestamp", "timestamp '2024-02-28 23:59:59.999990' + i * interval '1 day'"),
    "instant": ("timestamptz", "timestamptz '1901-02-28 23:59:59.999990+00' + i * interval '1 s'"),
    "ident": ("uuid", "('11112222-3333-4444-8555-66667777888' || i % 10)::uuid"),
    "items": ("integer[]", "ARRAY[i, 2, 3]"),
}

EXCHANGE = "n = CASE WHEN id % 100 = 5 THEN 1006 ELSE 1005 END"
"""Two rows are told apart by the last digits of their keys."""

SAME = {
    ("rows", "a row is missing"): "DELETE",
    ("rows", "a row is there twice"): "DUPLICATE",
    ("rows", "a row is replaced by a copy of another"): "REPLACE",
    ("rows", "two rows have exchanged a value"): EXCHANGE,
    ("integer", "NULL instead of a value"): "n = NULL",
    ("integer", "0 instead of NULL"): "n0 = 0",
    ("integer", "the last digit"): "n = n + 1",
    ("integer", "the sign"): "n = -n",
    ("decimal, up to 18 digits", "the sign"): "price = -price",
    ("decimal, 38 digits", "the sign"): "wide = -wide",
    ("double", "the sign"): "ratio = -ratio",
    ("text", "NULL instead of ''"): "nothing = NULL",
    ("bytes", "NULL instead of no bytes"): "raw0 = NULL",
}
"""Damage -> `column = expression`, as every system writes it."""

CLICKHOUSE = SAME | {
    ("boolean", "the other value"): "yes = NOT yes",
    ("boolean", "false instead of NULL"): "yes0 = false",
    ("decimal, up to 18 digits", "the last digit"): "price = price + toDecimal64('0.01', 2)",
    ("decimal, 38 digits", "the last digit"): "wide = wide + toDecimal128('0.0000000001', 10)",
    (
        "decimal, 38 digits",
        "the first digit",
    ): "wide = wide - toDecimal128('1' || repeat('0', 27), 10)",
    ("double", "the last bit"): "ratio = reinterpretAsFloat64(reinterpretAsUInt64(ratio) + 1)",
    ("double", "-0.0 instead of 0.0"): "zero = toFloat64('-0.0')",
    (
        "double",
        "the last bit of the least and of the greatest magnitudes",
    ): "tiny = reinterpretAsFloat64(reinterpretAsUInt64(tiny) + 1), "
    "huge = reinterpretAsFloat64(reinterpretAsUInt64(huge) + 1)",
    ("real", "the last bit"): "single = reinterpretAsFloat32(reinterpretAsUInt32(single) + 1)",
    ("text", "'' instead of NULL"): "unknown = ''",
    ("text", "the first character"): "note = 'X' || substringUTF8(note, 2)",
    (
        "text",
        "upper instead of lower case of the first character",
    ): "code = 'A' || substring(code, 2)",
    (
        "text",
        "one code point in the middle",
    ): "note = substringUTF8(note, 1, 32) || 'X' || substringUTF8(note, 34)",
    ("text", "one code point of a short text"): "code = replace(code, 'f', 'ф')",
    (
        "text",
        "one code point elsewhere in a long text",
    ): "note = replace(note, 'Sylter', 'Sylt€r')",
    (
        "text",
        "one letter deep inside a text of 10,000",
    ): "long = concat(substring(long, 1, 7000), 'X', substring(long, 7002))",
    (
        "text",
        "two letters exchanged there",
    ): "long = concat(substring(long, 1, 7000), 'ba', substring(long, 7003))",
    ("text", "a supplementary character (emoji)"): "face = replace(face, '😀', '😁')",
    ("text", "two characters at the front exchanged"): "code = 'ba' || substring(code, 3)",
    ("text", "a trailing blank added"): "code = code || ' '",
    ("text", "a trailing blank lost"): "blank = 'x'",
    ("text", "CR LF instead of LF"): "lines = 'a\\r\\nb'",
    ("bytes", "one bit"): "raw = unhex('00ff1001')",
    ("bytes", "a trailing zero byte lost"): "raw = unhex('00ff10')",
    ("date", "one day"): "day = day + 1",
    ("time", "one microsecond"): "clock = replace(clock, '999991', '999992')",
    ("timestamp", "one microsecond"): "moment = addMicroseconds(moment, 1)",
    ("timestamp", "one hour"): "moment = addHours(moment, 1)",
    ("timestamp with time zone", "one microsecond"): "instant = addMicroseconds(instant, -1)",
    ("uuid", "one digit"): "ident = toUUID(replace(toString(ident), '2222', '2223'))",
    ("uuid", "both halves exchanged"): "ident = UUIDNumToString(toFixedString("
    "substring(UUIDToNum(ident), 9) || substring(UUIDToNum(ident), 1, 8), 16))::UUID",
    ("array", "one item"): "items = [5, 2, 4]",
    ("array", "two items exchanged"): "items = [2, 5, 3]",
    ("array", "an item NULL"): "items = [5, NULL, 3]",
    ("array", "an item more"): "items = [5, 2, 3, NULL]",
}
"""Damage -> `column = expression` in the target's SQL, done to row 5."""

SQLSERVER = SAME | {
    ("boolean", "the other value"): "yes = 1 - yes",
    ("boolean", "false instead of NULL"): "yes0 = 0",
    ("decimal, up to 18 digits", "the last digit"): "price = price + 0.01",
    ("decimal, 38 digits", "the last digit"): "wide = 9876543210987654321098765427.1098765433",
    ("decimal, 38 digits", "the first digit"): "wide = 8876543210987654321098765427.1098765432",
    ("double", "the last bit"): "ratio = 0.5000000000000001E0",
    ("double", "-0.0 instead of 0.0"): "zero = -zero",
    (
        "double",
        "the last bit of the least and of the greatest magnitudes",
    ): "tiny = tiny + 5E-324, huge = huge + 1.99584030953472E292",
    ("real", "the last bit"): "single = CAST(0.50000006E0 AS real)",
    ("text", "'' instead of NULL"): "unknown = N''",
    ("text", "the first character"): "note = N'X' + SUBSTRING(note, 2, 100)",
    (
        "text",
        "upper instead of lower case of the first character",
    ): "code = N'A' + SUBSTRING(code, 2, 100)",
    (
        "text",
        "one code point in the middle",
    ): "note = SUBSTRING(note, 1, 32) + N'X' + SUBSTRING(note, 34, 100)",
    ("text", "one code point of a short text"): "code = REPLACE(code, N'f', N'ф')",
    (
        "text",
        "one code point elsewhere in a long text",
    ): "note = REPLACE(note, N'Sylter', N'Sylt€r')",
    (
        "text",
        "one letter deep inside a text of 10,000",
    ): "long = SUBSTRING(long, 1, 7000) + N'X' + SUBSTRING(long, 7002, 10000)",
    (
        "text",
        "two letters exchanged there",
    ): "long = SUBSTRING(long, 1, 7000) + N'ba' + SUBSTRING(long, 7003, 10000)",
    ("text", "a supplementary character (emoji)"): "face = N'😁 smile'",
    ("text", "two characters at the front exchanged"): "code = N'ba' + SUBSTRING(code, 3, 100)",
    ("text", "a trailing blank added"): "nothing = N' '",
    ("text", "a trailing blank lost"): "blank = N'x'",
    ("text", "CR LF instead of LF"): "lines = N'a' + NCHAR(13) + NCHAR(10) + N'b'",
    ("bytes", "one bit"): "raw = 0x00ff1001",
    ("bytes", "a trailing zero byte lost"): "raw = 0x00ff10",
    ("date", "one day"): "day = DATEADD(day, 1, day)",
    ("time", "one microsecond"): "clock = DATEADD(microsecond, 1, clock)",
    ("timestamp", "one microsecond"): "moment = DATEADD(microsecond, 1, moment)",
    ("timestamp", "one hour"): "moment = DATEADD(hour, 1, moment)",
    ("timestamp with time zone", "one microsecond"): "instant = DATEADD(microsecond, -1, instant)",
    ("uuid", "one digit"): "ident = '11112223-3333-4444-8555-666677778885'",
    ("uuid", "both halves exchanged"): "ident = '85556666-7777-8885-1111-222233334444'",
}
"""The same in T-SQL; arrays are JSON texts there."""

POSTGRES = SAME | {
    ("boolean", "the other value"): "yes = NOT yes",
    ("boolean", "false instead of NULL"): "yes0 = false",
    ("decimal, up to 18 digits", "the last digit"): "price = price + 0.01",
    ("decimal, 38 digits", "the last digit"): "wide = 9876543210987654321098765427.1098765433",
    ("decimal, 38 digits", "the first digit"): "wide = 8876543210987654321098765427.1098765432",
    ("double", "the last bit"): "ratio = 0.5000000000000001",
    ("double", "-0.0 instead of 0.0"): "zero = -zero",
    (
        "double",
        "the last bit of the least and of the greatest magnitudes",
    ): "tiny = tiny + '5e-324'::double precision, huge = huge + 1.99584030953472E292",
    ("real", "the last bit"): "single = 0.50000006",
    ("text", "'' instead of NULL"): "unknown = ''",
    ("text", "the first character"): "note = 'X' || substr(note, 2)",
    ("text", "upper instead of lower case of the first character"): "code = 'A' || substr(code, 2)",
    (
        "text",
        "one code point in the middle",
    ): "note = substr(note, 1, 32) || 'X' || substr(note, 34)",
    ("text", "one code point of a short text"): "code = replace(code, 'f', 'ф')",
    ("text", "one code point elsewhere in a long text"): "note = replace(note, 'Sylter', 'Sylt€r')",
    (
        "text",
        "one letter deep inside a text of 10,000",
    ): "long = substr(long, 1, 7000) || 'X' || substr(long, 7002)",
    (
        "text",
        "two letters exchanged there",
    ): "long = substr(long, 1, 7000) || 'ba' || substr(long, 7003)",
    ("text", "a supplementary character (emoji)"): "face = replace(face, '😀', '😁')",
    ("text", "two characters at the front exchanged"): "code = 'ba' || substr(code, 3)",
    ("text", "a trailing blank added"): "nothing = ' '",
    ("text", "a trailing blank lost"): "blank = 'x'",
    ("text", "CR LF instead of LF"): "lines = E'a\\r\\nb'",
    ("bytes", "one bit"): "raw = decode('00ff1001', 'hex')",
    ("bytes", "a trailing zero byte lost"): "raw = decode('00ff10', 'hex')",
    ("date", "one day"): "day = day + 1",
    ("time", "one microsecond"): "clock = clock + interval '1 microsecond'",
    ("timestamp", "one microsecond"): "moment = moment + interval '1 microsecond'",
    ("timestamp", "one hour"): "moment = moment + interval '1 hour'",
    ("timestamp with time zone", "one microsecond"): "instant = instant - interval '1 microsecond'",
    ("uuid", "one digit"): "ident = '11112223-3333-4444-8555-666677778885'",
    ("uuid", "both halves exchanged"): "ident = '85556666-7777-8885-1111-222233334444'",
    ("array", "one item"): "items = ARRAY[5, 2, 4]",
    ("array", "two items exchanged"): "items = ARRAY[2, 5, 3]",
    ("array", "an item NULL"): "items = ARRAY[5, NULL, 3]",
    ("array", "an item more"): "items = ARRAY[5, 2, 3, NULL]",
}
FILES = POSTGRES | {
    ("double", "-0.0 instead of 0.0"): "zero = '-0.0'",
    ("bytes", "one bit"): "raw = unhex('00ff1001')",
    ("bytes", "a trailing zero byte lost"): "raw = unhex('00ff10')",
}
"""In DuckDB's SQL."""

DAMAGES = {
    "postgres": POSTGRES,
    "sqlserver": SQLSERVER,
    "clickhouse": CLICKHOUSE,
    "files": FILES,
}
AS_TEXT = {
    ("time", "one microsecond"): "clock = replace(clock, '999991', '999992')",
    ("array", "one item"): "items = '[5,2,4]'",
    ("array", "two items exchanged"): "items = '[2,5,3]'",
    ("array", "an item NULL"): "items = '[5,null,3]'",
    ("array", "an item more"): "items = '[5,2,3,4]'",
}
"""Where the column is a text in the target."""


@dataclass
class Seen:
    """What was seen of a pair's damaged target."""

    damages: dict[Claim, str]
    """That were done."""
    by_stretch: dict[Level, dict[str, Verdict]] = field(default_factory=dict)
    by_rows: dict[Level, Verdict] = field(default_factory=dict)
    found: list[Difference] = field(default_factory=list)
    """By the drill-down."""
    compared: Differences | None = None
    """By a comparison that knows of no move."""


@pytest.fixture(scope="module")
def seen(
    stack: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Seen]]:
    declared = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
    values = ", ".join(value for _, value in COLUMNS.values())
    table, folder = table_name(), tmp_path_factory.mktemp("files")
    with graph(stack, folder, PAIRS, table, declared, without=["raw", "raw0"]) as hops:
        listed = ", ".join(map(str, ROWS_OF_EACH))
        next(iter(hops.values())).source.endpoint.execute(
            f"INSERT INTO public.{table} SELECT {KEYS} * number + i, {values} "
            f"FROM generate_series(0, {len(CLAIMS)}) number, unnest(ARRAY[{listed}]) i"
        )
        for hop in hops.values():
            hop.move(EVERYTHING)
            assert_undamaged(hop)
        # those last out of whose targets the others read
        yield {pair: look(hop) for pair, hop in reversed(hops.items())}


def assert_undamaged(hop: Hop) -> None:
    for level in LEVELS:
        grouped = level in BY_STRETCH
        verdicts = hop.verdicts(level, STRETCHES if grouped else [EVERYTHING])
        for verdict in verdicts.values():
            assert verdict.passed, (hop.name, level, verdict.disagreeing, verdict)
            rows = len(ROWS_OF_EACH) * (1 if grouped else len(STRETCHES))
            assert verdict.source[ROWS] == verdict.target[ROWS] == rows
    outcome = hop.compared(key=["id"])
    assert outcome.equal, (hop.name, outcome.differences)
    assert not outcome.pairing.only_in_first and not outcome.pairing.only_in_second


def look(hop: Hop) -> Seen:
    """Damage the target, and compare it at every level."""
    system = hop.plan.target.system_name
    types = {column.target.name: column.target.type for column in hop.plan.columns}
    seen = Seen({})
    for claim in claims_between(hop.plan.source.system_name, system):
        which = claim.subject, claim.damage
        as_text = AS_TEXT.get(which)
        text = as_text and TEXT[system].lower() in types[column_of(as_text)].lower()
        seen.damages[claim] = as_text if as_text and text else DAMAGES[system][which]
    DAMAGING[system](hop, seen.damages)
    for level in LEVELS:
        if level in BY_STRETCH:
            seen.by_stretch[level] = hop.verdicts(level, STRETCHES)
        else:
            (seen.by_rows[level],) = hop.verdicts(level, [EVERYTHING]).values()
    hop.both(EVERYTHING).search(seen.found.extend)
    seen.compared = hop.compared(key=["id"]).differences
    return seen


BY_STRETCH: tuple[Level, ...] = ("count", "checksum")


def by_statements(hop: Hop, damages: dict[Claim, str]) -> None:
    """In one batch: on Babelfish each session begins by reading the catalog."""
    hop.target.endpoint.execute(";\n".join(statements(qualified(hop.plan.target), hop, damages)))


def statements(table: str, hop: Hop, damages: dict[Claim, str]) -> Iterator[str]:
    listed = ", ".join(f'"{column.target.name}"' for column in hop.plan.columns)
    copy = f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {table}"
    for claim, how in damages.items():
        first, second = keys(claim)
        if "=" in how:
            which = f"({first}, {second})" if how == EXCHANGE else f"({first})"
            yield f"UPDATE {table} SET {how} WHERE id IN {which}"
        if how in ("DELETE", "REPLACE"):
            yield f"DELETE FROM {table} WHERE id = {first}"
        if how in ("DUPLICATE", "REPLACE"):
            yield f"{copy} WHERE id = {first if how == 'DUPLICATE' else second}"


def by_mutation(hop: Hop, damages: dict[Claim, str]) -> None:
    """ClickHouse rewrites a table once for all changes, as commands of one statement."""
    table = qualified(hop.plan.target)
    done = list(statements(table, hop, damages))
    inserts = [one for one in done if one.startswith("INSERT")]
    changes = [
        one.replace(f"UPDATE {table} SET", "UPDATE").replace(f"DELETE FROM {table}", "DELETE")
        for one in done
        if one not in inserts
    ]
    hop.target.endpoint.execute(
        f"ALTER TABLE {table} {', '.join(changes)} SETTINGS mutations_sync = 2"
    )
    for statement in inserts:
        hop.target.endpoint.execute(statement)


def by_duckdb(hop: Hop, damages: dict[Claim, str]) -> None:
    (path,) = [one for one in hop.target.paths(hop.plan.target) if "null" not in one.name.lower()]
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"CREATE TABLE t AS FROM read_parquet('{path}')")
        for statement in statements("t", hop, damages):
            if "'-0.0'" in statement:
                # an update from 0.0 is none there
                database.execute(statement.replace("'-0.0'", "1"))
            database.execute(statement)
        # in a dictionary of DuckDB's, -0.0 is 0.0
        database.execute(f"COPY t TO '{path}' (FORMAT parquet, DICTIONARY_SIZE_LIMIT 0)")


DAMAGING: dict[str, Callable[[Hop, dict[Claim, str]], None]] = {
    "postgres": by_statements,
    "sqlserver": by_statements,
    "clickhouse": by_mutation,
    "files": by_duckdb,
}


def keys(claim: Claim) -> tuple[int, int]:
    """Those of the first two rows of its stretch."""
    lower = int(str(BY_CLAIM[claim].lower))
    return lower + ROWS_OF_EACH[0], lower + ROWS_OF_EACH[1]


def column_of(how: str) -> str:
    return how.partition(" = ")[0]


def columns_of(how: str) -> list[str]:
    return ["tiny", "huge"] if how.startswith("tiny") else [column_of(how)]


def test_every_claim_has_its_damage() -> None:
    claimed = {(claim.subject, claim.damage) for claim in CLAIMS}
    for damages in DAMAGES.values():
        assert damages.keys() | AS_TEXT.keys() == claimed


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)
def test_damage_is_noticed(seen: dict[tuple[str, str], Seen], pair: tuple[str, str]) -> None:
    """By every level that is claimed to, and nothing else is."""
    one = seen[pair]
    for level, verdicts in one.by_stretch.items():
        assert verdicts[UNDAMAGED.name].passed, level
        for claim, stretch in BY_CLAIM.items():
            verdict = verdicts[stretch.name]
            claimed = claim in one.damages and claim.caught_by(level)
            assert verdict.passed != claimed, (level, claim, verdict)
            assert level == "count" or verdict.passed or DIGEST in verdict.disagreeing


@pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)
def test_rows_that_differ_are_found(
    seen: dict[tuple[str, str], Seen], pair: tuple[str, str]
) -> None:
    """In the right columns and nowhere else."""
    one = seen[pair]
    kinds = {"DELETE": (1, 0), "DUPLICATE": (0, 1), "REPLACE": (1, 1)}
    rows: Counter[str] = Counter()
    by_column: Counter[str] = Counter()
    found: dict[int, list[Difference]] = {}
    for difference in one.found:
        found.setdefault(int(str(difference.key)) // KEYS, []).append(difference)
    for claim, how in one.damages.items():
        here = found.pop(keys(claim)[0] // KEYS)
        assert here[0].key == str(keys(claim)[0]), claim
        missing, extra = kinds.get(how, (0, 0))
        times = 2 if how == EXCHANGE else 1
        wanted = Counter(missing_in_target=missing, extra_in_target=extra)
        if "=" in how:
            wanted["different"] = times * len(columns_of(how))
            assert [one.column for one in here] == columns_of(how) * times, claim
            assert all(one.source != one.target for one in here), claim
            rows["different"] += times
            by_column.update(columns_of(how) * times)
        assert Counter(one.kind for one in here) == +wanted, claim
        rows["missing"] += missing
        rows["extra"] += extra
    assert not found
    by_rows = {level: verdict.differences for level, verdict in one.by_rows.items()}
    for level, verdict in one.by_rows.items():
        assert not verdict.passed and set(verdict.disagreeing) == {ROWS, *by_column}, level
    for level, each in {**by_rows, "compared": one.compared}.items():
        differences = each or Differences()
        assert differences.missing_in_target == rows["missing"], level
        assert differences.extra_in_target == rows["extra"], level
        assert differences.different == rows["different"], level
        assert Counter(differences.by_column) == by_column, level
