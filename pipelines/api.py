"""The Python API for transfers and servers that code declares; see docs/python-api.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import dagster as dg
import pyarrow as pa

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder
from tableferry.assets.planning.servers import Servers
from tableferry.assets.running.source_slots import sharing
from tableferry.checks.comparing.pairing import ComparisonScope
from tableferry.checks.comparing.tables import TableComparison
from tableferry.checks.levels import Level, require_level
from tableferry.checks.recheck import Recheck
from tableferry.checks.reconcile import reconcile
from tableferry.checks.verdict import Verdict
from tableferry.pipelines import event_log
from tableferry.pipelines.command.one import comparison, finding, runner
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.range_views import TransferView
from tableferry.pipelines.definitions import build
from tableferry.pipelines.reporting import collect
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import BATCH_ROWS, Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.digest.tolerance import Tolerance
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef


class TransferSession(Session):
    """Transfers, their servers and an event log, with what the commands do as methods.

    `transfers` has the declarations by name, `instance` Dagster's instance.
    """

    plan = runner.plan
    run = runner.run
    status = runner.status
    check = runner.check
    diff = runner.differences
    report = collect.report

    def repair(
        self, name: str, *, ranges: Sequence[str] = (), hop: int | None = None
    ) -> TransferView:
        """Fix the rows of committed ranges that differ from their source.

        Args:
            name: the transfer.
            ranges: only these, by partition key.
            hop: only this hop (1-based).

        Raises:
            InputError: the transfer, hop or a range does not exist, or a target cannot be repaired.
        """
        return runner.run(self, name, ranges=ranges, hop=hop, repair=True)

    def read(
        self,
        name: str,
        range: str,
        *,
        side: Literal["source", "target"] = "source",
        hop: int | None = None,
    ) -> pa.Table:
        """Read a range into an Arrow table; `to_pandas()` makes a data frame of it.

        The source's rows have the types and names of the target, as they are loaded; those of the
        target are read as a transfer from it would read them. All of the range is held in memory.

        Args:
            name: the transfer.
            range: the range, by partition key, or by a key in it.
            side: whose rows.
            hop: of this hop (1-based); by default the first one's source, the last one's target.

        Raises:
            InputError: the transfer, hop or range does not exist.
            TypeRefused: no Arrow type holds the values of a column of the target.
            ValueRefused: the target cannot hold a value of the source.
        """
        if side not in ("source", "target"):
            raise InputError(f"side is 'source' or 'target', not {side!r}")
        servers, resolved, key_range = finding.resolve_range(self, name, range)
        of_source = side == "source"
        selected = finding.select_hops(name, resolved.hops, hop)[0 if of_source else -1]
        plan = selected.plan
        if not of_source:
            plan = _from_target(selected.found_plan, servers.endpoint(plan.target))
        server, sql = servers.endpoint(plan.source), plan.select(key_range, "arrow")
        rows = (
            source_of(plan.source.system).read_arrow(
                server, plan, key_range, sql, batch_rows=BATCH_ROWS
            )
            if of_source
            else server.read_arrow(sql, batch_rows=BATCH_ROWS)
        )
        with rows as reader:
            return pa.Table.from_batches(
                [conform(batch, plan, {}) for batch in reader], schema(plan)
            )

    def compare(
        self,
        first: str,
        second: str,
        *,
        key: Sequence[str] = (),
        columns: Sequence[str] = (),
        exclude: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
        tolerances: Mapping[str, Mapping[str, Any]] | None = None,
        where: str | tuple[str | None, str | None] | None = None,
        level: Level = "checksum",
        ranges: int | None = None,
        recheck: str | None = None,
        final: bool = False,
    ) -> TableComparison:
        """Compare any two tables, views, files or queries, as `ferry compare` does.

        Nothing is recorded, and no transfer is needed.

        Args:
            first: a table (`postgres://sales.orders`), or a query behind the name of its connection
                (`postgres: SELECT ...`).
            second: what it is compared with.
            key: what identifies a row; by default the primary key of either.
            columns: only these columns of the first; by default all that both have.
            exclude: not these.
            renamed: columns of the second by those of the first.
            tolerances: by column, e.g. `{"price": {"round": 2}}`.
            where: a filter of the rows of both, or one for each, in its server's SQL.
            level: how strict.
            ranges: into how many ranges of the key the tables are cut.
            recheck: `NxS`, compare rows that differ N more times, S seconds apart.
            final: in ClickHouse, read the newest version of each row, as FINAL shows it.

        Raises:
            InputError: they cannot be compared so.
            TableferryError: a server cannot be asked. Differences are never an exception.
        """
        require_level(level)
        scope = ComparisonScope(
            mapped=renamed or {},
            columns=columns,
            exclude=exclude,
            key=key,
            tolerances={
                column: Tolerance.read(declared) for column, declared in (tolerances or {}).items()
            },
            where=where if isinstance(where, tuple) else (where, where),
        )
        tables = comparison.compared_table(first), comparison.compared_table(second)
        servers = comparison.reading_final(self.servers, *tables) if final else self.servers
        looks = Recheck.parse(recheck) if recheck else None
        pairing = comparison.paired(servers, *tables, scope)
        return comparison.compare_pair(servers, pairing, level, ranges=ranges, recheck=looks)


def _from_target(plan: CopyPlan, server: Endpoint) -> CopyPlan:
    """Plan to read the columns that a hop writes from its target, as if for a Parquet file."""
    written = {column.target.name for column in plan.columns}
    columns = [column for column in server.columns(plan.target) if column.name in written]
    in_memory = TableRef("files", ".", "memory.parquet")
    reading = plan_copy(plan.target, columns, in_memory, key=plan.key.target.name)
    return replace(reading, where=plan.target_where)


def definitions(transfers: Iterable[Transfer], servers: Mapping[str, Endpoint]) -> dg.Definitions:
    """Build a code location: assets, checks, schedules, sensors and resources.

    Args:
        transfers: the declarations.
        servers: a resource per connection name of the transfers' tables, e.g.
            `{"postgres": PostgresResource(...)}`. Their fields may be Dagster's `EnvVar`.

    Raises:
        InputError: two transfers have the same name or target.
    """
    return build(TransferFolder.of(transfers), servers=servers)


def compare(
    session: Session, name: str, range_name: str, level: Level = "checksum"
) -> dict[str, Verdict]:
    """Compare one range with its source in each target; nothing is recorded.

    Args:
        session: from `session` below.
        name: the transfer.
        range_name: the range, by partition key.
        level: how strict.

    Raises:
        InputError: the transfer, range or level does not exist.
    """
    require_level(level)
    servers, plan, key_range = finding.resolve_range(session, name, range_name)
    return {
        str(hop.plan.target): reconcile(servers.comparison(hop.found_plan, [key_range]), level)
        for hop in plan.hops
    }


def session(
    transfers: Iterable[Transfer],
    servers: Mapping[str, Endpoint],
    instance: dg.DagsterInstance | None = None,
) -> TransferSession:
    """Open a session, whose methods do what the commands do.

    Args:
        transfers: the declarations.
        servers: as for `definitions`.
        instance: the Dagster instance whose event log to use; by default that of the commands.

    Raises:
        InputError: two transfers have the same name or target.
    """
    opened = instance or event_log.open_to_record()
    declared = TransferFolder.of(transfers)
    return TransferSession(lambda: opened, declared, Servers(servers, sharing(opened)), servers)
