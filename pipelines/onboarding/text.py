"""Writes a proposal as the commented YAML of a transfer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from tableferry.assets.declaring.variables import escaped
from tableferry.checks.levels import LEVELS
from tableferry.pipelines.onboarding.planning import ColumnDecision
from tableferry.pipelines.onboarding.proposal import Proposal
from tableferry.resources.words import one_line

SCHEMA_FILE = "transfer.schema.json"
MODELINE = f"# yaml-language-server: $schema=./{SCHEMA_FILE}"
"""Tells editors the schema of a file: https://github.com/redhat-developer/yaml-language-server"""

OPTIONS = """\
# Other keys, with their defaults; defaults.yaml sets them for all files of this folder.
# docs/reference.md explains every key.
# write: replace              # append, upsert or swap
# deletes: keep               # apply, {{mark: column}}: with upsert, rows that the source deleted
# reconcile: checksum         # {levels}
# fingerprint: auto           # content, row_version, none or {{watermark: {watermark}}}
# incremental: false          # true: only newer rows of a range; with upsert and a watermark
# on_schema_drift: fail       # add_columns, evolve or ignore_new
# dropped_columns:            # keep, null or drop: of a column that the source has no more
# on_reject: fail             # quarantine: keep rows that do not fit beside the target
# profile: balanced           # safe or throughput
# exclude: []                 # columns to leave out
# tags: {{team: sales}}
# owners: ["team:sales"]
# schedule: "0 2 * * *"       # UTC: move what changed
# check_schedule: "0 6 * * 0" # UTC: compare, move nothing
# freshness: schedule         # stale an hour after a tick was due; 36h, 7d or none
"""

DEFAULTS_TEXT = """\
# Defaults of the transfer files in this folder. A file's own keys take precedence; `tags`, `checks`
# and `parallel` of both are merged. `transfer`, `source` and `hops` can only be in the files.
#
# reconcile: checksum
# on_schema_drift: fail
# profile: balanced
# parallel: {export: 4, load: 2}
# tags: {team: sales}
# owners: ["team:sales"]
# schedule: "0 2 * * *"
"""


def transfer_text(name: str, proposal: Proposal) -> str:
    """Return the text of a transfer's file."""
    return "\n".join([*_lines(name, proposal), ""])


def scalar(text: str) -> str:
    """Quote a text as a YAML value on one line, for any context."""
    plain = yaml.safe_dump(
        [text], default_flow_style=True, allow_unicode=True, width=1 << 30
    ).strip()[1:-1]
    if plain.isprintable() and yaml.safe_load(f"[{plain}]") == [text]:
        return plain
    return yaml.safe_dump(text, default_style='"', width=1 << 30).strip()


def block(text: str) -> str:
    """Quote a text as a YAML value at the end of a line, with `${...}` in it escaped."""
    text = escaped(text)
    plain = text.isprintable() and " #" not in text and ": " not in text
    return text if plain and yaml.safe_load(f"- {text}") == [text] else scalar(text)


def _lines(name: str, proposal: Proposal) -> Iterator[str]:
    yield MODELINE
    yield "# Written by `ferry init` from the catalog, and yours to edit."
    yield f"# Then: ferry validate {name}, ferry plan {name}, ferry run {name}"
    yield f"transfer: {name}"
    yield f"source: {block(str(proposal.source))}"
    yield "hops:"
    for hop in proposal.hops:
        if hop in proposal.shortened:
            yield f"  # REVIEW: {one_line(proposal.shortened[hop])}"
        yield f"  - {block(str(hop))}"
    yield ""
    yield from _key(proposal)
    yield ""
    yield from _ranges(proposal)
    yield from (f"{key}: {block(value)}" for key, value in proposal.settings.items())
    yield ""
    yield from _decisions(proposal.decisions)
    yield from _types(proposal)
    yield ""
    *others, strictest = (level for level in LEVELS if level != "checksum")
    yield OPTIONS.format(
        watermark=scalar(proposal.watermark or "updated_at"),
        levels=f"{', '.join(others)} or {strictest}",
    ).rstrip()


def _key(proposal: Proposal) -> Iterator[str]:
    if proposal.key is None:
        yield f"# The table is divided by its blocks: {proposal.why_key}."
        if proposal.keys:
            yield "# An update moves a row to another block, and its range is moved again. If one"
            yield "# of these columns is better, use it with `ranges: {rows: ...}`:"
            for choice in proposal.keys:
                yield f"# key: {block(str(choice.value))}  # {choice.meaning}"
        ranges = proposal.ranges
        yield f"ranges: {{by: {ranges['by']}, count: {ranges['count']}}}"
        if "write" not in proposal.settings:
            yield "write: replace  # no upsert, as no column says which row is which"
        return
    others = [f"{scalar(str(choice.value))} ({choice.meaning})" for choice in proposal.keys[:5]]
    yield f"# This column divides the ranges: {proposal.why_key}."
    if others:
        yield f"# It could also be {'; '.join(others)}."
    yield f"key: {block(proposal.key)}"


def _ranges(proposal: Proposal) -> Iterator[str]:
    size, rows, number = proposal.size, proposal.range_rows, proposal.range_count
    bytes_text = ""
    if size.bytes and size.rows:
        per_range = size.bytes * min(rows, size.rows) // size.rows
        row_bytes = size.bytes // size.rows
        bytes_text = f" of {row_bytes:,} bytes, {per_range / 2**20:,.1f} MiB per range"
    ranges = "one range" if number == 1 else f"{number:,} ranges"
    yield f"# About {size.rows:,} rows{bytes_text}: {ranges}, and room to grow."
    if proposal.key is not None:
        yield f"ranges: {{rows: {rows}}}"


def _decisions(decisions: Sequence[ColumnDecision]) -> Iterator[str]:
    typed = [decision for decision in decisions if decision.choices]
    excluded = [decision for decision in decisions if not decision.choices]
    if excluded:
        yield "# REVIEW: these columns stay behind:"
        yield from (f"#   {one_line(f'{one.column}: {one.why}')}" for one in excluded)
        yield f"exclude: [{', '.join(scalar(escaped(one.column)) for one in excluded)}]"
    if typed:
        yield "# REVIEW: what these columns become, or use another of their lines:"
        yield "columns:"
    for decision in typed:
        yield f"  # {one_line(f'{decision.column}: {decision.why}')}"
        name = scalar(decision.column)  # variables stand in values only
        for number, choice in enumerate(decision.choices):
            yield f"  {'# ' * (number > 0)}{name}: {flow(choice.value)}  # {choice.meaning}"
    if decisions:
        yield ""


def flow(value: Mapping[str, Any]) -> str:
    """Write a mapping as YAML on one line, with texts quoted."""
    parts = (
        f"{scalar(key)}: {flow(part) if isinstance(part, Mapping) else _quoted(part)}"
        for key, part in value.items()
    )
    return f"{{{', '.join(parts)}}}"


def _quoted(text: str) -> str:
    return yaml.safe_dump(
        escaped(text), default_style='"', allow_unicode=True, width=1 << 30
    ).strip()


def _types(proposal: Proposal) -> Iterator[str]:
    """Tabulate the types of each column in the source and the targets."""
    heads = [table.system.title for table in (proposal.source, *proposal.hops)]
    rows = [["column", *heads]]
    for name, types in proposal.types.items():
        rows.append([scalar(name), *types, *["left out"] * (len(heads) - len(types))])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads) + 1)]
    yield "# The columns' types:"
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"#   {'  '.join(cells)}".rstrip()
