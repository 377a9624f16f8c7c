"""A run that is refused has changed nothing: it asks what may refuse before it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from tableferry.assets.running import execute
from tableferry.pipelines.cli import main
from tableferry.resources.contract.markers import markers_of
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError
from tests.integration.conftest import Ferry
from tests.integration.support import looking

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, old text, gone int, small smallint, held text)",
    "INSERT INTO {t} SELECT i, 'o' || i, i, i, 'h' || i FROM generate_series(1, 30) i",
)
CHANGES = {
    "renames": (
        {"columns": "{fresh: {was: old}}"},
        ("ALTER TABLE {t} RENAME old TO fresh",),
    ),
    "drops": ({"dropped_columns": "drop"}, ("ALTER TABLE {t} DROP gone",)),
    "empties": ({"dropped_columns": "null"}, ("ALTER TABLE {t} DROP gone",)),
    "widens": ({"on_schema_drift": "evolve"}, ("ALTER TABLE {t} ALTER small TYPE int",)),
    "adds": ({"on_schema_drift": "add_columns"}, ("ALTER TABLE {t} ADD more int",)),
}
"""What a run does to a target's columns, as it is declared, and what changes at the source."""

TYPES = {"sqlserver": "nvarchar(max)", "clickhouse": "Nullable(String)", "postgres": "text"}
CHAINS = {
    "sqlserver": ("sqlserver",),
    "clickhouse": ("clickhouse",),
    "postgres": ("postgres",),
    "sqlserver, clickhouse": ("sqlserver", "clickhouse"),
    "postgres, sqlserver": ("postgres", "sqlserver"),
    "clickhouse, postgres": ("clickhouse", "postgres"),
}


class Chain:
    """A transfer that has run once, whose last target is then spoilt for the next run."""

    def __init__(self, ferry: Make, copies: str, systems: tuple[str, ...], **settings: str) -> None:
        schemas = {"sqlserver": "dbo", "clickhouse": "warehouse", "postgres": copies}
        self.systems = systems
        self.hops = ", ".join(f"'{system}://{schemas[system]}.{{t}}'" for system in systems)
        self.ranges = settings.pop("ranges", "{bounds: [1, 20]}")
        self.one = ferry(f"[{self.hops}]", *TABLE, ranges=self.ranges, **settings)
        view = self.one.run()
        assert view.good, view.errors
        self.last = f"{schemas[systems[-1]]}.{self.one.table}"

    def declare(self, **settings: str) -> None:
        self.one.declare(f"[{self.hops}]", ranges=self.ranges, **settings)

    def spoil(self, *statements: str) -> None:
        for statement in statements:
            looking.run(self.one.stack, self.systems[-1], statement.format(t=self.last))

    def state(self) -> list[Any]:
        """The identity, columns, rows, markers and commits of all targets, and the tables beside
        them."""
        found: list[Any] = []
        for hop in self.one.session.transfer(self.one.table).hops:
            server = self.one.session.servers.endpoint(hop.to)
            names = server.query(
                "SELECT table_name FROM information_schema.tables "
                f"WHERE table_schema = '{hop.to.schema}' AND table_name LIKE '{self.one.table}%'"
            )
            identity = str(self.one.session.servers.target(hop.to).identity(hop.to))
            marked = map(str, server.query(f"SELECT * FROM {qualified(markers_of(hop.to))}"))
            found += [
                identity,
                [(each.name, each.type, each.nullable) for each in server.columns(hop.to)],
                sorted(server.query(f"SELECT * FROM {qualified(hop.to)}")),
                sorted(marker for marker in marked if identity in marker),
                sorted(names),
                self.one.materializations(hop.to.system.name, hop.to.schema),
            ]
        return found

    def refused(self, *words: str) -> None:
        """Run, which is refused in the words that plan and dry run have, and changes nothing."""
        before = self.state()
        notes = "".join(self.one.plan().notes)
        dry = CliRunner().invoke(main, ["run", self.one.table, "--dry-run"])
        assert dry.exit_code != 0 and not dry.stdout, dry.output
        for options in ({}, {"force": True}):
            view = self.one.run(**options)
            assert not view.good
            for said in ("".join(view.errors), notes, dry.stderr):
                assert all(word in said for word in words), said
            assert self.state() == before, options


