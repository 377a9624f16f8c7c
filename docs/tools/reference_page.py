"""Renders docs/reference.md from the models: `python -m docs.tools.reference_page`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tableferry.assets.declaring.schema import VARIABLE, transfer_schema

PAGE = Path(__file__).parents[1] / "reference.md"

HEAD = """# Every key of a transfer file

<!-- Made by `python -m docs.tools.reference_page`; a test fails when it is stale. -->

Look up here what each key of a transfer file takes, with its default, and what it does; a key that
is a link leads to more. [Transfer files](transfers.md) has examples, and `ferry schema` prints the
same as a JSON Schema. A value may be a [variable](transfers.md#values-from-the-environment), as
`${NAME}`. A file with `tables` has these keys, too, for [many
tables](transfers.md#many-tables-one-file).
"""

SECTIONS = {
    "RangesSpec": "ranges",
    "HopSpec": "hops",
    "ColumnSpec": "columns",
    "HopColumnSpec": "columns-of-a-hop",
    "CheckSpec": "checks",
    "ExpectationDeclared": "expectations",
    "IncrementalSpec": "incremental",
    "MarkSpec": "deletes",
    "ParallelSpec": "parallel",
    "LimitsSpec": "source_limits",
}
"""The models of the file's parts, by the key that has them."""

MORE = {
    "source": "transfers.md#names",
    "hops": "routes.md#routes",
    "row_security": "security.md#row-level-security",
    "ranges": "ranges.md",
    "write": "finalise.md#the-write-modes",
    "on_missing": "files.md",
    "reconcile": "reconciliation.md#the-levels",
    "publish_audit": "finalise.md#what-a-target-does-to-rows",
    "figures": "reconciliation.md#the-levels",
    "fingerprint": "ranges.md#fingerprints",
    "final": "routes.md#several-versions-of-a-row",
    "incremental": "incremental.md",
    "deletes": "finalise.md#rows-that-the-source-has-deleted",
    "delta": "delta.md",
    "checks": "reconciliation.md#checks",
    "on_reject": "transfers.md#rejected-rows",
    "max_rejected": "transfers.md#rejected-rows",
    "on_shrink": "transfers.md#a-table-that-shrinks",
    "max_shrink": "transfers.md#a-table-that-shrinks",
    "expectations": "reconciliation.md#checks",
    "columns": "types.md",
    "on_overflow": "types.md",
    "expression": "transfers.md#expressions",
    "cast": "transfers.md#casts",
    "parallel": "tuning.md#several-runs-of-one-table",
    "source_limits": "tuning.md#kind-to-the-source",
    "profile": "tuning.md#profiles",
    "on_schema_drift": "when-tables-change.md#schema-drift",
    "schedule": "schedules.md",
    "check_schedule": "schedules.md",
    "freshness": "schedules.md#freshness",
    "wire": "routes.md#wires",
}
"""Where a key is explained at length."""


def render() -> str:
    """The page."""
    schema = transfer_schema()
    parts = schema["$defs"]
    assert parts.keys() == SECTIONS.keys(), "each part of the file has a section"
    keyed = {name: "required, except for files" for name in schema["then"]["required"]}
    found = [HEAD, _table(schema, keyed)]
    for model, key in SECTIONS.items():
        found += [f"## {key}\n", _line(parts[model]["description"]) + "\n"]
        found.append(_table(parts[model], {}))
    return "\n".join(found)


def _table(schema: dict[str, Any], defaults: dict[str, str]) -> str:
    lines = ["| key | takes | what it does |", "|---|---|---|"]
    for name, field in schema["properties"].items():
        required = "required" if name in schema.get("required", ()) else defaults.get(name, "")
        key = f"[`{name}`]({MORE[name]})" if name in MORE else f"`{name}`"
        cells = (key, _with_default(field, required), _line(field["description"]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _with_default(field: dict[str, Any], required: str) -> str:
    """What a field takes, with its default marked among it or after it."""
    takes, default = _takes(field), _default(field)
    if required:
        return f"{takes}; {required}"
    if default in takes.split(", "):
        return ", ".join(f"{one} (default)" if one == default else one for one in takes.split(", "))
    return f"{takes}; {default}" if default else takes


def _line(text: str) -> str:
    return " ".join(text.split())


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if isinstance(value, dict):
        given = {name: one for name, one in value.items() if one is not None}
        text = ", ".join(f"{name}: {one}" for name, one in given.items())
        return f"`{{{text}}}`" if given else ""
    if isinstance(value, bool):
        return f"`{json.dumps(value)}`"
    return f"`{value}`" if value not in (None, [], "") else ""


def _takes(field: dict[str, Any]) -> str:
    """The values of a field, in words."""
    return " or ".join(dict.fromkeys(_words(field)))


def _words(field: dict[str, Any]) -> Iterator[str]:
    if field == VARIABLE or field.get("type") == "null":
        return
    if "anyOf" in field:
        for one in field["anyOf"]:
            yield from _words(one)
    elif "$ref" in field:
        key = SECTIONS[field["$ref"].rpartition("/")[2]]
        yield f"[mapping](#{key})"
    elif "enum" in field:
        yield ", ".join(f"`{one}`" for one in field["enum"])
    elif field.get("type") == "array":
        items = _takes(field["items"]) if field["items"] else ""
        yield f"list of {items}" if items else "list"
    elif field.get("type") == "object":
        names = field.get("propertyNames", {})
        values: Any = field.get("additionalProperties")
        if "const" in names:
            yield f"`{{{names['const']}: {_takes(values)}}}`"
        else:
            of = _takes(values) if isinstance(values, dict) else ""
            yield f"name to {of}" if of else "mapping"
    elif field.get("type") == "integer":
        ends = [str(field[name]) for name in ("minimum", "maximum") if name in field]
        yield f"number, {' to '.join(ends)}" if len(ends) == 2 else "number"
    elif field.get("type") == "boolean":
        yield "`true`, `false`"
    else:
        yield "text"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
