"""`ferry plan --values` and `ferry init --values`: every value that a move would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.resolve import Hop, Servers, resolve_hops, with_wires
from tableferry.checks.refused_values import (
    RefusedColumn,
    RefusedValues,
    refused_later,
    refused_values,
)
from tableferry.resources.columns.conversions import (
    NoConversion,
    conversion_between,
    conversion_of,
)
from tableferry.resources.words import counted, one_line

MEANINGS = {
    "null": "NULL in their place",
    "clamp": "the nearest value that fits",
}


@dataclass(frozen=True)
class Remedy:
    """A line of a transfer's YAML with which no value of a column is refused."""

    yaml: str
    meaning: str


@dataclass(frozen=True)
class HopValues:
    """The values of a transfer's source that one hop would refuse."""

    hop: Hop
    found: RefusedValues
    remedies: tuple[tuple[Remedy, ...], ...]
    """By column of `found`."""

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {
            "hop": self.hop.number,
            "target": str(self.hop.plan.target),
            "rows": self.found.rows,
            "columns": [
                {
                    "column": refused.column.source.name,
                    "rows": refused.rows,
                    "examples": [asdict(example) for example in refused.examples],
                    "remedies": [asdict(remedy) for remedy in remedies],
                }
                for refused, remedies in zip(self.found.columns, self.remedies, strict=True)
            ],
            "not_examined": dict(self.found.not_examined),
        }

    def lines(self) -> Iterator[str]:
        """Describe the values for people."""
        target, rows = self.hop.plan.target, self.found.rows
        if rows is None:
            yield f"{target}: no value can be refused, by the columns' types"
        elif not self.found.columns:
            yield f"{target}: no value of {counted(rows, 'row')} would be refused"
        for refused, remedies in zip(self.found.columns, self.remedies, strict=True):
            name = one_line(refused.column.source.name)
            yield f"{target}: {name}: {counted(refused.rows, 'value')} would be refused"
            for example in refused.examples:
                key = ", ".join(f"{column} {value}" for column, value in example.key.items())
                value = one_line(json.dumps(example.value, ensure_ascii=False))
                yield f"  {one_line(key)}: {value} {example.reason}"
            for number, remedy in enumerate(remedies):
                yield f"  {'or' if number else 'declare'} {remedy.yaml}  # {remedy.meaning}"
        for name, why in self.found.not_examined:
            yield f"{target}: {one_line(name)} was not examined: {why}"


@dataclass(frozen=True)
class ValuesView:
    """The values of a transfer's source that a run would refuse."""

    transfer: str
    hops: tuple[HopValues, ...]

    @property
    def errors(self) -> list[str]:
        """What would be refused, one line per hop."""
        return [
            f"{self.transfer}: {values.hop.plan.target} would refuse values of "
            f"{counted(len(values.found.columns), 'column')}"
            for values in self.hops
            if values.found.columns
        ]

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {
            "transfer": self.transfer,
            "ok": not self.errors,
            "errors": self.errors,
            "hops": [values.json() for values in self.hops],
        }

    def lines(self) -> Iterator[str]:
        """Describe the values for people."""
        for values in self.hops:
            yield from (f"{self.transfer}: {line}" for line in values.lines())


def examine_values(transfer: Transfer, servers: Servers) -> ValuesView:
    """Find every value of a transfer's source that one of its hops would refuse.

    Raises:
        InputError: the transfer cannot be planned.
    """
    hops = with_wires(transfer, resolve_hops(transfer, servers), servers)
    source = servers.endpoint(transfer.source)
    first, *later = hops
    found = [refused_values(first.plan, first.wire, source)]
    found += [refused_later(first.plan, hop.plan, hop.wire, source) for hop in later]
    return ValuesView(
        transfer.transfer,
        tuple(
            HopValues(hop, values, tuple(_remedies(hop, hops, each) for each in values.columns))
            for hop, values in zip(hops, found, strict=True)
        ),
    )


def _remedies(hop: Hop, hops: Sequence[Hop], refused: RefusedColumn) -> tuple[Remedy, ...]:
    column, plan = refused.column, hop.plan
    name, target = _quoted(column.source.name), plan.target.system
    remedies = []
    is_key = column.target.name in (plan.key.target.name, *plan.primary_key)
    # other values would be other rows
    if not is_key and all(_guarded(each, column.target.name) for each in hops):
        remedies += [
            Remedy(f"columns: {{{name}: {{on_overflow: {policy}}}}}", MEANINGS[policy])
            for policy in refused.policies
        ]
    source = hops[0].plan.source.system
    planned = target.types.plain(column.fitted or column.target.type)
    for type_ in () if is_key else (target.types.text,):
        try:
            conversion_between(source, column.source.type, target, type_, plan.target_version)
        except NoConversion:
            continue
        if type_ != planned:
            declared = _quoted(type_)
            declared = declared if len(hops) == 1 else f"{{{target.name}: {declared}}}"
            remedies.append(Remedy(f"columns: {{{name}: {{type: {declared}}}}}", "their text"))
    if not is_key:
        remedies.append(Remedy(f"exclude: [{name}]", "the column is left out"))
    return tuple(remedies) or (
        Remedy(f"# mend the values of {name} at the source", "it is the key"),
    )


def _guarded(hop: Hop, name: str) -> bool:
    """Whether a hop may refuse values of a column, by its name in the targets."""
    column = next((each for each in hop.plan.columns if each.target.name == name), None)
    try:
        return column is not None and conversion_of(column, hop.plan).guarded
    except NoConversion:
        return False


def _quoted(text: str) -> str:
    """Write a text as YAML's flow style needs it."""
    plain = text.isidentifier() and text.lower() not in ("null", "true", "false", "yes", "no")
    return text if plain else json.dumps(text, ensure_ascii=False)
