"""T-SQL text to tokens and syntax trees, with function calls and types left as written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import sqlglot.errors
from sqlglot import exp
from sqlglot.dialects.tsql import TSQL
from sqlglot.parsers.tsql import TSQLParser
from sqlglot.tokenizer_core import Token, TokenType

from tableferry_local.sqlserver.errors import SqlError, syntax_error
from tableferry_local.sqlserver.types.sqltype import ALIASES, SYSTEM_TYPES

# Several words that make one type name, as ISO allows them.
_LONG_TYPES = {
    ("double", "precision"): "float",
    ("character", "varying"): "varchar",
    ("char", "varying"): "varchar",
    ("binary", "varying"): "varbinary",
    ("national", "character", "varying"): "nvarchar",
    ("national", "char", "varying"): "nvarchar",
    ("national", "character"): "nchar",
    ("national", "char"): "nchar",
    ("national", "text"): "ntext",
}

TYPE_NAMES = {*SYSTEM_TYPES, *ALIASES}

QUOTED = {TokenType.IDENTIFIER, TokenType.STRING, TokenType.NATIONAL_STRING}


class _Parser(TSQLParser):
    """Leaves function calls as written: what they mean and return is decided by `functions`."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: TSQLParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "CONVERT")
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CASE": TSQLParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
    }

    def _parse_type(
        self, parse_interval: bool = True, fallback_to_identifier: bool = False
    ) -> exp.Expr | None:
        # T-SQL has no typed literals, and type names are ordinary column names
        return self._parse_id_var() if fallback_to_identifier else self._parse_column()

    def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        index = self._index
        rest = self._tokens[index : index + 24]
        try:
            text, used = type_text(rest)
        except SqlError:
            return None
        self._advance(used)
        if self._match(TokenType.COLLATE):
            self._advance()
        return exp.DataType(this=exp.DType.USERDEFINED, kind=text)


class StandInTSQL(TSQL):
    """sqlglot's T-SQL without its free-text commands, so that every token reaches us."""

    class Tokenizer(TSQL.Tokenizer):
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind
            for word, kind in TSQL.Tokenizer.KEYWORDS.items()
            if kind != TokenType.COMMAND
            and not (" " in word and word not in ("GROUP BY", "ORDER BY", "PARTITION BY"))
            and kind
            not in (TokenType.HINT, TokenType.INTERVAL, TokenType.ISNULL, TokenType.NOTNULL)
        }
        COMMANDS: ClassVar[set[TokenType]] = set()

    Parser = _Parser


_dialect = StandInTSQL()


def tokenize(text: str) -> list[Token]:
    """Split a batch into tokens.

    Raises:
        SqlError: 105, a quotation mark or comment is not closed.
    """
    try:
        found = _dialect.tokenize(text)
    except sqlglot.errors.TokenError:
        raise SqlError(105, 15, "Unclosed quotation mark after the character string ''.") from None
    for at, token in enumerate(found):
        # sqlglot takes the empty binary literal for a name
        if token.token_type == TokenType.IDENTIFIER and text[token.start : token.end + 1] in _EMPTY:
            found[at] = _empty(token)
    return found


_EMPTY = ("0x", "0X")


def _empty(token: Token) -> Token:
    return Token(
        TokenType.HEX_STRING, "", token.line, token.col, token.start, token.end, token.comments
    )


def parse_query(tokens: Sequence[Token]) -> exp.Expr:
    """Parse the tokens of one query (SELECT, WITH ... SELECT, a set operation).

    Raises:
        SqlError: 102, incorrect syntax.
    """
    return _parse(tokens, lambda parser: parser._parse_statement())


def parse_expression(tokens: Sequence[Token]) -> exp.Expr:
    """Parse the tokens of one expression or condition.

    Raises:
        SqlError: 102, incorrect syntax.
    """
    return _parse(tokens, lambda parser: parser._parse_disjunction())


def _parse(tokens: Sequence[Token], method: Any) -> exp.Expr:
    if not tokens:
        raise syntax_error("")
    # the parser keeps state, so each parse has its own
    parser = _dialect.parser()
    try:
        found = parser._parse(method, list(tokens), "")
    except sqlglot.errors.ParseError as error:
        details = error.errors[0] if error.errors else {}
        raise syntax_error(str(details.get("highlight") or tokens[0].text)) from None
    if len(found) != 1 or found[0] is None or isinstance(found[0], exp.Command):
        raise syntax_error(tokens[0].text)
    return found[0]


def type_text(tokens: Sequence[Token]) -> tuple[str, int]:
    """Read a type such as `nvarchar(max)` at the start of the tokens.

    Returns:
        The type in lower case, and how many tokens it took.

    Raises:
        SqlError: 102, there is no type.
    """
    words = [token.text.lower() for token in tokens]
    if not words or tokens[0].token_type in (TokenType.STRING, TokenType.NUMBER):
        raise syntax_error(words[0] if words else "")
    used, name = 1, words[0]
    for length in (3, 2):
        long_name = _LONG_TYPES.get(tuple(words[:length]))
        if long_name:
            used, name = length, long_name
            break
    if words[used : used + 1] == ["."] and len(words) > used + 1:
        name, used = words[used + 1], used + 2
    if name not in TYPE_NAMES:
        raise syntax_error(tokens[0].text)
    if words[used : used + 1] == ["("]:
        end = words.index(")", used) if ")" in words[used:] else -1
        if end < 0:
            raise syntax_error("(")
        name += "(" + "".join(words[used + 1 : end]) + ")"
        used = end + 1
    return name, used


def word(token: Token) -> str:
    """The token in upper case if it is a word or a sign, '' if it is quoted."""
    return "" if token.token_type in QUOTED else token.text.upper()
