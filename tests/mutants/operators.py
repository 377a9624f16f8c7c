"""What a mutant is, and all of them that a source has."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from tests.mutants import in_c

_COMPARISONS = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
    ast.BitXor: ("^", "|"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_FUNCTIONS = {"any": "all", "all": "any", "min": "max", "max": "min"}
_SQL = (
    (r" AND ", " OR "),
    (r" OR ", " AND "),
    (r"\bIS NULL\b", "IS NOT NULL"),
    (r"\bIS NOT NULL\b", "IS NULL"),
    (r"\bNOT (?!NULL|IN\b)", ""),
    (r" >= ", " > "),
    (r" > ", " >= "),
    (r" <= ", " < "),
    (r" < ", " <= "),
    (r" = ", " <> "),
    (r" <> ", " = "),
    (r"\bMIN\(", "MAX("),
    (r"\bMAX\(", "MIN("),
    (r"\bDISTINCT ", ""),
    (r"\bUNION ALL\b", "UNION"),
    (r"\bFULL (OUTER )?JOIN\b", "LEFT JOIN"),
    (r"\bLEFT (OUTER )?JOIN\b", "JOIN"),
    (r"\bWHERE ", "WHERE NOT "),
    (r" \+ 1\b", " + 2"),
    (r" DESC\b", ""),
)


Place = tuple[str, str, str, str]
"""The file, the function or class in it, and the line before and after."""


@dataclass(frozen=True)
class Mutant:
    """One change of one place.

    `within` is the function or class, `before` and `after` are the lines of the statement, or of
    the head of one that has a body, with single spaces; together they outlive changes elsewhere.
    """

    file: str
    within: str
    function: str | None
    """The function whose body it is in, or the outermost of several; None: the module's, a
    class's, or the default of a parameter."""
    before: str
    after: str
    line: int
    start: int
    """Where the bytes that are replaced begin, and where they end."""
    end: int
    text: str

    @property
    def module(self) -> str:
        """The module by which tests get to it: of a source in C, its package."""
        path = PurePath(self.file)
        return str(path.with_name("__init__.py")) if path.suffix == ".c" else self.file

    @property
    def place(self) -> Place:
        """What a verdict is about."""
        return self.file, self.within, self.before, self.after

    def rank(self, seed: int) -> str:
        """Orders mutants at random, and each of them by itself: what is edited moves no other."""
        return hashlib.sha256("\0".join((str(seed), *self.place)).encode()).hexdigest()

    def applied(self, source: str) -> str:
        """The source with the change."""
        raw = source.encode()
        return (raw[: self.start] + self.text.encode() + raw[self.end :]).decode()


@dataclass(frozen=True)
class _At:
    """Where a node is: as in `Mutant`, and the bytes of the lines to show."""

    within: str
    function: str | None
    shown: tuple[int, int]


