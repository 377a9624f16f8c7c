"""Another definition of the row digest is no change of data, and the source is digested once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import dagster as dg
import pytest

from tableferry.assets.log.ledger import evaluations
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.digest import definition
from tableferry.resources.digest import fingerprinting as fingerprints
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.sqlserver.server import SqlServerServer
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.usefixtures("digests_by_servers")

DIRECT = "['clickhouse://warehouse.{t}']"
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 300) g",
)
LAST = "0000000201..0000000301"
Make = Callable[..., Ferry]


def as_an_earlier_release(one: Ferry, version: int | None) -> None:
    """Run once with another definition; None is that of releases that stored none."""
    with pytest.MonkeyPatch.context() as patch:
        if version is None:
            patch.setattr(fingerprints, "definition", lambda algorithm: "")
        else:
            patch.setattr(definition, "VERSION", version)
        view = one.run()
        assert view.good, view.errors


@pytest.mark.parametrize("version", [None, 1], ids=["without a version", "version 1"])
@pytest.mark.parametrize("level", ["count", "checksum"])
def test_unchanged_ranges_are_compared_and_not_moved(
    ferry: Make, version: int | None, level: str
) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 100}", reconcile=level)
    as_an_earlier_release(one, version)
    before = one.materializations("clickhouse", "warehouse")
    assert {view.reason for view in one.plan().ranges} == {"digest_changed"}
    one.source("UPDATE {t} SET name = 'other' WHERE id = 250")
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == [LAST]
    after = one.materializations("clickhouse", "warehouse")
    assert {name for name in after if after[name] != before[name]} == {LAST}
    assert {view.reason for view in one.plan().ranges} == {"unchanged"}


def test_both_hops_are_compared(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 100}")
    as_an_earlier_release(one, None)
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == []
    assert {view.reason for view in one.plan().ranges} == {"unchanged"}


def test_what_on_overflow_changes_is_compared(ferry: Make) -> None:
    clamped = "{amount: {type: 'Decimal(9, 2)', on_overflow: clamp}}"
    one = ferry(DIRECT, *TABLE, columns=clamped, ranges="{rows: 1000}")
    as_an_earlier_release(one, None)
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that digest rows, by the system that was asked."""
    found: list[str] = []

    def watch(resource: Any) -> None:
        query = resource.query

        def watched(self: Any, sql: str, **options: Any) -> Any:
            if "md5" in sql.lower() and "ferry__g" in sql:
                found.append(self.system_name)
            return query(self, sql, **options)

        monkeypatch.setattr(resource, "query", watched)

    watch(PostgresServer)
    watch(ClickHouseServer)
    return found


def test_the_source_is_digested_once_per_run(ferry: Make, asked: list[str]) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 100}")
    assert one.run().good
    assert asked.count("postgres") == 1, "planning's fingerprints are the checksum's source side"
    ranges = asked.count("clickhouse")
    assert ranges == 4
    asked.clear()
    assert one.run().good
    assert asked == [], "a run with nothing to do looks at row versions only"


def test_a_later_hop_takes_what_the_one_before_found(ferry: Make) -> None:
    asked: list[str] = []
    one = ferry(CHAIN, *TABLE, ranges="{rows: 1000}")
    with pytest.MonkeyPatch.context() as patch:
        query = SqlServerServer.query

        def watched(self: Any, sql: str, **options: Any) -> Any:
            if "HASHBYTES" in sql and "ferry__g" in sql:
                asked.append(sql)
            return query(self, sql, **options)

        patch.setattr(SqlServerServer, "query", watched)
        view = one.run()
    assert view.good, view.errors
    assert len(asked) == len({view.range for view in view.ranges})


def test_declared_figures_are_shown_of_both_sides(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 1000}", figures="[amount]")
    assert one.run().good
    asset = dg.AssetKey(["clickhouse", "warehouse", one.table])
    found = evaluations(one.session.instance, asset, ["checksum"])
    shown = []
    for checks in found.values():
        evaluation = checks["checksum"].evaluation
        assert evaluation is not None
        sums = evaluation.metadata["sums"]
        assert isinstance(sums, dg.JsonMetadataValue), "both sides agree"
        shown.append(cast("dict[str, str]", sums.data))
    full = next(one for one in shown if one["amount sum"] != "0")
    assert full["amount sum"] == "67725.00"
    assert full["amount min"] == "1.50"
    assert full["amount max"] == "450.00"


@pytest.mark.parametrize(
    ("column", "message"),
    [("name", "'name' is text; only whole numbers"), ("nope", "has no column 'nope'")],
)
def test_figures_of_columns_that_have_none_are_refused(
    ferry: Make, column: str, message: str
) -> None:
    one = ferry(DIRECT, *TABLE, figures=f"[{column}]")
    with pytest.raises(InputError, match=message):
        one.plan()
