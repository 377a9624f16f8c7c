"""What an asset downstream of a target is told to read again, whatever has become of the ranges."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import psycopg
import pytest

import tableferry
from tableferry.assets.asset_keys import asset_key
from tableferry.assets.log import ledger
from tableferry.pipelines.definitions import build
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.keys.cover import to_bound
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.tables import TableRef
from tests.chance import chance
from tests.integration.conftest import QUIET, Ferry
from tests.integration.support.crashing import Command, crash, reopen

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id bigint PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT g, 'n' || g FROM generate_series(1, 300) g",
)
BOUNDS = "{bounds: [101, 201]}"
FIRST, MIDDLE, LAST = "..0000000101", "0000000101..0000000201", "0000000201.."


@dataclass
class Model:
    """A copy of a target that is brought up to date as an incremental model is."""

    one: Ferry
    told: tuple[str, ...] = ()
    """The ranges that it was told last."""
    predicate: str = ""
    rows: dict[int, str] = field(default_factory=dict)
    fails: bool = False

    def __post_init__(self) -> None:
        self.table = self.one.session.transfer(self.one.table).hops[-1].to

    def assets(self) -> list[dg.AssetsDefinition]:
        @dg.asset(deps=[asset_key(self.table)], key=f"model_{self.one.table}")
        def model(context: dg.AssetExecutionContext) -> None:
            (moved,) = tableferry.moved_ranges(context).values()
            self.told, self.predicate = moved.ranges, moved.predicate
            if self.fails:
                raise dg.Failure("as if a server had gone", allow_retries=False)
            ranges = [KeyRange.parse(name, "integer") for name in moved.ranges]
            kept = {
                key: note
                for key, note in self.rows.items()
                if not any(key_range.contains(key) for key_range in ranges)
            }
            self.rows = kept | self.read(moved.predicate)

        return [model]

    def read(self, where: str = "1 = 1") -> dict[int, str]:
        """Rows of the target."""
        server = self.one.session.servers.endpoints[self.table.connection]
        return dict(server.query(f"SELECT id, note FROM {qualified(self.table)} WHERE {where}"))

    def make(self) -> tuple[str, ...]:
        """Bring it up to date; returns the ranges that it was told."""
        materialize(self.one, *self.assets(), fails=self.fails)
        assert self.fails or self.rows == self.read()
        return self.told

    def assert_told_of_no_row(self) -> None:
        assert self.make() == () and self.read(self.predicate) == {}


@pytest.fixture
def model(ferry: Make) -> Model:
    """Of a target with three ranges, which it has read."""
    not_null = "[{type: expect_column_values_to_not_be_null, kwargs: {column: note}}]"
    return made(
        ferry("['clickhouse://warehouse.{t}']", *TABLE, ranges=BOUNDS, expectations=not_null)
    )


def made(one: Ferry) -> Model:
    """A model of the last target that has read all of it."""
    view = one.run()
    assert view.good, view.errors
    model = Model(one)
    assert model.make() == tuple(sorted({each.range for each in view.ranges}))
    model.assert_told_of_no_row()
    return model


def run(model: Model, *statements: str, **options: Any) -> None:
    """Change the source, and move what has changed."""
    model.one.source(*statements)
    view = model.one.run(**options)
    assert view.good, view.errors


LETTERS = [
    "a",
    "A",
    "B",
    "b",
    " ",
    "ä",
    "''",
    '"',
    "%",
    "_",
    "\\",
    "{{",
    "}}",
    "}",
    "ß",
    "😀",
    "\t",
]


def _moment(numbers: random.Random) -> str:
    day = f"{numbers.randint(1990, 2040)}-{numbers.randint(1, 12):02}-{numbers.randint(1, 28):02}"
    time = f"{numbers.randint(0, 23):02}:{numbers.randint(0, 59):02}"
    return f"{day} {time}:{numbers.randint(0, 59):02}.{numbers.randint(0, 999999):06}"


KEYS: dict[str, tuple[KeyKind, Callable[[random.Random], object]]] = {
    "integer": ("integer", lambda numbers: numbers.randint(-(2**31), 2**31 - 1)),
    "bigint": ("integer", lambda numbers: numbers.choice([-1, 1]) * 2 ** numbers.randint(0, 62)),
    "numeric(38,0)": ("integer", lambda numbers: 7 * (-10) ** numbers.randint(0, 36)),
    "timestamp": ("timestamp", lambda numbers: f"'{_moment(numbers)}'"),
    "timestamptz": ("timestamp", lambda numbers: f"'{_moment(numbers)}+00'"),
    "date": ("date", lambda numbers: f"'{_moment(numbers)[:10]}'"),
    "text": ("text", lambda numbers: f"'{''.join(numbers.choices(LETTERS, k=4))}'"),
    "uuid": ("uuid", lambda numbers: f"'{numbers.getrandbits(128):032x}'"),
}
"""Kind and random constants of each type of key."""


@pytest.mark.parametrize("key", KEYS)
def test_a_predicate_selects_exactly_the_rows_of_the_ranges_that_moved(
    ferry: Make, copies: str, key: str
) -> None:
    (kind, constant), numbers = KEYS[key], chance("moved_ranges", key)

    def insert(rows: int) -> str:
        values = ", ".join(f"({constant(numbers)}, '{number}')" for number in range(rows))
        return f"INSERT INTO {{t}} VALUES {values.replace('{', '{{').replace('}', '}}')}"

    one = ferry(
        f"['postgres://{copies}.{{t}}', 'clickhouse://warehouse.{{t}}']",
        f"CREATE TABLE {{t}} (id {key}, note text)",
        insert(120),
        "INSERT INTO {t} VALUES (NULL, 'a'), (NULL, 'b')",
        ranges="{rows: 25}",
    )
    targets = [hop.to for hop in one.session.transfer(one.table).hops]
    told: dict[str, tableferry.MovedRanges] = {}

    @dg.asset(deps=[asset_key(target) for target in targets])
    def model(context: dg.AssetExecutionContext) -> None:
        told.update(tableferry.moved_ranges(context))

    changes: list[list[str]] = [
        [],
        [
            "UPDATE {t} SET note = 'changed' WHERE ctid = (SELECT max(ctid) FROM {t})",
            "DELETE FROM {t} WHERE id = (SELECT id FROM {t} WHERE note = '77')",
        ],
        [insert(2), "DELETE FROM {t} WHERE id IS NULL"],
        [],
    ]
    for statements in changes:
        one.source(*statements)
        view = one.run()
        assert view.good, view.errors
        materialize(one, model)
        moved = [KeyRange.parse(name, kind) for name in one.moved(view)]
        for target in targets:
            given = told[asset_key(target).to_user_string()]
            assert [*given.ranges] == one.moved(view)
            keys, selected = (keys_of(one, target, where) for where in ("1 = 1", given.predicate))
            bounds = [None if each is None else to_bound(each, kind) for each in keys]
            of_ranges = [each for each in bounds if any(range_.contains(each) for range_ in moved)]
            assert sorted(map(str, of_ranges)) == sorted(
                str(each if each is None else to_bound(each, kind)) for each in selected
            )


def keys_of(one: Ferry, target: TableRef, where: str) -> list[Any]:
    """The keys of rows, for PostgreSQL by a session with other settings than ours."""
    sql = f"SELECT id FROM {qualified(target)} WHERE {where}"
    if target.system_name != "postgres":
        return [key for (key,) in one.session.servers.endpoints["clickhouse"].query(sql)]
    options = "-c TimeZone=America/New_York -c DateStyle=German,DMY"
    with psycopg.connect(one.stack.postgres_url, options=options) as connection:
        connection.execute("SET DateStyle TO ISO")
        return [key for (key,) in connection.execute(sql.encode()).fetchall()]


def materialize(
    one: Ferry, *assets: dg.AssetsDefinition, fails: bool = False, **options: Any
) -> None:
    """Materialize assets beside the transfer's, in the same event log."""
    job = dg.Definitions(assets=[*assets]).resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(
        instance=one.session.instance, run_config=QUIET, raise_on_error=False, **options
    )
    assert done.success is not fails


