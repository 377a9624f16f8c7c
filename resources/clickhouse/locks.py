"""The lock of a range: a table that only one run can create. What an attempt holds by it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from tableferry.resources.clickhouse.dialect import literal
from tableferry.resources.clickhouse.errors import EXISTS
from tableferry.resources.clickhouse.markers import RangeMarker
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Look
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target import Alive
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import RangeBusy, StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef

MARK = "tableferry:"
TRIES = 3


@dataclass(frozen=True)
class Owner:
    """Who made a lock, staging or shadow table; kept in the table's comment."""

    run: str = ""
    token: str = ""
    replaces: str = ""
    """For a shadow table: the UUID of the table that it shall replace."""

    @property
    def text(self) -> str:
        """The comment."""
        fields = {"run": self.run, "token": self.token, "replaces": self.replaces}
        return MARK + json.dumps(fields)

    def comment(self) -> str:
        """The comment as a literal."""
        return literal(self.text)

    @classmethod
    def read(cls, comment: str) -> Owner:
        """The owner that a comment names; an empty one if the comment is not ours."""
        if not comment.startswith(MARK):
            return cls()
        try:
            fields = json.loads(comment.removeprefix(MARK))
            return cls(fields["run"], fields["token"], fields["replaces"])
        except (ValueError, KeyError):
            return cls()


def read_owner(resource: ClickHouseServer, table: TableRef, name: str) -> Owner | None:
    """The owner of a lock, staging or shadow table; None if there is no such table."""
    rows = resource.query(
        f"SELECT comment FROM system.tables WHERE database = {literal(table.schema)} "
        f"AND name = {literal(name)}"
    )
    return Owner.read(rows[0][0]) if rows else None


def take_lock(
    resource: ClickHouseServer,
    table: TableRef,
    lock: str,
    owner: Owner,
    key_range: KeyRange,
    alive: Alive,
) -> None:
    """Take the lock of a range, also from a dead run, whose staging tables are dropped after that.

    In this order: who was taken for dead, but lives, and has seen that it has the lock, has a
    staging table by then, and publishes nothing once that is gone.

    Raises:
        RangeBusy: a living run has it.
    """
    statement = (
        f"CREATE TABLE {qualified(table, lock)} (nothing UInt8) ENGINE = Null "
        f"COMMENT {owner.comment()}"
    )
    taken_over = False
    for _ in range(TRIES):
        try:
            resource.execute(statement)
        except StatementFailed as error:
            if error.code != EXISTS:
                raise
        else:
            if taken_over:
                _drop_staging(resource, table, lock)
            return
        holder = read_owner(resource, table, lock)
        if holder is None:
            continue
        if holder.run != owner.run and alive(holder.run):
            raise RangeBusy(
                f"{table} range {key_range.name} is being loaded by run {holder.run}; if that has "
                "died on a machine that cannot be asked, `ferry clean` lets go of what it holds"
            )
        resource.execute(drop_table(table, lock))
        taken_over = True
    raise RangeBusy(f"{table} range {key_range.name} is being taken over by another run")


def _drop_staging(resource: ClickHouseServer, table: TableRef, lock: str) -> None:
    """Drop what earlier owners of a lock have staged."""
    for (name,) in resource.query(
        f"SELECT name FROM system.tables WHERE database = {literal(table.schema)} "
        f"AND startsWith(name, {literal(lock)}) AND name != {literal(lock)}"
    ):
        resource.execute(drop_table(table, name))


def release_lock(resource: ClickHouseServer, table: TableRef, lock: str, owner: Owner) -> None:
    """Release a lock, unless another run has taken it over."""
    if owner.token in resource.definition(table, lock):
        resource.execute(drop_table(table, lock))


@dataclass
class HeldRange:
    """A key range whose lock an attempt holds."""

    resource: ClickHouseServer
    plan: CopyPlan
    key_range: KeyRange
    options: TargetOptions
    table: TableRef
    """The table that is written to: the target, or with `swap` its shadow."""
    lock: str
    staging: str
    owner: Owner
    publication: Publication
    marker: RangeMarker
    atomic: bool
    """Whether the table has one partition per key range."""
    look: Look

    @property
    def staging_table(self) -> TableRef:
        """The staging table of the range."""
        return replace(self.table, name=self.staging)
