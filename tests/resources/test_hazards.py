"""What a catalog's rows mean for rows that are published, by write mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tableferry.resources.clickhouse import hazards as clickhouse
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Effect, Hazard, require_publishable
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.postgres import hazards as postgres
from tableferry.resources.postgres.hazards import DELETE, INSERT, UPDATE
from tableferry.resources.sqlserver import hazards as sqlserver
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

TABLE = TableRef("sqlserver", "dbo", "t")
KEY = Column("id", "bigint", nullable=False)
PLAN = plan_copy(
    TableRef("postgres", "public", "t"), [replace(KEY, primary_key=1)], TABLE, key="id"
)


class Catalog:
    """Answers the one question with rows; or refuses what asks for a view that it has not.

    Each row begins with what the query calls the table by.
    """

    ahead = None

    def __init__(self, table: object, *rows: tuple[Any, ...], lacks: str = "") -> None:
        self.table, self.rows, self.lacks, self.asked = table, rows, lacks, 0

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self.asked += 1
        if self.lacks and self.lacks in sql:
            raise StatementFailed("sqlserver", f"relation {self.lacks} does not exist", code=208)
        # where several questions are asked apart, those that this one is about
        asked = [row for row in self.rows if "sys." not in sql or f"'{row[0]}'" in sql]
        return [(self.table, *row) for row in asked]


TRIGGER = ("trigger", "tr", "", "", 0, 0)
CASCADES = ("foreign key", "fk", "dbo", "child", 1, 0)
REFERS = ("foreign key", "fk", "dbo", "child", 0, 2)
OF_ITSELF = ("foreign key", "fk", "dbo", "t", 0, 0)
IN_MEMORY = ("in memory", "t", "", "", 0, 0)
VERSIONED = ("versions", "t", "", "", 0, 0)


@pytest.mark.parametrize(
    ("row", "mode", "effect"),
    [
        (TRIGGER, "replace", "changes"),
        (TRIGGER, "append", "changes"),
        (TRIGGER, "swap", "noted"),
        (CASCADES, "replace", "destroys"),
        (CASCADES, "append", None),
        (CASCADES, "upsert", None),
        (CASCADES, "swap", "refused"),
        (REFERS, "replace", None),
        (REFERS, "upsert", "refused"),
        (OF_ITSELF, "swap", None),
        (VERSIONED, "replace", "noted"),
        (VERSIONED, "swap", "refused"),
        (IN_MEMORY, "append", "refused"),
    ],
)
def test_what_sqlserver_has(row: tuple[Any, ...], mode: str, effect: Effect | None) -> None:
    found = of_sqlserver(Catalog(0, row), WriteMode(mode))
    assert [one.effect for one in found] == ([effect] if effect else [])
    if effect == "refused":
        with pytest.raises(InputError, match=rf"{TABLE}: .*{row[1]}"):
            require_publishable(TABLE, found)
    else:
        require_publishable(TABLE, found)


def of_sqlserver(catalog: Catalog, mode: WriteMode = WriteMode.REPLACE) -> list[Hazard]:
    return sqlserver.hazards(cast(Endpoint, catalog), PLAN, TargetOptions(mode=mode))


@pytest.mark.parametrize(
    ("row", "mode", "effect"),
    [
        (("trigger", "tr", "t", "AFTER INSERT", INSERT, False, None, 0), "append", "changes"),
        (("trigger", "tr", "t", "AFTER DELETE", DELETE, False, None, 0), "append", None),
        (("trigger", "tr", "t", "AFTER DELETE", DELETE, False, None, 0), "swap", "noted"),
        (("rule", "r", "t", "DO INSTEAD", INSERT, True, None, 0), "replace", "refused"),
        (("rule", "r", "t", "DO ALSO", INSERT, False, None, 0), "replace", "changes"),
        (("foreign key", "f", "u", "CASCADE", DELETE, True, ["id"], 0), "replace", "destroys"),
        (("foreign key", "f", "u", "RESTRICT", DELETE, True, ["id"], 0), "replace", None),
        (("foreign key", "f", "u", "CASCADE", DELETE, True, ["id"], 0), "upsert", None),
        (("foreign key", "f", "u", "CASCADE", DELETE, True, ["id"], 0), "swap", "refused"),
        (("foreign key", "f", "t", "CASCADE", DELETE, False, ["id"], 0), "swap", None),
        (("foreign key", "f", "u", "SET NULL", UPDATE, True, ["id"], 0), "upsert", None),
        (("foreign key", "f", "u", "SET NULL", UPDATE, True, ["no"], 0), "upsert", "refused"),
        (("foreign key", "f", "u", "CASCADE", UPDATE, True, ["no"], 0), "upsert", None),
        (("table", "", "child", "", 0, False, None, 1), "replace", "destroys"),
        (("table", "", "child", "", 0, False, None, 1), "append", None),
        (("view", "", "t", "", 0, False, None, 0), "append", "changes"),
        (("row security", "", "t", "", 0, False, None, 0), "replace", "noted"),
        (("reading view", "", "v", "", 0, False, None, 0), "replace", None),
        (("reading view", "", "v", "", 0, False, None, 0), "swap", "refused"),
    ],
)
def test_what_postgres_has(row: tuple[Any, ...], mode: str, effect: Effect | None) -> None:
    options = TargetOptions(mode=WriteMode(mode))
    catalog = cast(Endpoint, Catalog("t", row, row))
    effects = [hazard.effect for hazard in postgres.hazards(catalog, PLAN, options)]
    once = row[0] == "trigger" and mode != "swap"  # partitions have the triggers of their table
    assert effects == ([effect] * (1 if once else 2) if effect else [])


def test_a_view_that_a_server_lacks_counts_as_if_there_were_something() -> None:
    catalog = Catalog(0, TRIGGER, CASCADES, lacks="sys.foreign_keys")
    assert [(one.kind, one.effect) for one in of_sqlserver(catalog)] == [
        ("foreign keys", "changes"),
        ("trigger", "changes"),
    ]
    assert catalog.asked == 6
    everything = Catalog(0, TRIGGER, CASCADES)
    assert len(of_sqlserver(everything)) == 2 and everything.asked == 1


@pytest.mark.parametrize(
    ("engine", "definition", "sorting_key", "kinds"),
    [
        ("MergeTree", "ORDER BY id", "id", []),
        ("ReplacingMergeTree", "", "day, id", []),
        ("ReplicatedReplacingMergeTree", "", "day", ["replicas", "engine"]),
        ("ReplacingMergeTree", "ENGINE = ReplacingMergeTree(v)", "id", []),
        ("ReplacingMergeTree", "ENGINE = ReplacingMergeTree(v, gone)", "id", ["engine"]),
        (
            "ReplicatedReplacingMergeTree",
            "ENGINE = ReplicatedReplacingMergeTree('/t/{uuid}', '{replica}', v)",
            "id",
            ["replicas"],
        ),
        ("CollapsingMergeTree", "", "`id`", []),
        ("SummingMergeTree", "", "id", ["engine"]),
        ("MergeTree", "ORDER BY id TTL day + toIntervalDay(1) SETTINGS x = 1", "id", ["TTL"]),
        ("MergeTree", "TTL day + toIntervalDay(1) TO VOLUME 'slow' SETTINGS x = 1", "id", []),
        ("MergeTree", "TTL day TO DISK 'd', day + toIntervalDay(9) DELETE", "id", ["TTL"]),
        ("MergeTree", "(`note` String TTL day + toIntervalDay(1)) ORDER BY id", "id", ["TTL"]),
        ("MergeTree", "ORDER BY id COMMENT 'has no TTL'", "id", []),
    ],
)
def test_what_clickhouse_has(
    engine: str, definition: str, sorting_key: str, kinds: list[str]
) -> None:
    catalog = Catalog("t", (engine, definition, sorting_key, []))
    at = replace(PLAN, target=TableRef("clickhouse", "warehouse", "t"))
    found = clickhouse.hazards(cast(Endpoint, catalog), at, TargetOptions())
    assert [one.kind for one in found] == kinds
