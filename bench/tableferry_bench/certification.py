"""Whether a result keeps to thresholds: the verdict, `schemas/verdict.schema.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from tableferry.resources.errors import InputError
from tableferry_bench.results import UNITS, Result
from tableferry_bench.statistics import Summary, ratios, summary
from tableferry_bench.suite import read_yaml

SCHEMA_VERSION = 1
SHIPPED = Path(str(files("tableferry_bench") / "thresholds.yaml"))

ALL_ROWS = "all rows arrived, or were read"

Outcome = Literal["passed", "failed", "not measured", "elsewhere"]
"""`elsewhere`: the threshold is about something that is no part of the suite."""


class Of(BaseModel):
    """A figure of one case."""

    model_config = ConfigDict(extra="forbid")

    workload: str
    rows: int
    contender: str
    metric: str
    options: dict[str, str | int] = {}
    """Those that the case has, of several of one contender: of `tune`, `lab` and `staging`."""

    @model_validator(mode="after")
    def _known(self) -> Of:
        if self.metric not in UNITS and not self.metric.startswith("phase_"):
            raise ValueError(
                f"metric should be one of {', '.join(UNITS)}, or phase_...; found {self.metric!r}"
            )
        return self


class Against(BaseModel):
    """What is different about the case that it is divided by."""

    model_config = ConfigDict(extra="forbid")

    workload: str | None = None
    rows: int | None = None
    contender: str | None = None
    metric: str | None = None
    options: dict[str, str | int] | None = None


class Threshold(BaseModel):
    """What a figure must not fall below, or exceed."""

    model_config = ConfigDict(extra="forbid")

    name: str
    of: Of
    against: Against | None = None
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _limited(self) -> Threshold:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("should say either at_least or at_most")
        return self


class Thresholds(BaseModel):
    """A file of them."""

    model_config = ConfigDict(extra="forbid")

    thresholds: list[Threshold]


@dataclass(frozen=True)
class Finding:
    """What came out for one threshold."""

    name: str
    outcome: Outcome
    limit: str
    """E.g. `at least 0.4`."""
    value: float | None = None
    """Median of all rounds."""
    least: float | None = None
    most: float | None = None
    detail: str = ""
    """Why it was not measured."""


@dataclass(frozen=True)
class Verdict:
    """What came out for all."""

    passed: bool
    """None has failed, and at least one was measured."""
    complete: bool
    """All were measured; those about other suites as well."""
    suite: str
    created: str
    findings: tuple[Finding, ...]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """The document."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @property
    def headline(self) -> str:
        """One line for all."""
        counts = {
            said: sum(one.outcome == outcome for one in self.findings)
            for outcome, said in (
                ("passed", "passed"),
                ("failed", "failed"),
                ("not measured", "not measured"),
                ("elsewhere", "of other suites"),
            )
        }
        said = ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)
        whole, *others = self.findings
        if whole.outcome == "passed" and {one.outcome for one in others} == {"elsewhere"}:
            return f"no threshold is about this suite: {said}"
        return f"{'certified' if self.passed else 'NOT certified'}: thresholds: {said or 'none'}"

    @property
    def failed(self) -> list[Finding]:
        """What was measured and does not keep to its threshold."""
        return [one for one in self.findings if one.outcome == "failed"]


class _Elsewhere(InputError):
    """The suite has no such case."""


def read_thresholds(path: Path | None) -> Thresholds:
    """Those of a file, or those that come along.

    Raises:
        InputError: it does not exist, or says something else.
    """
    path = path or SHIPPED
    return read_yaml(path, Thresholds, f"{path}: no such file of thresholds")


def certify(result: Result, thresholds: Thresholds | None) -> Verdict:
    """Hold a result against thresholds, and against what all results have to keep: all rows came.

    Args:
        result: of any kind.
        thresholds: None: none but that.
    """
    held = thresholds.thresholds if thresholds else []
    findings = (_complete(result), *(_finding(result, one) for one in held))
    outcomes = {one.outcome for one in findings}
    return Verdict(
        passed="failed" not in outcomes
        and any(one.outcome == "passed" for one in findings[bool(held) :]),
        complete=not outcomes & {"not measured", "elsewhere"},
        suite=result.suite,
        created=result.created,
        findings=findings,
    )


def _complete(result: Result) -> Finding:
    """Whether each run that was tried has moved, or read, all rows of its table."""
    tried = [case for case in result.cases if not case.skipped]
    short = [case.name for case in tried if any(run.rows != case.rows for run in case.runs)]
    wrong = [f"{case.name}: {case.failed}" for case in tried if case.failed]
    wrong += [f"{name}: other rows than the table has" for name in short]
    if not result.complete:
        wrong.append("it was interrupted")
    outcome: Outcome = "failed" if wrong else "passed" if tried else "not measured"
    runs = sum(len(case.runs) for case in tried)
    return Finding(ALL_ROWS, outcome, f"all of {runs} runs", detail="; ".join(wrong))


def _finding(result: Result, one: Threshold) -> Finding:
    at_least = one.at_least is not None
    bound = one.at_least if one.at_least is not None else one.at_most
    assert bound is not None
    limit = f"{'at least' if at_least else 'at most'} {bound:g}"
    try:
        found = _value(result, one)
    except _Elsewhere as error:
        return Finding(one.name, "elsewhere", limit, detail=str(error))
    except InputError as error:
        return Finding(one.name, "not measured", limit, detail=str(error))
    good = found.median >= bound if at_least else found.median <= bound
    return Finding(
        one.name, "passed" if good else "failed", limit, found.median, found.least, found.most
    )


def _value(result: Result, one: Threshold) -> Summary:
    """Summarise the figure over all rounds.

    Raises:
        InputError: the result does not have it; says why.
    """
    values = _figures(result, one.of)
    if one.against is None:
        found = summary(list(values.values()))
    else:
        other = one.of.model_copy(update=one.against.model_dump(exclude_none=True))
        found = summary(ratios(values, _figures(result, other)))
    if found is None:
        raise InputError("no round has both figures")
    return found


def _figures(result: Result, of: Of) -> dict[int, float]:
    case = result.find(of.workload, of.rows, of.contender, of.options)
    name = " ".join([f"{of.workload}:{of.rows} {of.contender}", *map(str, of.options.values())])
    if case is None:
        raise _Elsewhere(f"{name} is not part of the suite")
    figures = case.figures(of.metric)
    if not figures:
        reason = case.failed or case.skipped or f"it has no {of.metric}"
        raise InputError(f"{name}: {reason}")
    return figures
