"""How often a sensor has tried a range, and when it is due again; kept in the sensor's cursor."""

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import move_job_name
from tableferry.assets.log.ledger import records
from tableferry.resources.errors import TableferryError
from tableferry.resources.words import counted
from tableferry.sensors.channels import Alert, send

MOST_TRIES = 3
FIRST_PAUSE = 300.0
"""Seconds before the first new try; each further one waits twice as long."""


@dataclass(frozen=True)
class Tries:
    """What a sensor did about a range so far."""

    number: int = 0
    last: float = 0.0
    """When it asked for the latest of them, in seconds since the epoch."""
    told: bool = False
    """That it was given up was told to whoever is to know."""

    def due(self, failed: float) -> float | None:
        """When the next one is due, of a range that failed then; None if there is none."""
        if self.number >= MOST_TRIES:
            return None
        return max(failed, self.last) + FIRST_PAUSE * 2**self.number

    def given_up(self, failed: float, now: float) -> bool:
        """Whether the last try, too, has failed by now, or left no trace."""
        late = now >= self.last + FIRST_PAUSE * 2**MOST_TRIES
        return self.number >= MOST_TRIES and (failed > self.last or late)


def read(cursor: str | None) -> dict[str, Tries]:
    """The tries so far; none of a cursor that another version wrote."""
    try:
        return {name: Tries(*one) for name, one in json.loads(cursor or "{}").items()}
    except (TypeError, ValueError, AttributeError):
        return {}


def written(tries: Mapping[str, Tries]) -> str:
    """The tries as a cursor."""
    return json.dumps({name: [*astuple(one)] for name, one in tries.items() if one.number})


def told(transfer: Transfer, names: list[str], context: dg.SensorEvaluationContext) -> bool:
    """Send the alert that ranges are given up; one that nobody took is tried again next time."""
    text = f"{transfer.transfer}: {counted(len(names), 'range')} given up after {MOST_TRIES} tries"
    errors = {
        name: f"{hop.to} {name}: {record.error}"
        for hop in transfer.hops
        for name, record in records(context.instance, asset_key(hop.to), names).items()
        if record.error
    }
    lines = [errors.get(name, name) for name in names]
    context.log.error(text)
    try:
        send(Alert("ranges_given_up", text, move_job_name(transfer.transfer), errors=lines))
    except TableferryError as error:
        context.log.warning(str(error))
        return False
    return True


def listed(names: list[str]) -> str:
    """Ranges that were given up, for a tick's reason."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"given up after {MOST_TRIES} tries: {', '.join(names[:5])}{more}"
