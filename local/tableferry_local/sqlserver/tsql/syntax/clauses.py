"""Cutting a statement's tokens into its clauses."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from tableferry_local.sqlserver.errors import syntax_error
from tableferry_local.sqlserver.tsql.syntax.parsing import tokenize, word

Tokens = Sequence[Token]


def matching(tokens: Tokens, at: int) -> int:
    """The position of the parenthesis that closes the one at `at`.

    Raises:
        SqlError: 102, it is not closed.
    """
    depth = 0
    for position in range(at, len(tokens)):
        sign = word(tokens[position])
        if sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
            if not depth:
                return position
    raise syntax_error("(")


def split(tokens: Tokens, separator: str = ",") -> list[Tokens]:
    """The tokens between separators that are not in parentheses."""
    parts, start, depth = [], 0, 0
    for at, token in enumerate(tokens):
        sign = word(token)
        if sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
        elif sign == separator and not depth:
            parts.append(tokens[start:at])
            start = at + 1
    parts.append(tokens[start:])
    return parts


def find(tokens: Tokens, words: set[str], start: int = 0) -> int:
    """The first position outside of parentheses and CASE of one of the words; else the end."""
    depth = cases = 0
    for at in range(start, len(tokens)):
        sign = word(tokens[at])
        if sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
        elif sign == "CASE":
            cases += 1
        elif sign == "END" and cases:
            cases -= 1
        elif not depth and not cases and sign in words:
            return at
    return len(tokens)


def name_at(tokens: Tokens, at: int) -> tuple[list[str], int]:
    """Read `a.b.c`, `db..t`, `#t` or `@t`.

    Returns:
        The parts as written, and the position after them.

    Raises:
        SqlError: 102, there is no name.
    """
    parts: list[str] = []
    while at < len(tokens):
        prefix = ""
        while at < len(tokens) and tokens[at].token_type in (TokenType.HASH, TokenType.PARAMETER):
            prefix += tokens[at].text
            at += 1
        if at >= len(tokens):
            break
        token = tokens[at]
        if not prefix and word(token) == ".":
            parts.append("")
            at += 1
            continue
        if token.token_type in (TokenType.STRING, TokenType.NUMBER) or (
            token.token_type != TokenType.IDENTIFIER and not _is_word(token.text)
        ):
            break
        parts.append(prefix + token.text)
        at += 1
        if at < len(tokens) and word(tokens[at]) == ".":
            at += 1
            continue
        return parts, at
    raise syntax_error(tokens[at].text if at < len(tokens) else "")


def _is_word(text: str) -> bool:
    return (bool(text) and (text[0].isalpha() or text[0] in "_$")) or text[:1] in "@#"


def name_list(tokens: Tokens, at: int) -> tuple[list[str], int]:
    """Read `(a, b, c)`.

    Returns:
        The names, and the position after the parenthesis.
    """
    end = matching(tokens, at)
    return [name_at(part, 0)[0][-1] for part in split(tokens[at + 1 : end])], end + 1


def prefixed(text: str, tokens: Tokens) -> list[Token]:
    """Tokens with the tokens of some text in front."""
    return [*tokenize(text), *tokens]


def words(tokens: Tokens, count: int = 6) -> list[str]:
    """The first words in upper case."""
    return [word(token) for token in tokens[:count]]
