"""Errors are short, and the guide explains messages that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice

from tests.guide import DOCS, ROOT

PACKAGES = ("assets", "checks", "pipelines", "resources", "sensors")
LONGEST = 240
"""Characters of a message's own text: with the names and values in it, some three lines."""
OF_SERVERS = (
    "... password authentication failed",
    "Authentication failed",
    "18456",
    "permission denied for ...",
    "... permission was denied ...",
    "... permission denied in database ...",
    "permission denied to set parameter ...",
    "Not enough privileges",
    "Too many parts ...",
    "TOO_FEW_LIVE_REPLICAS",
    "REPLICA_IS_NOT_IN_QUORUM",
    "TABLE_IS_READ_ONLY",
    "function ... does not exist",
    "operator does not exist",
    "type ... does not exist",
    "canceling statement due to conflict with recovery",
    "bcp cannot be run: argument list too long",
    "query_wait_timeout",
    "... libkrb5 ...",
    "libltdl ...",
)
"""Messages on the page that servers, drivers and systems print, not Tableferry."""


@cache
def trees() -> list[tuple[str, ast.Module]]:
    paths = (path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")))
    return [
        (str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))) for path in paths
    ]


def text_of(node: ast.AST) -> str:
    """The text of a string or f-string, with a gap for each value."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(text_of, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
    return " § "


def found_words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_:][\w:]*|§", text)


@cache
def known() -> set[tuple[str, ...]]:
    """Each three words, and each two, that follow one another in a string of the code."""
    grams: set[tuple[str, ...]] = set()
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
                words = found_words(text_of(node))
                for size in (1, 2, 3):
                    grams |= set(
                        zip(*(islice(words, at, None) for at in range(size)), strict=False)
                    )
    return grams


def explained() -> Iterator[str]:
    """The messages in the first column of the page's tables."""
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    for row in re.findall(r"^\| (.*?) \| ", page, re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", row)


def test_each_message_that_the_guide_explains_is_one() -> None:
    unknown = []
    for message in explained():
        if message in OF_SERVERS:
            continue
        parts = [found_words(part) for part in re.split(r"\.\.\.|'[^']*'|\d[\d,%]*", message)]
        size = min(3, max(map(len, parts)))
        grams = [
            gram
            for words in parts
            for gram in zip(*(words[at:] for at in range(size)), strict=False)
        ]
        if sum(gram in known() for gram in grams) * 2 < max(1, len(grams)):
            unknown.append(message)
    assert unknown == []


def test_an_error_is_three_lines_at_most() -> None:
    long = [
        (len(text), f"{path}:{node.lineno}", text)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        for text in map(text_of, node.exc.args)
        if len(text) > LONGEST
    ]
    assert sorted(long, reverse=True) == []
