"""Which wire format a hop takes: the declared one, or one that its source is believed with."""

from __future__ import annotations

from resources.endpoint import Endpoint
from resources.errors import InputError
from resources.plan import CopyPlan, WireChoice, WireFormat
from resources.postgres.resource import PostgresResource
from resources.sqlserver.resource import SqlServerResource
from resources.wires import wrong_values

PREFERRED: tuple[WireFormat, ...] = ("arrow", "text")
"""In which order `auto` tries them: `arrow` carries every type, and needs no tool."""


def chosen_wire(
    declared: WireChoice, plan: CopyPlan, source: Endpoint, sqlserver: SqlServerResource
) -> WireFormat:
    """The wire format that a hop will use.

    A source is believed only after a probe of edge values, see `resources.wires`.

    Args:
        declared: the hop's.
        plan: the hop's.
        source: where its rows come from.
        sqlserver: the SQL Server of the journey, whose bcp the text goes through.

    Raises:
        InputError: the declared wire format does not carry the columns exactly, or with `auto`
            none does; names what kind of value came out wrong, and what came.
        ConnectionFailed: the source is away.
    """
    problems: list[str] = []
    for wire in PREFERRED if declared == "auto" else (declared,):
        problem = _problem(wire, plan, source, sqlserver)
        if problem is None:
            return wire
        problems.append(f"cannot use the wire format {wire} {problem}")
    raise InputError("; and ".join(problems))


def _problem(
    wire: WireFormat, plan: CopyPlan, source: Endpoint, sqlserver: SqlServerResource
) -> str | None:
    """Why a hop cannot use a wire format; None if it can."""
    if wire == "text":
        inexact = [column.source.name for column in plan.columns if column.text_sql is None]
        if inexact:
            return f"for {', '.join(inexact)}: exclude them, or use 'wire: arrow'"
        if "sqlserver" in (plan.source.system, plan.target.system):
            try:
                sqlserver.bcp_tool()
            except InputError as error:
                return f"without a tool: {error}"
    elif plan.source.system != "sqlserver":
        return None  # PostgreSQL's own binary format, which no server prints
    assert isinstance(source, PostgresResource | SqlServerResource)
    wrong = wrong_values(source, wire, plan)
    if not wrong:
        return None
    more = f" (and {len(wrong) - 1} more; ferry doctor lists them)" if len(wrong) > 1 else ""
    return f"out of {source.settings()}: {wrong[0]}{more}"
