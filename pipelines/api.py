"""Tableferry from Python: transfers that code declares, on servers that code names.

docs/python-api.md shows how. What the commands do with a session is in `pipelines.command.runner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder
from tableferry.assets.planning.resolve import Servers
from tableferry.checks.reconcile import reconcile
from tableferry.checks.verdict import Level, Verdict
from tableferry.pipelines import event_log
from tableferry.pipelines.command.running import resolve_range
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.definitions import build
from tableferry.resources.contract.endpoint import Endpoint


def definitions(transfers: Iterable[Transfer], servers: Mapping[str, Endpoint]) -> dg.Definitions:
    """What a code location consists of: assets, checks, jobs, schedules, sensors and resources.

    Args:
        transfers: the declarations.
        servers: resources by the names of the connections that the transfers' tables have, e.g.
            `{"postgres": PostgresResource(...)}`. Their fields may be Dagster's `EnvVar`.

    Raises:
        InputError: two transfers have the same name or target.
    """
    return build(TransferFolder.of(transfers), servers=servers)


def compare(
    session: Session, name: str, range_name: str, level: Level = "checksum"
) -> dict[str, Verdict]:
    """Compare one range with its source, target by target, without a run or a record of it.

    Args:
        session: where everything is.
        name: the transfer.
        range_name: partition key of the range.
        level: how strict.

    Raises:
        InputError: there is no such transfer or range.
    """
    servers, hops, key_range = resolve_range(session, name, range_name)
    return {
        str(hop.plan.target): reconcile(
            hop.found_plan,
            servers.endpoint(hop.plan.source),
            servers.endpoint(hop.plan.target),
            key_range,
            level,
        )
        for hop in hops
    }


def session(
    transfers: Iterable[Transfer],
    servers: Mapping[str, Endpoint],
    instance: dg.DagsterInstance | None = None,
) -> Session:
    """What `runner.plan`, `run`, `check` and `status` work with, as the commands do.

    Args:
        transfers: the declarations.
        servers: as for `definitions`.
        instance: Dagster's, whose event log remembers; that of the commands, if not given.

    Raises:
        InputError: two transfers have the same name or target.
    """
    opened = instance or event_log.open_to_record()
    declared = TransferFolder.of(transfers)
    return Session(lambda: opened, declared, Servers(servers), servers)
