"""A user's profile on ClickHouse changes neither what is read nor what is written."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from tableferry.assets.planning.ranges.boundaries import key_statistics
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.connecting.waiting import bounded
from tableferry.resources.contract.catalog import Listed, Use, inspection_of
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.digest.fingerprinting import SourceReading, fingerprints
from tableferry.resources.errors import ColumnsRefused, InputError, RowsHidden, StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.servers import CLICKHOUSE, named

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(named(CLICKHOUSE)), reason="needs a server with profiles of its own"),
]

LOCAL = pytest.importorskip("tableferry_local.clickhouse")
PASSWORD = "profiles"
SOURCE = TableRef("clickhouse", "warehouse", "source")
EVERYTHING = KeyRange("integer")

MEANING = {
    "session_timezone": "Asia/Tokyo",
    "date_time_overflow_behavior": "saturate",
    "date_time_output_format": "unix_timestamp",
    "output_format_tsv_crlf_end_of_line": "1",
    "output_format_decimal_trailing_zeros": "1",
    "output_format_arrow_low_cardinality_as_dictionary": "1",
    "format_tsv_null_representation": "nothing",
    "bool_true_representation": "yes",
    "extremes": "1",
    "final": "1",
    "apply_deleted_mask": "0",
    "use_query_cache": "1",
    "query_cache_nondeterministic_function_handling": "ignore",
    "query_cache_system_table_handling": "save",
    "query_cache_ttl": "600",
    "join_use_nulls": "1",
    "transform_null_in": "1",
    "cast_keep_nullable": "1",
    "aggregate_functions_null_for_empty": "1",
    "prefer_column_name_to_alias": "1",
    "data_type_default_nullable": "1",
    "default_table_engine": "Memory",
    "flatten_nested": "0",
    "create_if_not_exists": "1",
    "show_create_query_identifier_quoting_style": "DoubleQuotes",
    "mutations_sync": "0",
    "lightweight_deletes_sync": "0",
    "insert_deduplication_token": "always the same",
    "additional_table_filters": "{{'warehouse.source': 'id &lt; 3'}}",
}
PROFILES = {
    "plain": {},
    "meaning": MEANING,
    "old": {"compatibility": "22.8"},
    "cutting": {"limit": "3"},
    "readonly2": {**MEANING, "limit": "3", "readonly": "2"},
    "readonly1": {
        "session_timezone": "UTC",
        "date_time_overflow_behavior": "throw",
        "readonly": "1",
    },
    "breaking": {"max_rows_to_read": "4", "read_overflow_mode": "break"},
    "locked": {"transform_null_in": "1", "readonly": "1"},
    "locked_limit": {"limit": "3", "readonly": "1"},
    "constant": {"join_use_nulls": "1"},
    "hasty": {"max_execution_time": "600"},
    "capped": {},
    "fixed": {"max_execution_time": "700"},
    "sorting": {"sort": "-1"},
}
FILTER = "<databases><warehouse><source><filter>id &lt; 3</filter></source></warehouse></databases>"
BLIND = "<grants><query>GRANT SELECT ON warehouse.*</query></grants>"
COLUMNS = (
    "<grants><query>GRANT SELECT(id, note) ON warehouse.source</query>"
    "<query>GRANT SHOW ON warehouse.*</query></grants>"
)
GRANTED = {
    "whole": "GRANT SELECT ON warehouse.*",
    "revoked": "GRANT SELECT ON warehouse.*; REVOKE SELECT(b) ON warehouse.granted",
    "some": "GRANT SELECT(id, a) ON warehouse.granted",
    "shown": "GRANT SELECT(id, a), SHOW COLUMNS ON warehouse.granted",
}
"""Grants of the table `granted (id, a, b)`, one after the other."""
USERS = {
    "filtered": FILTER,
    "blind": BLIND,
    "masked": FILTER + BLIND,
    "columns": COLUMNS,
    **{
        user: f"<grants><query>{grants.replace('; ', '</query><query>')}</query></grants>"
        for user, grants in GRANTED.items()
    },
}
"""With the profile `plain`, and what else an administrator may have said of them."""
CONSTRAINTS = {
    "constant": "<join_use_nulls><const/></join_use_nulls>",
    "capped": "<max_execution_time><max>800</max></max_execution_time>",
    "fixed": "<max_execution_time><const/></max_execution_time>",
}

Login = Callable[[str], ClickHouseResource]


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Login]:
    """Connects as the user of a profile, each of whom may do everything."""
    digest = hashlib.sha256(PASSWORD.encode()).hexdigest()
    profiles, users = "", ""
    for name, settings in PROFILES.items():
        listed = "".join(f"<{one}>{value}</{one}>" for one, value in settings.items())
        constraints = f"<constraints>{CONSTRAINTS.get(name, '')}</constraints>"
        profiles += f"<{name}>{listed}{constraints}</{name}>"
        users += (
            f"<{name}><password_sha256_hex>{digest}</password_sha256_hex>"
            f"<networks><ip>::/0</ip></networks><profile>{name}</profile></{name}>"
        )
    for name, more in USERS.items():
        users += (
            f"<{name}><password_sha256_hex>{digest}</password_sha256_hex>"
            f"<networks><ip>::/0</ip></networks><profile>plain</profile>{more}</{name}>"
        )
    with pytest.MonkeyPatch.context() as patch:
        text = LOCAL.USERS.replace("</profiles>", f"{profiles}</profiles>")
        patch.setattr(LOCAL, "USERS", text.replace("</users>", f"{users}</users>"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folder = tmp_path_factory.mktemp("profiles")
        pid = LOCAL.start(folder, port, PASSWORD)
    try:
        LOCAL.wait_ready(folder, pid, port, PASSWORD)

        def connect(user: str) -> ClickHouseResource:
            return ClickHouseResource(url=f"http://{user}:{PASSWORD}@127.0.0.1:{port}/warehouse")

        plain = connect("plain")
        plain.execute(
            f"CREATE TABLE {qualified(SOURCE)} (id Int32, at DateTime64(3), price Decimal(9, 4), "
            "ok Bool, note Nullable(String), tag LowCardinality(String)) "
            # parts of two partitions are merged by FINAL only
            "ENGINE = ReplacingMergeTree PARTITION BY id > 4 ORDER BY tag"
        )
        for first in (1, 5):
            plain.execute(
                f"INSERT INTO {qualified(SOURCE)} SELECT number + {first}, "
                "toDateTime64('2024-02-01 10:00:00.125', 3, 'UTC') + number, number / 8, "
                "number % 2, if(number = 1, NULL, 'n'), toString(number) FROM numbers(4)"
            )
        plain.execute(f"DELETE FROM {qualified(SOURCE)} WHERE id = 8")
        yield connect
    finally:
        LOCAL.stop(pid)


def read(server: ClickHouseResource) -> dict[str, object]:
    """All that the product asks of a source, in every way."""
    where, table = "WHERE id > 0 ORDER BY id", qualified(SOURCE)
    columns = server.columns(SOURCE)
    plan = plan_copy(SOURCE, columns, TableRef("postgres", "public", "x"), key="id")
    with server.read_arrow(f"SELECT * FROM {table} {where}") as reader:
        arrow = reader.read_all()
    found = fingerprints(SourceReading(server, plan), [EVERYTHING])
    statistics = key_statistics(server, SOURCE, next(one for one in columns if one.name == "id"))
    return {
        "columns": columns,
        "arrow": (arrow.schema, arrow.to_pylist()),
        "rows": server.query(f"SELECT * FROM {table} {where}"),
        "fingerprint": found[EVERYTHING.name],
        "statistics": statistics,
        "compared": server.query("SELECT NULL IN (NULL, 1), toString(true), CAST(1, 'Float64')"),
    }


@pytest.mark.parametrize("user", ["meaning", "old", "cutting", "readonly2"])
def test_what_is_read_does_not_depend_on_the_profile(login: Login, user: str) -> None:
    expected, found = read(login("plain")), read(login(user))
    assert len(expected["arrow"][1]) == 7  # type: ignore[index]
    assert found == expected
    server = login(user)
    table = qualified(SOURCE)
    before = server.query(f"SELECT count() FROM {table}")
    login("plain").execute(f"INSERT INTO {table} SELECT 99, now64(), 1, true, 'new', 'new'")
    assert server.query(f"SELECT count() FROM {table}") == [(before[0][0] + 1,)], "not a cached one"
    login("plain").execute(f"DELETE FROM {table} WHERE id = 99")


@pytest.mark.parametrize("user", ["meaning", "old", "cutting"])
def test_what_is_written_does_not_depend_on_the_profile(login: Login, user: str) -> None:
    server = login(user)
    target = ClickHouseTarget(server)
    table = TableRef("clickhouse", "warehouse", f"target_{user}")
    columns = [one for one in server.columns(SOURCE) if one.name in ("id", "note", "at")]
    plan = plan_copy(TableRef("clickhouse", "x", "y"), columns, table, key="id")
    types = {one.target.name: one.arrow_type for one in plan.columns}

    def write(mode: str, ids: list[int]) -> None:
        options = TargetOptions(mode=WriteMode(mode))
        target.prepare(plan, options)
        rows = {"id": ids, "note": [None, *["a"] * (len(ids) - 1)], "at": [0] * len(ids)}
        batch = pa.record_batch({name: pa.array(rows[name], types[name]) for name in types})
        with target.attempt(Publication(plan, EVERYTHING, mode, "me"), options) as load:
            load.load_arrow([batch])
            load.finalise()

    write("replace", [1, 2, 3, 4])
    write("replace", [1, 2, 3, 4, 5])
    assert login("plain").query(f"SELECT count(), countIf(note IS NULL) FROM {table.name}") == [
        (5, 1)
    ]
    definition = login("plain").definition(table)
    assert "ENGINE = MergeTree" in definition and "`id` Int32," in definition


def test_a_login_that_may_set_nothing_is_let_in_if_nothing_is_to_be_set(login: Login) -> None:
    assert login("readonly1").query(f"SELECT count() FROM {qualified(SOURCE)}") == [(7,)]


@pytest.mark.parametrize(
    ("user", "seconds"),
    [("plain", 2000), ("hasty", 600), ("capped", 800), ("fixed", 700), ("readonly1", 0)],
)
def test_a_tick_ends_its_statements_as_far_as_the_profile_lets_it(
    login: Login, user: str, seconds: int
) -> None:
    with bounded(time.monotonic() + 2000):
        found = login(user).query("SELECT toUInt32(getSetting('max_execution_time'))")
    assert found == [(seconds,)]


def test_a_limit_that_is_exceeded_fails(login: Login) -> None:
    with pytest.raises(StatementFailed, match="rows"):
        login("breaking").query(f"SELECT count(), sum(id) FROM {qualified(SOURCE)}")


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ("locked", r"user 'locked' .* its profile says .*transform_null_in = '1'"),
        ("locked_limit", "limit"),
        ("constant", "join_use_nulls = '1'"),
        ("sorting", "sort = '-1'"),
    ],
)
def test_what_cannot_be_set_is_refused_by_name(login: Login, user: str, reason: str) -> None:
    with pytest.raises((InputError, StatementFailed), match=reason):
        login(user).query("SELECT 1")


def test_a_row_policy_is_refused_or_declared(
    login: Login, ferry: Callable[..., Ferry], copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    withheld_from = inspection_of(system("clickhouse")).withheld_from
    assert withheld_from(login("plain"), SOURCE)[0] is None
    assert withheld_from(login("blind"), SOURCE)[0] is None
    one = ferry(f"['postgres://{copies}.{{t}}']", "CREATE TABLE {t} (id int)")
    declared = {"source": "filtered://warehouse.source", "exclude": "[tag]"}
    one.declare(f"['postgres://{copies}.{{t}}']", **declared)
    for user in ("masked", "filtered"):  # the first may not read system.row_policies
        monkeypatch.setenv("TABLEFERRY_CONNECTION_FILTERED", str(login(user).url))
        one.declare(f"['postgres://{copies}.{{t}}']", **declared)
        for ask in (one.plan, one.run):
            with pytest.raises(RowsHidden) as refused:
                ask()
            for word in ("filtered://warehouse.source", "ROW POLICY", f"`{user}`", "row_security"):
                assert word in str(refused.value)
    one.declare(f"['postgres://{copies}.{{t}}']", **declared, row_security="apply")
    view = one.run()
    assert view.good, view.errors
    assert one.rows(f"SELECT count(*), max(id) FROM {copies}.{{t}}") == [(2, 2)]


def test_doctor_tells_of_row_policies(login: Login) -> None:
    found = {
        user: [
            (one.state, one.says)
            for one in inspection_of(system("clickhouse")).health(login(user), Use(reads=(SOURCE,)))
            if one.subject == "row security"
        ]
        for user in ("plain", "blind", "filtered", "masked", "some")
    }
    assert found["plain"] == found["blind"] == []
    for user in ("filtered", "masked"):
        ((state, says),) = found[user]
        assert state == "warning" and f"would hide rows from `{user}`" in says
    ((state, says),) = found["some"]
    assert state == "note" and "may not see whether row policies" in says, "it may not read it"


def test_doctor_asks_for_the_rights_of_sources_and_of_targets_that_others_partition(
    login: Login,
) -> None:
    def lacking(user: str, use: Use) -> list[str]:
        every = inspection_of(system("clickhouse")).health(login(user), use)
        (found,) = (one for one in every if one.subject == "privileges")
        assert "no transfer uses" not in found.says
        return [*found.do]

    for user in ("plain", "blind", "columns"):
        assert lacking(user, Use(reads=(SOURCE,))) == []
    assert lacking("some", Use(reads=(SOURCE,))) == [
        f"GRANT SELECT ON {qualified(SOURCE)} TO `some`;"
    ]
    processes = "GRANT SELECT ON system.processes TO `blind`;"
    assert processes in lacking("blind", Use(writes=(SOURCE,)))
    ours = TableRef("clickhouse", "warehouse", "not_there_yet")
    assert processes not in lacking("blind", Use(writes=(ours,)))


def test_where_only_columns_are_granted_the_content_counts(login: Login) -> None:
    server = login("columns")
    columns = [one for one in server.columns(SOURCE) if one.name in ("id", "note")]
    plan = plan_copy(SOURCE, columns, TableRef("postgres", "public", "x"), key="id")
    found = fingerprints(SourceReading(server, plan), [EVERYTHING], "auto")[EVERYTHING.name]
    assert found == fingerprints(SourceReading(login("plain"), plan), [EVERYTHING])[EVERYTHING.name]
    assert (found.found_by, found.row_versions) == ("content", "")


@pytest.fixture
def granted(
    login: Login, ferry: Callable[..., Ferry], copies: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Ferry]]:
    """Declares a transfer of the table `granted`, which one of the users of `GRANTED` reads."""
    admin = login("plain")
    admin.execute(
        "CREATE OR REPLACE TABLE warehouse.granted "
        "(id Int32, a String, b Nullable(String), given String EPHEMERAL) "
        "ENGINE = MergeTree ORDER BY id"
    )
    admin.execute(
        "INSERT INTO warehouse.granted (id, a, b) SELECT number, 'a', 'b' FROM numbers(100)"
    )
    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops, "CREATE TABLE {t} (id int)")

    def read_by(user: str, **settings: str) -> Ferry:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_GRANTED", str(login(user).url))
        one.declare(hops, source="granted://warehouse.granted", **settings)
        return one

    yield read_by
    admin.execute("DROP TABLE warehouse.granted")


@pytest.mark.parametrize("dropped", ["drop", "null", "keep"])
def test_a_grant_that_is_revoked_takes_no_column_from_the_target(
    login: Login, granted: Callable[..., Ferry], copies: str, dropped: str
) -> None:
    evolve = {"on_schema_drift": "evolve", "dropped_columns": dropped}
    one = granted("whole", **evolve)
    assert one.run().good
    sql = f"SELECT id, a, b FROM {copies}.{{t}} ORDER BY id"
    held = one.rows(sql)
    login("plain").execute("INSERT INTO warehouse.granted (id, a, b) VALUES (100, 'a', 'b')")
    for user in ("revoked", "some"):
        one = granted(user, **evolve)
        for ask in (one.plan, one.run):
            with pytest.raises(InputError) as refused:
                ask()
            assert "granted://warehouse.granted: " in str(refused.value)
            grant = f"GRANT SHOW COLUMNS ON `warehouse`.`granted` TO `{user}`"
            assert grant in str(refused.value)
        assert one.rows(sql) == held
    one = granted("shown", **evolve)
    with pytest.raises(ColumnsRefused, match=r"'b'.*exclude: \[b\]"):
        one.run()
    assert one.rows(sql) == held
    one = granted("whole", **evolve)
    assert one.run().good
    assert one.rows(sql) == [*held, (100, "a", "b")]


def test_what_is_not_granted_is_left_out_by_name_when_tables_are_listed(login: Login) -> None:
    source = system("clickhouse").source
    assert source is not None

    def listed(user: str) -> Listed:
        tables = source.tables(login(user), "granted")
        return next(one for one in tables if one.table.name == SOURCE.name)

    assert (listed("blind").hidden, listed("blind").unreadable) == (None, None)
    assert listed("columns").unreadable == ("at", "price", "ok", "tag")
    admin = login("plain")
    admin.execute("CREATE TABLE warehouse.granted (id Int32, a String, b String) ENGINE = Log")
    try:
        (found,) = source.tables(login("some"), "granted")
        assert "GRANT SHOW COLUMNS" in str(found.hidden)
    finally:
        admin.execute("DROP TABLE warehouse.granted")
