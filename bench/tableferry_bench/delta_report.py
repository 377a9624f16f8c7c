"""What a measurement of deltas found, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """Rows that are changed at the source, and where a transfer takes them."""

    route: str
    fingerprint: str
    rows: int
    ranges: int
    changed: int
    """The rows that are updated before each run."""
    placement: str
    """`clustered` or `spread`."""

    @property
    def share(self) -> float:
        """The share of all rows."""
        return self.changed / self.rows


@dataclass(frozen=True)
class Measured:
    """The runs of a way to move the changed rows of a case; figures are medians."""

    case: Case
    way: str
    seconds: float
    cpu_client: float
    """CPU seconds of the client."""
    cpu_servers: float
    """CPU seconds of the servers that are on this machine."""
    ranges_moved: int | None
    whole: int | None
    """Ranges that moved whole."""
    moved: int | None
    """Rows that went from source to target."""
    written: int | None
    """Rows that the target's table was told to insert, update or delete."""
    sent: int | None
    """Bytes of the rows that were loaded; what is read to compare both sides is not among them."""
    runs: tuple[float, ...] = ()
    """The seconds of each run."""

    @property
    def cpu(self) -> float:
        """CPU seconds of client and servers."""
        return self.cpu_client + self.cpu_servers


HEAD = (
    "| route | fingerprint | changed | placed | way | seconds | by nothing to do | CPU s "
    "| by nothing to do | ranges moved | of them whole | rows moved | rows written | bytes sent |\n"
    "|---|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def line(measured: Measured, nothing: Measured | None) -> str:
    """A row of the table, with the ratios to the run of the same case that had nothing to do."""
    case = measured.case

    def ratio(value: float, of: float | None) -> str:
        return f"{value / of:.2f}" if of else ""

    def number(value: int | None) -> str:
        return "" if value is None else f"{value:,}"

    cells = (
        case.route,
        case.fingerprint,
        f"{100 * case.share:g} %",
        case.placement,
        measured.way,
        f"{measured.seconds:.2f}",
        ratio(measured.seconds, nothing.seconds if nothing else None),
        f"{measured.cpu:.2f}",
        ratio(measured.cpu, nothing.cpu if nothing else None),
        number(measured.ranges_moved),
        number(measured.whole),
        number(measured.moved),
        number(measured.written),
        number(measured.sent),
    )
    return f"| {' | '.join(cells)} |"


def table_of(measured: Sequence[Measured], nothing: str) -> str:
    """The whole table; `nothing` names the runs that had nothing to do."""
    idle = {one.case: one for one in measured if one.way == nothing}
    return "\n".join([HEAD, *(line(one, idle.get(one.case)) for one in measured)])