class _Source:
    """Text by the positions of the syntax tree, which count bytes."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.raw = text.encode()
        self._lines = [0]
        for line in self.raw.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, start: int, end: int) -> str:
        return self.raw[start:end].decode()

    def mutant(self, at: _At, start: int, end: int, text: str) -> Mutant:
        shown = at.shown
        before = self.text(*shown)
        after = self.text(shown[0], start) + text + self.text(end, shown[1])
        line = self.raw.count(b"\n", 0, start) + 1
        before, after = (" ".join(part.split()) for part in (before, after))
        return Mutant(self.file, at.within, at.function, before, after, line, start, end, text)


def mutants(file: str, text: str) -> list[Mutant]:
    """All mutants of a source, one per place and operator, each with another text.

    Left out: docstrings, annotations, assertions, what is imported, what is logged, and the words
    of errors.
    """
    source = _Source(file, text)
    if file.endswith(".c"):
        every = (
            source.mutant(_At(within, within, shown), *change)
            for within, shown, *change in in_c.changes(text)
        )
    else:
        every = _below(source, ast.parse(text), _At("", None, (0, len(source.raw))))
    unlike = {(one.within, one.before, one.after): one for one in every if one.before != one.after}
    return sorted(unlike.values(), key=lambda one: (one.start, one.text))


def _below(source: _Source, node: ast.AST, at: _At) -> Iterator[Mutant]:
    """The mutants of a node and of what is below it."""
    if _left_out(node):
        return
    named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    if named:
        at = replace(at, within=f"{at.within}.{node.name}".lstrip("."))
    if isinstance(node, ast.stmt):
        body = getattr(node, "body", None)
        shown = (source.start(node), source.start(body[0]) if body else source.end(node))
        at = replace(at, shown=shown)
    for change in _changes(source, node):
        yield source.mutant(at, *change)
    if isinstance(node, (ast.JoinedStr, ast.Raise)):
        return  # until Python 3.12 what is inside of the first has no positions to trust
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        inner = at
        if name == "body" and named and not isinstance(node, ast.ClassDef):
            inner = replace(at, function=at.function or at.within)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _below(source, child, inner)


def _left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Expr):
        text = ast.unparse(node)
        return isinstance(node.value, ast.Constant) or bool(re.match(r"\w*log(ger)?\.", text))
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal))


def _changes(source: _Source, node: ast.AST) -> Iterator[tuple[int, int, str]]:
    """What a node may be changed to: where the change begins and ends, and the text."""
    if isinstance(node, (ast.Raise, ast.AugAssign, ast.Delete)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Yield, ast.Await))
    ):
        yield source.start(node), source.end(node), "pass"
    elif isinstance(node, (ast.Continue, ast.Break)):
        other = "break" if isinstance(node, ast.Continue) else "continue"
        yield source.start(node), source.end(node), other
    elif isinstance(node, ast.Return) and node.value and not _is_none(node.value):
        yield source.start(node.value), source.end(node.value), "None"
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for left, right, operator in zip(sides, sides[1:], node.ops, strict=False):
            yield from _between(source, left, right, _COMPARISONS[type(operator)])
    elif isinstance(node, ast.BoolOp):
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from _between(source, left, right, words)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        if not any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in _sides(node)):
            yield from _between(source, node.left, node.right, _ARITHMETIC[type(node.op)])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = source.text(source.start(node.operand), source.end(node.operand))
        yield source.start(node), source.end(node), f"bool({inner})"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if other := _FUNCTIONS.get(node.func.id):
            yield source.start(node.func), source.end(node.func), other
    elif isinstance(node, ast.JoinedStr) or _is_text(node):
        assert isinstance(node, ast.expr)
        start, text = source.start(node), source.text(source.start(node), source.end(node))
        for pattern, other in _SQL:
            for match in re.finditer(pattern, text):
                at = start + len(text[: match.start()].encode())
                yield at, at + len(match.group().encode()), other
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield source.start(node), source.end(node), str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield source.start(node), source.end(node), str(node.value + 1)
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield from _negated(source, node.test)
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield from _negated(source, test)


def _between(
    source: _Source, left: ast.expr, right: ast.expr, words: tuple[str, str]
) -> Iterator[tuple[int, int, str]]:
    """An operator exchanged, which stands between two nodes (and parentheses, and comments)."""
    start, end = source.end(left), source.start(right)
    if match := re.search(rf"(?<!\w){re.escape(words[0])}(?!\w)", source.text(start, end)):
        yield start + match.start(), start + match.end(), words[1]


def _negated(source: _Source, test: ast.expr) -> Iterator[tuple[int, int, str]]:
    """A condition, unless what it is made of is mutated anyway."""
    if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)):
        start, end = source.start(test), source.end(test)
        yield start, end, f"(not ({source.text(start, end)}))"


def _sides(node: ast.BinOp) -> tuple[ast.expr, ast.expr]:
    return node.left, node.right


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