def test_several_runs_add_up_and_a_failed_range_comes_later(model: Model) -> None:
    run(model, "UPDATE {t} SET note = 'a' WHERE id = 1")
    run(model, "UPDATE {t} SET note = 'a' WHERE id = 250", "DELETE FROM {t} WHERE id = 260")
    assert model.make() == (FIRST, LAST)
    model.one.source("UPDATE {t} SET note = CASE id WHEN 2 THEN 'b' END WHERE id IN (2, 251)")
    view = model.one.run()
    assert [each.range for each in view.ranges if each.state == "failed"] == [LAST], view.errors
    assert model.make() == (FIRST,)
    run(model, "UPDATE {t} SET note = 'c' WHERE id = 251")
    assert model.make() == (LAST,)
    model.assert_told_of_no_row()


def test_what_a_failed_run_was_told_is_told_again(model: Model) -> None:
    run(model, "UPDATE {t} SET note = 'a' WHERE id = 1")
    model.fails = True
    assert model.make() == (FIRST,)
    model.fails = False
    assert model.make() == (FIRST,)
    model.assert_told_of_no_row()


def test_rows_that_are_moved_again_unchanged_count_too(model: Model) -> None:
    model.one.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{model.one.table} UPDATE note = 'damaged' WHERE id = 5 "
        "SETTINGS mutations_sync = 2"
    )
    model.rows = model.read()
    run(model, force=True, ranges=["5"])
    assert model.make() == (FIRST,)


