"""CREATE TABLE's and ALTER TABLE's column and constraint definitions, read from tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot.tokenizer_core import TokenType

from tableferry_local.sqlserver.errors import syntax_error, unsupported
from tableferry_local.sqlserver.tsql.syntax.clauses import (
    Tokens,
    find,
    matching,
    name_at,
    split,
    words,
)
from tableferry_local.sqlserver.tsql.syntax.parsing import type_text, word
from tableferry_local.sqlserver.types.sqltype import SqlType
from tableferry_local.sqlserver.types.typerules import parse_type

_BEHIND_A_FORMULA = {"CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "PERSISTED"}


@dataclass
class KeyDef:
    """A PRIMARY KEY, UNIQUE or INDEX."""

    kind: str
    """PK, UQ or IX."""
    columns: list[tuple[str, bool]]
    """Names, and whether descending."""
    name: str | None = None
    clustered: bool | None = None
    unique: bool = True


@dataclass
class ColumnDef:
    """A column as it is declared."""

    name: str
    type: SqlType | None
    """None for a computed column."""
    nullable: bool | None = None
    collation: str | None = None
    identity: tuple[int, int] | None = None
    default: Tokens | None = None
    default_name: str | None = None
    with_values: bool = False
    computed: Tokens | None = None


@dataclass
class TableItems:
    """What a list of definitions holds."""

    columns: list[ColumnDef] = field(default_factory=list)
    keys: list[KeyDef] = field(default_factory=list)
    defaults: list[tuple[str, Tokens, str | None]] = field(default_factory=list)
    """ALTER TABLE ... ADD DEFAULT: column, expression, name."""


def read_items(tokens: Tokens) -> TableItems:
    """Read the definitions between the parentheses of CREATE TABLE, or after ALTER TABLE ... ADD.

    Raises:
        SqlError: 102.
    """
    items = TableItems()
    for part in split(tokens):
        if not part:
            raise syntax_error(")")
        _item(part, items)
    return items


def _item(tokens: Tokens, items: TableItems) -> None:
    name = None
    at = 0
    if words(tokens, 1) == ["CONSTRAINT"]:
        names, at = name_at(tokens, 1)
        name = names[-1]
    head = words(tokens[at:], 2)
    if head[:1] in (["PRIMARY"], ["UNIQUE"], ["FOREIGN"], ["CHECK"], ["INDEX"]):
        _constraint(tokens, at, name, None, items)
    elif head[:1] == ["DEFAULT"]:
        expression, at = _default(tokens, at + 1)
        if words(tokens[at : at + 1]) != ["FOR"]:
            raise syntax_error("DEFAULT")
        items.defaults.append((name_at(tokens, at + 1)[0][-1], expression, name))
    else:
        _column(tokens, items)


def _column(tokens: Tokens, items: TableItems) -> None:
    names, at = name_at(tokens, 0)
    column = ColumnDef(names[-1], None)
    items.columns.append(column)
    if words(tokens[at : at + 1]) == ["AS"]:
        end = find(tokens, _BEHIND_A_FORMULA, at)
        column.computed = tokens[at + 1 : end]
        at = end
    elif at >= len(tokens) and names[-1].lower() == "timestamp":
        column.type = SqlType("timestamp")
    else:
        text, used = type_text(tokens[at:])
        column.type = parse_type(text)
        at += used
        if text == "sysname":
            column.nullable = False
    name = None
    while at < len(tokens):
        head = words(tokens[at:], 3)
        if head[0] == "CONSTRAINT":
            names, at = name_at(tokens, at + 1)
            name = names[-1]
            continue
        if head[0] == "NULL":
            column.nullable, at = True, at + 1
        elif head[:2] == ["NOT", "NULL"]:
            column.nullable, at = False, at + 2
        elif head[0] == "COLLATE":
            column.collation, at = tokens[at + 1].text, at + 2
        elif head[0] == "IDENTITY":
            column.identity, at = _identity(tokens, at + 1)
        elif head[0] == "DEFAULT":
            column.default, at = _default(tokens, at + 1)
            column.default_name = name
        elif head[:2] == ["WITH", "VALUES"]:
            column.with_values, at = True, at + 2
        elif head[0] == "PERSISTED":
            at += 1
        else:
            at = _constraint(tokens, at, name, column.name, items)
        name = None


def _identity(tokens: Tokens, at: int) -> tuple[tuple[int, int], int]:
    if words(tokens[at : at + 1]) != ["("]:
        return (1, 1), at
    end = matching(tokens, at)
    seed, step = ("".join(token.text for token in part) for part in split(tokens[at + 1 : end]))
    return (int(seed), int(step)), end + 1


def _default(tokens: Tokens, at: int) -> tuple[Tokens, int]:
    """A constant expression: parentheses, a literal, or a function call, with a sign before."""
    start = at
    while words(tokens[at : at + 1]) in (["-"], ["+"]):
        at += 1
    if at >= len(tokens):
        raise syntax_error("DEFAULT")
    if word(tokens[at]) == "(":
        at = matching(tokens, at) + 1
    else:
        literal = tokens[at].token_type in (
            TokenType.STRING,
            TokenType.NUMBER,
            TokenType.NATIONAL_STRING,
        )
        at += 1
        while not literal and words(tokens[at : at + 1]) == ["."]:
            at += 2
        if words(tokens[at : at + 1]) == ["("]:
            at = matching(tokens, at) + 1
    return tokens[start:at], at


def _constraint(
    tokens: Tokens, at: int, name: str | None, column: str | None, items: TableItems
) -> int:
    """Read one constraint of a column (if given) or of the table; returns where it ends."""
    head = words(tokens[at:], 3)
    if head[:2] == ["PRIMARY", "KEY"] or head[0] == "UNIQUE":
        key = KeyDef("PK" if head[0] == "PRIMARY" else "UQ", [], name)
        at += 2 if head[0] == "PRIMARY" else 1
        at = _key_columns(tokens, at, key, column)
        items.keys.append(key)
        return at
    if head[0] in ("CHECK", "FOREIGN", "REFERENCES", "INDEX"):
        raise unsupported(f"{head[0]} in a definition")
    raise syntax_error(tokens[at].text)


def _key_columns(tokens: Tokens, at: int, key: KeyDef, column: str | None) -> int:
    if words(tokens[at : at + 1]) in (["CLUSTERED"], ["NONCLUSTERED"]):
        key.clustered = word(tokens[at]) == "CLUSTERED"
        at += 1
    if words(tokens[at : at + 1]) == ["("]:
        end = matching(tokens, at)
        key.columns = ordered_names(tokens[at + 1 : end])
        at = end + 1
    elif column is not None:
        key.columns = [(column, False)]
    else:
        raise syntax_error(tokens[at].text if at < len(tokens) else key.kind)
    return at


def ordered_names(tokens: Tokens) -> list[tuple[str, bool]]:
    """Read `a, b DESC`."""
    found = []
    for part in split(tokens):
        names, at = name_at(part, 0)
        found.append((names[-1], words(part[at : at + 1]) == ["DESC"]))
    return found
