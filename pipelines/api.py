"""The Python API for transfers and servers that code declares; see docs/python-api.md.

`pipelines.command.one.runner` has the operations on a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder
from tableferry.assets.planning.servers import Servers
from tableferry.assets.running.source_slots import sharing
from tableferry.checks.reconcile import reconcile
from tableferry.checks.verdict import Level, Verdict
from tableferry.pipelines import event_log
from tableferry.pipelines.command.one.finding import resolve_range
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.definitions import build
from tableferry.resources.contract.endpoint import Endpoint


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
        InputError: the transfer or range does not exist.
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
    """Open a session for `plan`, `run`, `check`, `status` and `differences`.

    Args:
        transfers: the declarations.
        servers: as for `definitions`.
        instance: the Dagster instance whose event log to use; by default that of the commands.

    Raises:
        InputError: two transfers have the same name or target.
    """
    opened = instance or event_log.open_to_record()
    declared = TransferFolder.of(transfers)
    return Session(lambda: opened, declared, Servers(servers, sharing(opened)), servers)
