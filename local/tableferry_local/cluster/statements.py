"""What a cluster has to know of a statement, and how one of its nodes gets it.

Statements are texts in latin-1, so that an INSERT may be followed by any data.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

CLUSTER = "standin"
"""The cluster's name, and that of the databases with its view of the catalog."""

REPLICATED = (
    "replicated_deduplication_window_seconds = 604801, "
    "max_bytes_to_merge_at_max_space_in_pool = 1, "
)
"""Settings that tell a table that stands for a replicated one, and that keep its parts unmerged but
by the cluster, so that the part that an INSERT has made is known by its number."""

Kind = Literal["create", "definition", "ddl", "insert", "alter", "kill", "other"]

WORD = re.compile(r'(?:`(?:[^`\\]|\\.)*`|"[^"]*"|\w+)')
_WORD = WORD.pattern
_TABLE = rf"(?P<table>(?:{_WORD}\.)?{_WORD})"
_FORMS: tuple[tuple[Kind, str], ...] = (
    ("create", rf"CREATE TABLE (?:IF NOT EXISTS )?{_TABLE}"),
    ("definition", rf"SHOW CREATE TABLE {_TABLE}"),
    ("ddl", rf"(?:DROP|RENAME) TABLE (?:IF EXISTS )?{_TABLE}"),
    ("ddl", rf"EXCHANGE TABLES {_TABLE}"),
    ("insert", rf"INSERT INTO (?:TABLE )?{_TABLE}"),
    ("alter", rf"(?:ALTER TABLE|DELETE FROM|TRUNCATE TABLE(?: IF EXISTS)?) {_TABLE}"),
    ("kill", r"KILL QUERY"),
)
_STATEMENTS = [(kind, re.compile(rf"\s*{form}", re.IGNORECASE)) for kind, form in _FORMS]
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`\\]|\\.)*`", re.DOTALL)
_ON_CLUSTER = re.compile(rf"\s+ON CLUSTER (?:{_WORD}|'[^']*')", re.IGNORECASE)
_ENGINE = re.compile(r"\bENGINE\s*=\s*(Replicated)\w*MergeTree(?P<arguments>\s*\()?")
_PATHS = re.compile(r"\s*'[^']*'\s*,\s*'[^']*'\s*(?:,\s*)?")
_SETTINGS = re.compile(r"\bSETTINGS\s+")
_TAIL = re.compile(r"\s+(?:COMMENT\s+'|AS\s+SELECT\b)|\s*;?\s*\Z")
_CATALOG = re.compile(r"\bsystem\.(tables|databases|replicas)\b")
_OF_ALL = re.compile(r"\bclusterAllReplicas\('\w+', (system\.\w+)\)")


@dataclass(frozen=True)
class Statement:
    """A statement as a node gets it."""

    text: str
    kind: Kind = "other"
    table: str = ""
    """The table that it is about, as it is written."""
    on_cluster: bool = False

    @classmethod
    def read(cls, body: bytes) -> Statement:
        """Read a statement, with the data that follow."""
        text = body.decode("latin-1")
        kind, table = _kind(text)
        if kind == "other":
            return cls(_of_catalog(text))
        if kind == "insert":  # with data, which are no SQL
            head, newline, data = text.partition("\n")
            return cls(_of_catalog(head) + newline + data, kind, table)
        stripped = _cut(text, _ON_CLUSTER)
        on_cluster = stripped != text
        if kind == "create":
            stripped = _plain_engine(stripped)
        return cls(_of_catalog(stripped), kind, table, on_cluster)

    @property
    def body(self) -> bytes:
        """The statement as it is sent."""
        return self.text.encode("latin-1")

    def of(self, table: str) -> Statement:
        """The statement about a table of another name."""
        return replace(self, text=self.text.replace(self.table, table, 1), table=table)

    def with_uuid(self) -> Statement:
        """The statement that makes the same table on each node."""
        return replace(
            self, text=self.text.replace(self.table, f"{self.table} UUID '{uuid.uuid4()}'", 1)
        )

    def setting(self, name: str, settings: Mapping[str, str]) -> str:
        """The value of a setting for this statement; empty if it is not set."""
        head = self.text if self.kind != "insert" else self.text.partition("\n")[0]
        match = re.search(rf"\b{name}\s*=\s*'?(\w+)", _masked(head))
        return match[1] if match else settings.get(name, "")


