"""Keys that are decimals without digits behind the point, as they come out of Oracle."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from tableferry.assets.planning.ranges.boundaries import key_statistics
from tableferry.pipelines.cli import main
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration

CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
FAR = 10**37
"""Far beyond what 64 bits hold, or a float tells apart."""
Make = Callable[..., Ferry]


@pytest.mark.parametrize("digits", [10, 38])
def test_they_are_cut_compared_and_grow_on_every_system(
    ferry: Make, copies: str, digits: int
) -> None:
    far = FAR if digits == 38 else 9 * 10**9
    one = ferry(
        CHAIN,
        f"CREATE TABLE {{t}} (id numeric({digits},0) PRIMARY KEY, note text)",
        f"INSERT INTO {{t}} SELECT s * ({far}::numeric + g), 'n' || g"
        " FROM generate_series(1, 30) g, (VALUES (1), (-1)) v(s)",
        ranges="{rows: 20}",
        reconcile="full_hash",
    )
    view = one.run()
    assert view.good, view.errors
    ranges = [KeyRange.parse(one.range, "integer") for one in view.ranges]
    cuts = [one.lower for one in ranges if isinstance(one.lower, int)]
    assert max(cuts) > far and min(cuts) < -far
    one.source(f"INSERT INTO {{t}} VALUES ({far + 500}, 'later')")
    one.source(f"UPDATE {{t}} SET note = 'changed' WHERE id = {far + 3}")
    grown = one.run()
    assert grown.good and len(one.moved(grown)) == 3, grown.errors
    only = one.run(ranges=[str(far + 3)], force=True)
    assert only.good and len(one.moved(only)) == 1, only.errors
    for level in ("sample_hash", "checksum"):
        checked = CliRunner().invoke(main, ["check", one.table, "--level", level])
        assert checked.exit_code == 0, checked.output
    servers = one.session.servers
    servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE note = 'damaged' WHERE note = 'n5' "
        "SETTINGS mutations_sync = 2"
    )
    differing = CliRunner().invoke(main, ["diff", one.table, "--range", str(far + 5)])
    assert differing.exit_code == 1 and "damaged" in differing.stdout, differing.output
    assert str(far + 5) in differing.stdout
    if digits < 38:  # the way back is of any column that is a decimal
        return
    repaired = one.run(force=True)
    assert repaired.good, repaired.errors
    for system, schema in (("sqlserver", "dbo"), ("clickhouse", "warehouse")):
        table = TableRef(system, schema, one.table)
        endpoint = servers.endpoints[system]
        key = next(column for column in endpoint.columns(table) if column.name == "id")
        above = key_statistics(endpoint, table, key, above=far + 30)
        assert (above.rows, above.minimum, above.maximum) == (2, far + 30, far + 500)
        source = f"{system}://{schema}.{{t}}".format(t=one.table)
        one.declare(
            f"['postgres://{copies}.{{t}}_{system}']",
            source=source,
            ranges="{rows: 20}",
            fingerprint="none",
        )
        back = one.run()
        assert back.good and len(back.ranges) > 3, back.errors
        same = f"(SELECT id, note FROM {{t}} EXCEPT SELECT id, note FROM {copies}.{{t}}_{system})"
        assert one.rows(f"SELECT count(*) FROM {same} a") == [(0,)]


def test_of_a_numeric_nan_is_no_bound_and_without_digits_no_key(ferry: Make, copies: str) -> None:
    one = ferry(
        f"['postgres://{copies}.{{t}}']",
        "CREATE TABLE {t} (id numeric(12,0) UNIQUE NOT NULL, bare numeric, cents numeric(9,2))",
        "INSERT INTO {t} SELECT g, g, g FROM generate_series(1, 30) g",
        "INSERT INTO {t} VALUES ('NaN', 0, 0)",
        ranges="{rows: 10}",
    )
    view = one.run()
    assert view.good, view.errors
    assert one.rows(f"SELECT count(*) FROM {copies}.{{t}}") == [(31,)]
    for key, why in (("bare", "declares no digits"), ("cents", "may hold fractions")):
        one.declare(f"['postgres://{copies}.{{t}}']", key=key)
        refused = CliRunner().invoke(main, ["validate", one.table])
        assert refused.exit_code == 2 and why in refused.output, refused.output
        assert "numeric(38,0)" in refused.output
