"""What runs were expected to take, and took, as their tags say; Dagster is not imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from tableferry.assets.log.queries import Log, select_runs
from tableferry.assets.log.run_tags import FORECAST, forecast_tag

OWN_RUNS = 20
"""Maximum earlier runs of the transfer by which a forecast is made."""
LATEST_RUNS = 200
"""The newest runs of all kinds among which those of other transfers are looked for."""


Parts = tuple[float, float, float]
"""The seconds of a run that do not depend on its ranges, those that do, and those of its rows."""


@dataclass(frozen=True)
class Span:
    """A value that is not known yet: the likeliest one, and between which it should be."""

    low: float
    likely: float
    high: float

    def __add__(self, known: float) -> Span:
        return Span(self.low + known, self.likely + known, self.high + known)


@dataclass(frozen=True)
class Forecast:
    """What a run is expected to take; after it, also what it took."""

    seconds: Span
    typical: Parts
    """What it would take on a typical machine: later forecasts are scaled by that."""
    rows: int
    """Rows of the ranges that are moved."""
    bytes: int | None
    """Bytes on the wire; None if nothing is known of the size of the rows."""
    basis: str
    """What it was made of, in words."""
    took: float | None = None
    """The seconds that the run took; None of a run that has not succeeded."""
    rows_moved: int = 0
    bytes_moved: int = 0

    @property
    def error(self) -> float | None:
        """The share by which the likeliest value was off what the run took."""
        return abs(self.seconds.likely - self.took) / self.took if self.took else None

    @property
    def text(self) -> str:
        """The tag of a run."""
        values = asdict(self)
        values["seconds"] = [round(each, 2) for each in asdict(self.seconds).values()]
        values["typical"] = [round(each, 4) for each in self.typical]
        return json.dumps(values)

    @classmethod
    def parse(cls, text: str) -> Forecast | None:
        """Read the tag of a run; None if it is of another release."""
        try:
            values = json.loads(text)
            span, (run, ranges, rows) = Span(*values["seconds"]), values["typical"]
            return cls(**{**values, "seconds": span, "typical": (run, ranges, rows)})
        except (ValueError, TypeError, KeyError):
            return None


_OWN = (
    "SELECT t.value FROM run_tags t JOIN runs r ON r.run_id = t.run_id"
    f" WHERE t.key = :tag AND r.status = 'SUCCESS' ORDER BY r.id DESC LIMIT {OWN_RUNS}"
)
# the newest runs first, as a log may have millions of tags
_OTHERS = (
    "SELECT t.value FROM (SELECT id, run_id FROM runs WHERE status = 'SUCCESS'"
    f" ORDER BY id DESC LIMIT {LATEST_RUNS}) r JOIN run_tags t ON t.run_id = r.run_id"
    " WHERE t.key LIKE :any AND t.key <> :tag ORDER BY r.id DESC"
)


def own_runs(log: Log, transfer: str) -> list[Forecast]:
    """Return how the last runs of a transfer that succeeded were forecast, the newest first."""
    return [*_taken(log, _OWN, tag=forecast_tag(transfer))]


def other_runs(log: Log, transfer: str) -> list[Forecast]:
    """Return how the last runs of other transfers were forecast, the newest first."""
    return [*_taken(log, _OTHERS, tag=forecast_tag(transfer), any=f"{FORECAST}%")]


def _taken(log: Log, statement: str, **values: str) -> Iterator[Forecast]:
    for (text,) in select_runs(log, statement, **values):
        run = Forecast.parse(text)
        if run is not None and run.took:
            yield run


def median_error(runs: Sequence[Forecast]) -> float | None:
    """Return the median of the errors of forecasts; None of no run."""
    errors = [run.error for run in runs if run.error is not None]
    return median(errors) if errors else None