def _kind(text: str) -> tuple[Kind, str]:
    """What kind of statement it is, and about which table."""
    for kind, pattern in _STATEMENTS:
        if match := pattern.match(text):
            return kind, match.groupdict().get("table") or ""
    return "other", ""


def _plain_engine(text: str) -> str:
    """A CREATE TABLE of a Replicated engine as one of a plain one that stands for it."""
    masked = _masked(text)
    if not (engine := _ENGINE.search(masked)):
        return text
    if settings := _SETTINGS.search(masked, engine.end()):
        text = text[: settings.end()] + REPLICATED + text[settings.end() :]
    else:
        tail = _TAIL.search(masked, engine.end())
        assert tail is not None
        text = f"{text[: tail.start()]} SETTINGS {REPLICATED.rstrip(', ')}{text[tail.start() :]}"
    if engine["arguments"] and (paths := _PATHS.match(text, engine.end())):
        text = text[: paths.start()] + text[paths.end() :]
    return text[: engine.start(1)] + text[engine.end(1) :]


def _masked(text: str) -> str:
    """The text with blanks in the place of its constants."""
    return _QUOTED.sub(
        lambda match: f"'{' ' * (len(match[0]) - 2)}'" if match[0][0] == "'" else match[0], text
    )


def _cut(text: str, pattern: re.Pattern[str]) -> str:
    match = pattern.search(_masked(text))
    return text[: match.start()] + text[match.end() :] if match else text


def _of_catalog(text: str) -> str:
    return _CATALOG.sub(rf"{CLUSTER}.\1", _OF_ALL.sub(r"\1", text))


def quoted(name: str) -> str:
    """A name as ClickHouse reads it."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    """A text as a constant of ClickHouse."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _as_replicated(column: str, before: str) -> str:
    """SQL for a text of the catalog with the engine and the settings of a replicated table."""
    path = "'/clickhouse/tables/{uuid}/{shard}', '{replica}'"
    pattern = literal(rf"({before})(\w*MergeTree)(\(([^)]*)\))?")
    text = f"replace({column}, {literal(REPLICATED)}, '')"
    named = literal(rf"\1Replicated\2({path}, \4)")
    shown = f"replaceRegexpOne({text}, {pattern}, {named})"
    bare = literal(path + ")")
    return f"if(own, replaceOne({shown}, {literal(path + ', )')}, {bare}), {column}) AS {column}"


_OWN = f"position(engine_full, {literal(REPLICATED)}) > 0"

VIEWS = (
    f"CREATE DATABASE IF NOT EXISTS {CLUSTER}",
    f"CREATE OR REPLACE VIEW {CLUSTER}.tables AS SELECT * EXCEPT own REPLACE ("
    f"{_as_replicated('create_table_query', 'ENGINE = ')}, {_as_replicated('engine_full', '^')}, "
    "if(own, concat('Replicated', engine), engine) AS engine) "
    f"FROM (SELECT *, {_OWN} AS own FROM system.tables)",
    f"CREATE OR REPLACE VIEW {CLUSTER}.databases AS SELECT * REPLACE "
    "(if(comment = 'Replicated', comment, engine) AS engine) FROM system.databases",
    f"CREATE OR REPLACE VIEW {CLUSTER}.replicas AS SELECT database, name AS table, "
    "toUInt32(2) AS total_replicas, (SELECT toUInt32(count()) FROM system.clusters "
    f"WHERE cluster = '{CLUSTER}') AS active_replicas FROM system.tables WHERE {_OWN}",
)
"""The catalog as a cluster shows it."""