def test_a_move_whose_run_died_before_it_was_recorded_is_told(model: Model, tmp_path: Path) -> None:
    model.one.source("UPDATE {t} SET note = 'a' WHERE id = 150")
    crash(Command(tmp_path), model.one.table, "after_commit")
    reopen(model.one)
    assert model.read()[150] == "a"
    run(model)
    assert MIDDLE in model.make()
    model.assert_told_of_no_row()


def test_ranges_that_are_cut_anew_and_rows_beyond_the_last_are_told(ferry: Make) -> None:
    model = made(ferry("['clickhouse://warehouse.{t}']", *TABLE, ranges="{rows: 100}"))
    run(model, "INSERT INTO {t} SELECT g, 'new' FROM generate_series(301, 700) g")
    assert len(model.make()) > 1
    run(model, "DELETE FROM {t} WHERE id > 400")
    assert model.make()
    model.assert_told_of_no_row()


def test_a_swap_and_a_transfer_by_another_name_are_told(ferry: Make, copies: str) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *TABLE, ranges=BOUNDS, write="swap")
    model = made(one)
    run(model, "UPDATE {t} SET note = 'a' WHERE id = 1")
    assert model.make() == (FIRST, MIDDLE, LAST), "a swap replaces the whole table"
    file = one.folder / "t.yaml"
    file.write_text(file.read_text().replace(f"transfer: {one.table}", "transfer: renamed"))
    reopen(one)
    one.source("UPDATE {t} SET note = 'b' WHERE id = 150")
    assert tableferry.run(one.session, "renamed").good
    assert MIDDLE in model.make()
    model.assert_told_of_no_row()


def test_rows_that_move_alone_count_as_their_range(ferry: Make, copies: str) -> None:
    model = made(ferry(f"['postgres://{copies}.{{t}}']", *TABLE, ranges=BOUNDS, delta="always"))
    run(model, "DELETE FROM {t} WHERE id = 150", "UPDATE {t} SET note = 'a' WHERE id = 151")
    (record,) = ledger.moves(model.one.session.instance, asset_key(model.table), [MIDDLE]).values()
    assert (record.rows_moved, record.deleted) == (1, 1)
    assert model.make() == (MIDDLE,)


