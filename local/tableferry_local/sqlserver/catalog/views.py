"""SQL Server's catalog views over our catalog, each a PostgreSQL function of the database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tableferry_local.sqlserver.types.sqltype import SqlType, storage
from tableferry_local.sqlserver.types.typerules import parse_type

_FILE = Path(__file__).with_suffix(".sql")
_SYNONYMS = {"all_columns": "columns"}


@dataclass(frozen=True)
class SystemView:
    """A view: its columns with their T-SQL types, and the PostgreSQL query behind."""

    function: str
    columns: tuple[tuple[str, SqlType, str], ...]
    source: str

    @property
    def ddl(self) -> str:
        """CREATE FUNCTION with the database's name as its argument."""
        names = ", ".join(f'"{name}" {storage(kind)}' for name, kind, _ in self.columns)
        items = ", ".join(f"({sql})::{storage(kind)}" for _, kind, sql in self.columns)
        return (
            f'CREATE FUNCTION sys."{self.function}"(db text) RETURNS TABLE ({names}) '
            f"LANGUAGE sql STABLE AS $view$ SELECT {items} {self.source} $view$"
        )


def _read(text: str) -> dict[tuple[str, str], SystemView]:
    definitions: dict[str, str] = {}
    views: dict[tuple[str, str], SystemView] = {}
    for paragraph in re.split(r"^-- (?=define |view )", text, flags=re.M)[1:]:
        head, _, body = paragraph.partition("\n")
        word, name = head.split()
        body = re.sub(r"\{(\w+)\}", lambda found: definitions[found[1]], body.strip())
        # an indented line continues the one before
        body = re.sub(r"\n\s+", " ", body)
        if word == "define":
            definitions[name] = body
            continue
        schema, _, view = name.partition(".")
        views[schema, view] = _view(f"v_{view}" if schema == "sys" else f"v_{schema}_{view}", body)
    for synonym, view in _SYNONYMS.items():
        views["sys", synonym] = views["sys", view]
    return views


def _view(function: str, body: str) -> SystemView:
    columns = []
    lines = body.splitlines()
    while lines and not lines[0].startswith("FROM "):
        name, kind, sql = lines.pop(0).split(maxsplit=2)
        columns.append((name, parse_type(kind), sql))
    return SystemView(function, tuple(columns), " ".join(lines))


SYSTEM_VIEWS = _read(_FILE.read_text())
"""By schema and name in lower case."""
