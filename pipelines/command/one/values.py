"""`ferry plan --values` and `ferry init --values`: every value that a move would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.resolve import Hop, resolve_hops
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.wires import with_wires
from tableferry.checks.refused_values import (
    RefusedColumn,
    RefusedValues,
    refused_later,
    refused_values,
)
from tableferry.resources.columns import conversions
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
    hop: str = ""
    """The table of the hop that it is declared in, as YAML; '' of a transfer with one hop."""

    @property
    def document(self) -> str:
        """The remedy as the YAML of a transfer."""
        return f"hops: [{{to: {self.hop}, {self.yaml}}}]" if self.hop else self.yaml

    @property
    def line(self) -> str:
        """The remedy as a line to paste: of several hops, in the place of the hop's line."""
        return f"- {{to: {self.hop}, {self.yaml}}}" if self.hop else self.yaml

    def json(self) -> dict[str, str]:
        """Return the `--json` form."""
        return {"yaml": self.document, "meaning": self.meaning}


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
                    "remedies": [remedy.json() for remedy in remedies],
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
                yield f"  {'or' if number else 'declare'} {remedy.line}  # {remedy.meaning}"
        together = [remedies[0] for remedies in self.remedies if remedies[0].hop]
        if len(together) > 1:
            yield f"{target}: the first remedies together, in the place of its line in hops:"
            yield f"  - {{to: {together[0].hop}, {_joined(remedy.yaml for remedy in together)}}}"
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
    refused = [refused_values(servers.side(first.plan, "source"), first.wire)]
    refused += [refused_later(first.plan, hop.plan, hop.wire, source) for hop in later]
    return ValuesView(
        transfer.transfer,
        tuple(
            HopValues(hop, values, tuple(_remedies(hop, hops, each) for each in values.columns))
            for hop, values in zip(hops, refused, strict=True)
        ),
    )


def _remedies(hop: Hop, hops: Sequence[Hop], refused: RefusedColumn) -> tuple[Remedy, ...]:
    column, plan = refused.column, hop.plan
    name, target = _quoted(column.source.name), plan.target.system
    # other values would be other rows
    is_key = column.target.name in (plan.key.target.name, *plan.primary_key)
    if is_key:
        return (Remedy(f"# mend the values of {name} at the source", "it is the key"),)
    remedies = [
        (f"columns: {{{name}: {{on_overflow: {policy}}}}}", MEANINGS[policy])
        for policy in refused.policies
    ]
    text, source = target.types.text, hops[0].plan.source.system
    planned = target.types.plain(column.fitted or column.target.type)
    with suppress(conversions.NoConversion):
        conversions.conversion_between(
            source, column.source.type, target, text, plan.target_version
        )
        if text != planned:
            remedies.append((f"columns: {{{name}: {{type: {_quoted(text)}}}}}", "their text"))
    remedies.append((f"exclude: [{name}]", "the column is left out"))
    if len(hops) == 1:
        return tuple(Remedy(*remedy) for remedy in remedies)
    # of several hops, the one that would refuse them
    to = _quoted(str(plan.target))
    return tuple(Remedy(*remedy, hop=to) for remedy in remedies)


def _joined(parts: Iterable[str]) -> str:
    """Join `columns: {...}` and `exclude: [...]` of several columns, each once."""
    columns, exclude = [], []
    for part in parts:
        if part.startswith("columns: {"):
            columns.append(part.removeprefix("columns: {").removesuffix("}"))
        else:
            exclude.append(part.removeprefix("exclude: [").removesuffix("]"))
    lists = [f"columns: {{{', '.join(columns)}}}"] if columns else []
    lists += [f"exclude: [{', '.join(exclude)}]"] if exclude else []
    return ", ".join(lists)


def _quoted(text: str) -> str:
    """Write a text as YAML's flow style needs it."""
    plain = text.isidentifier() and text.lower() not in ("null", "true", "false", "yes", "no")
    return text if plain else json.dumps(text, ensure_ascii=False)