@pytest.mark.parametrize(
    ("chain", "change"),
    [
        (chain, change)
        for chain in CHAINS
        for change in CHANGES
        if "," in chain or change == "drops"
    ],
)
def test_a_column_that_cannot_hold_its_values(
    ferry: Make, copies: str, chain: str, change: str
) -> None:
    settings, statements = CHANGES[change]
    moved = Chain(ferry, copies, CHAINS[chain])
    moved.one.source(*statements, "UPDATE {t} SET small = 5 WHERE id = 3")
    column = "COLUMN " if moved.systems[-1] != "sqlserver" else ""
    moved.spoil("ALTER TABLE {t} DROP COLUMN held", f"ALTER TABLE {{t}} ADD {column}held int")
    moved.declare(**settings)
    moved.refused("'held'", moved.one.table)
    moved.spoil(
        "ALTER TABLE {t} DROP COLUMN held",
        f"ALTER TABLE {{t}} ADD {column}held {TYPES[moved.systems[-1]]}",
    )
    view = moved.one.run()
    assert view.good, view.errors


@pytest.mark.parametrize(
    ("chain", "change"),
    [("postgres", "widens"), ("clickhouse, postgres", "drops"), ("postgres, sqlserver", "adds")],
)
def test_a_column_of_others_that_must_have_values(
    ferry: Make, copies: str, chain: str, change: str
) -> None:
    settings, statements = CHANGES[change]
    moved = Chain(ferry, copies, CHAINS[chain])
    moved.one.source(*statements, "UPDATE {t} SET small = 5 WHERE id = 3")
    moved.spoil(
        "ALTER TABLE {t} ADD theirs int",
        "UPDATE {t} SET theirs = 1",
        "ALTER TABLE {t} ALTER COLUMN theirs int NOT NULL"
        if moved.systems[-1] == "sqlserver"
        else "ALTER TABLE {t} ALTER theirs SET NOT NULL",
    )
    moved.declare(**settings)
    moved.refused("'theirs'", moved.one.table)


@pytest.mark.parametrize(
    ("chain", "change"),
    [("postgres", "renames"), ("sqlserver", "empties"), ("clickhouse", "drops")],
)
def test_a_new_column_that_nobody_has_allowed(
    ferry: Make, copies: str, chain: str, change: str
) -> None:
    settings, statements = CHANGES[change]
    moved = Chain(ferry, copies, CHAINS[chain])
    moved.one.source(*statements, "ALTER TABLE {t} ADD more date")
    moved.declare(**settings)
    moved.refused("'more'", "on_schema_drift")


def test_a_renamed_column_that_cannot_be_widened(ferry: Make, copies: str) -> None:
    moved = Chain(ferry, copies, ("postgres",))
    moved.one.source(
        "ALTER TABLE {t} RENAME small TO wide",
        "ALTER TABLE {t} ALTER wide TYPE int",
        "UPDATE {t} SET wide = 70000 WHERE id = 3",
    )
    moved.spoil(f"CREATE VIEW {copies}.v_{moved.one.table} AS SELECT small FROM {{t}}")
    moved.declare(on_schema_drift="evolve", columns="{wide: {was: small}}")
    moved.refused("needs its type")
    moved.spoil(f"DROP VIEW {copies}.v_{moved.one.table}")
    view = moved.one.run()
    assert view.good, view.errors


@pytest.mark.parametrize("system", ["postgres", "sqlserver", "clickhouse"])
def test_ranges_that_would_be_replaced(ferry: Make, copies: str, system: str) -> None:
    moved = Chain(ferry, copies, (system,), ranges="{rows: 10}")
    moved.one.source(
        "INSERT INTO {t} SELECT i, 'o' || i, i, i, 'h' || i FROM generate_series(31, 90) i",
        "ALTER TABLE {t} ADD more date",
    )
    before = moved.state()
    assert not moved.one.run().good
    assert not moved.one.launch(raise_on_error=False).success
    assert moved.state() == before
    moved.declare(on_schema_drift="add_columns")
    view = moved.one.run()
    assert view.good and len({each.range for each in view.ranges}) > 4, view.errors


def test_a_later_hop_whose_source_is_not_current(ferry: Make, copies: str) -> None:
    settings, statements = CHANGES["drops"]
    moved = Chain(ferry, copies, ("postgres", "clickhouse"))
    moved.one.source(*statements, "UPDATE {t} SET small = 5 WHERE id = 3")
    moved.declare(**settings)
    before = moved.state()
    view = moved.one.run(hop=2)
    assert not view.good and "run hop 1 first" in "".join(view.errors), view.errors
    assert moved.state() == before
    both = moved.one.run()
    assert both.good, both.errors


def test_a_run_that_is_refused_after_a_statement_fails_its_test(
    ferry: Make, copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All runs of the tests are watched; see `support.untouched`."""
    one = ferry(f"[postgres://{copies}.{{t}}]", *TABLE)

    def refuse(*_: object) -> None:
        source = one.session.servers.endpoints["postgres"]
        source.execute(f"COMMENT ON TABLE public.{one.table} IS 'x'")
        raise InputError("too late")

    monkeypatch.setattr(execute, "prepare_targets", refuse)
    assert "refused after COMMENT ON TABLE" in "".join(one.run().errors)