def test_ranges_of_blocks_and_of_files_have_predicates(
    ferry: Make, copies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_FOLDER", f"file://{tmp_path}")
    for name in ("a", "it''s"):
        duckdb.sql(f"COPY (SELECT 1 AS id) TO '{tmp_path}/{name}.csv'")
    target = f"['postgres://{copies}.{{t}}']"
    one = ferry(target, *TABLE, key="null", ranges="{by: ctid, count: 2}")
    for rows, source in ((300, f"postgres://public.{one.table}"), (2, "folder://./*.csv")):
        if rows == 2:
            one.source(f"DROP TABLE {copies}.{{t}}")
            one.session.instance.wipe_assets(
                [asset_key(one.session.transfer(one.table).hops[0].to)]
            )
            one.declare(target, source=source, key="null")
        view = one.run()
        assert view.good, view.errors
        table = one.session.transfer(one.table).hops[0].to
        given: list[tableferry.MovedRanges] = []

        @dg.asset(deps=[asset_key(table)])
        def follows(context: dg.AssetExecutionContext) -> None:
            given.extend(tableferry.moved_ranges(context).values())  # noqa: B023

        materialize(one, follows)
        server = one.session.servers.endpoints["postgres"]
        sql = f"SELECT count(*) FROM {qualified(table)} WHERE {given[0].predicate}"
        assert (given[0].ranges, server.query(sql)) == (
            tuple(sorted({each.range for each in view.ranges})),
            [(rows,)],
        )


def test_rows_that_leave_with_their_file_are_told_until_it_is_back(
    ferry: Make, copies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_FOLDER", f"file://{tmp_path}")

    def write(name: str, rows: int) -> None:
        duckdb.sql(f"COPY (SELECT * FROM range({rows}) t(id)) TO '{tmp_path}/{name}.csv'")

    for name in ("a", "b", "it''s"):
        write(name, 5)
    hops = f"['postgres://{copies}.{{t}}', 'postgres://{copies}.{{t}}_next']"
    one = ferry(hops, source="folder://./*.csv", key="null", on_missing="delete")
    tables = [hop.to for hop in one.session.transfer(one.table).hops]
    server = one.session.servers.endpoints["postgres"]
    given: list[list[str]] = []
    failing = False

    def model_of(table: TableRef) -> str:
        return qualified(replace(table, name=f"{table.name}_model"))

    @dg.asset(deps=[asset_key(table) for table in tables])
    def follows(context: dg.AssetExecutionContext) -> None:
        moved = tableferry.moved_ranges(context)
        first, second = (moved[asset_key(table).to_user_string()] for table in tables)
        assert first.ranges == second.ranges
        given.append([*first.ranges])
        if failing:
            raise dg.Failure("as if a server had gone", allow_retries=False)
        # as the guide's model does it
        for table, told in zip(tables, (first, second), strict=True):
            server.execute(f"DELETE FROM {model_of(table)} WHERE {told.predicate}")
            server.execute(
                f"INSERT INTO {model_of(table)} "
                f"SELECT * FROM {qualified(table)} WHERE {told.predicate}"
            )

    def told(*, fails: bool = False) -> list[str]:
        nonlocal failing
        failing = fails
        materialize(one, follows, fails=fails)
        for table in () if fails else tables:
            ours, theirs = (
                server.query(f"SELECT * FROM {name} ORDER BY 1, 2")
                for name in (f"{model_of(table)}", qualified(table))
            )
            assert ours == theirs
        return given[-1]

    def run() -> None:
        view = one.run()
        assert view.good, view.errors

    run()
    for table in tables:
        server.execute(f"CREATE TABLE {model_of(table)} (LIKE {qualified(table)})")
    assert told() == ["a.csv", "b.csv", "it's.csv"] and told() == []
    (tmp_path / "it's.csv").unlink()
    run()
    assert told(fails=True) == ["it's.csv"], "whoever fails is told again"
    assert told() == ["it's.csv"] and told() == []
    write("it''s", 5)
    run()
    assert told() == ["it's.csv"] and told() == []
    (tmp_path / "b.csv").unlink()
    write("a", 6)
    run()
    assert told() == ["a.csv", "b.csv"] and told() == []


def test_models_that_read_a_target_through_others_lose_no_range(model: Model) -> None:
    told: dict[str, tuple[str, ...]] = {}
    staging, mart = (dg.AssetKey([f"{model.one.table}_{name}"]) for name in ("staging", "mart"))
    failing: set[dg.AssetKey] = set()

    @dg.multi_asset(
        specs=[
            dg.AssetSpec(staging, deps=[asset_key(model.table)]),
            dg.AssetSpec(mart, deps=[staging]),
        ],
        can_subset=True,
    )
    def models(context: dg.AssetExecutionContext) -> Any:
        told.clear()
        told.update({name: each.ranges for name, each in tableferry.moved_ranges(context).items()})
        for key in sorted(context.selected_asset_keys, reverse=True):
            if key in failing:
                raise dg.Failure(str(key), allow_retries=False)
            yield dg.MaterializeResult(asset_key=key)

    def make(*only: dg.AssetKey) -> tuple[str, ...]:
        selected = {"asset_selection": only} if only else {}
        materialize(model.one, models, fails=bool(failing), **selected)
        return told[asset_key(model.table).to_user_string()]

    assert make() == (FIRST, MIDDLE, LAST)
    run(model, "UPDATE {t} SET note = 'a' WHERE id = 1")
    failing.add(mart)
    assert make() == (FIRST,), "staging is made, and the mart is not"
    failing.clear()
    run(model, "UPDATE {t} SET note = 'a' WHERE id = 250")
    assert make(mart) == (FIRST,), "staging has not read the other range"
    assert make() == (LAST,)
    assert make() == ()


def test_partitioned_assets_are_refused(model: Model) -> None:
    @dg.asset(deps=[asset_key(model.table)], partitions_def=dg.StaticPartitionsDefinition(["a"]))
    def by_day(context: dg.AssetExecutionContext) -> None:
        with pytest.raises(tableferry.InputError, match="without partitions"):
            tableferry.moved_ranges(context)

    materialize(model.one, by_day, partition_key="a")


def test_a_model_is_requested_once_ranges_are_committed_and_their_checks_are_green(
    model: Model,
) -> None:
    @dg.asset(deps=[asset_key(model.table)], automation_condition=tableferry.when_proven())
    def follows() -> None: ...

    definitions = dg.Definitions.merge(build(), dg.Definitions(assets=[follows]))
    instance, cursor = model.one.session.instance, None

    def requested() -> int:
        nonlocal cursor
        seen = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)
        cursor = seen.cursor
        return seen.total_requested

    requested()
    materialize(model.one, follows)
    requested()
    assert requested() == 0
    run(model, "UPDATE {t} SET note = 'a' WHERE id = 1")
    assert requested() == 1
    materialize(model.one, follows)
    model.one.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE {qualified(model.table)} UPDATE note = 'damaged' WHERE id = 150 "
        "SETTINGS mutations_sync = 2"
    )
    assert not tableferry.check(model.one.session, model.one.table).good
    run(model, "UPDATE {t} SET note = 'b' WHERE id = 1", ranges=["1"])
    assert requested() == 0, "another range is damaged"
    run(model)
    assert requested() == 1
