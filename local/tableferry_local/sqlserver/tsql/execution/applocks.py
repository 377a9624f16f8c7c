"""sp_getapplock and sp_releaseapplock on PostgreSQL's advisory locks."""

from __future__ import annotations

from tableferry_local.sqlserver.errors import ErrorContext, SqlError
from tableferry_local.sqlserver.tsql.execution.arguments import Argument, bound
from tableferry_local.sqlserver.tsql.execution.run import Run

GRANTED, GRANTED_AFTER_WAIT, TIMED_OUT, CANCELLED, DEADLOCK, INVALID = 0, 1, -1, -2, -3, -999
_SHARED = {"shared", "intentshared"}
_EXCLUSIVE = {"exclusive", "update", "intentexclusive"}


def getapplock(run: Run, arguments: list[Argument]) -> int:
    """Take an application lock; returns what sp_getapplock documents.

    Session locks of PostgreSQL serve both owners, because PostgreSQL cannot release a
    transaction's lock early; those of a transaction are released when it ends.
    """
    state = run.state
    given = bound(arguments, "@resource", "@lockmode", "@lockowner", "@locktimeout", "@dbprincipal")
    resource, mode = given["@resource"] or "", (given["@lockmode"] or "").lower()
    owner = (given["@lockowner"] or "transaction").lower()
    wait = int(given["@locktimeout"] if given["@locktimeout"] is not None else state.lock_timeout)
    if mode not in _SHARED | _EXCLUSIVE or owner not in ("transaction", "session") or not resource:
        return INVALID
    if owner == "transaction" and not state.trancount:
        run.sink.error(
            SqlError(
                3918,
                16,
                "The statement or function must be executed in the context of a user transaction.",
            )
        )
        return INVALID
    suffix = "_shared" if mode in _SHARED else ""
    number = _number(run, resource)
    held = state.applocks.setdefault((owner, resource), [])
    if state.link.rows(f"SELECT pg_try_advisory_lock{suffix}({number})")[0][0] == "t":
        held.append((number, suffix))
        return GRANTED
    if wait == 0:
        return TIMED_OUT
    usual = 0 if state.lock_timeout < 0 else max(1, state.lock_timeout)
    try:
        with state.statement(ErrorContext("EXECUTE")):
            state.link.run(f"SET lock_timeout = {max(wait, 0)}")
            state.link.rows(f"SELECT pg_advisory_lock{suffix}({number})")
    except SqlError as error:
        if error.number == 1222:
            return TIMED_OUT
        if error.number == 1205:
            return DEADLOCK
        if error.number == 3621:
            return CANCELLED
        raise
    finally:
        if state.link.alive:
            state.link.run(f"SET lock_timeout = {usual}")
    held.append((number, suffix))
    return GRANTED_AFTER_WAIT


def _number(run: Run, resource: str) -> str:
    rows = run.state.link.rows(
        "SELECT hashtextextended($1, 0)", [f"{run.state.database.lower()}|{resource}"]
    )
    return str(rows[0][0])


def releaseapplock(run: Run, arguments: list[Argument]) -> int:
    """Release an application lock; returns 0, or -999 with error 1223 if it is not held."""
    given = bound(arguments, "@resource", "@lockowner", "@dbprincipal")
    resource = given["@resource"] or ""
    owner = (given["@lockowner"] or "transaction").lower()
    held = run.state.applocks.get((owner, resource))
    if not held:
        run.sink.error(
            SqlError(
                1223,
                16,
                "Cannot release the application lock (Database Principal: 'public', Resource: "
                f"'{resource}') because it is not currently held.",
            )
        )
        return INVALID
    number, suffix = held.pop()
    run.state.link.run(f"SELECT pg_advisory_unlock{suffix}({number})")
    if not held:
        del run.state.applocks[owner, resource]
    return 0
