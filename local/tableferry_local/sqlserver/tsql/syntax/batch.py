"""A T-SQL batch to a tree of statements: control flow, and where each statement ends."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from tableferry_local.sqlserver.errors import syntax_error, unsupported
from tableferry_local.sqlserver.tsql.syntax.parsing import tokenize, word

# Words that begin a statement; T-SQL needs no semicolon before them.
STARTERS = {
    "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "ALTER", "DROP", "TRUNCATE", "IF",
    "BEGIN", "WHILE", "DECLARE", "SET", "EXEC", "EXECUTE", "PRINT", "RAISERROR", "THROW", "RETURN",
    "COMMIT", "ROLLBACK", "SAVE", "USE", "WAITFOR", "GRANT", "DENY", "REVOKE", "DBCC", "KILL",
}  # fmt: skip


@dataclass
class Statement:
    """One statement without control flow; `kind` is its first word."""

    kind: str
    tokens: list[Token]
    text: str
    line: int
    parsed: Any = field(default=None, repr=False)
    """What the executor made of the tokens; kept, because batches are repeated."""


@dataclass
class Block:
    """BEGIN ... END."""

    body: list[Node]


@dataclass
class If:
    """IF condition statement [ELSE statement]."""

    condition: Statement
    then: Node
    otherwise: Node | None


Node = Statement | Block | If


@functools.lru_cache(maxsize=256)
def parse_batch(text: str) -> tuple[Node, ...]:
    """Parse a batch.

    Raises:
        SqlError: 102 or 105; nothing of the batch may run then.
    """
    tokens = tokenize(text)
    reader = _Reader(tokens, text)
    nodes = reader.statements(set())
    if not reader.done:
        raise syntax_error(reader.token.text)
    return tuple(nodes)


class _Reader:
    def __init__(self, tokens: Sequence[Token], text: str) -> None:
        self._tokens, self._text, self._at = list(tokens), text, 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._tokens)

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def word(self, ahead: int = 0) -> str:
        """The word or sign at the position, '' at the end or where it is quoted."""
        at = self._at + ahead
        return word(self._tokens[at]) if 0 <= at < len(self._tokens) else ""

    def statements(self, stop: set[str]) -> list[Node]:
        """Statements up to one of the words, which is not consumed."""
        found: list[Node] = []
        while not self.done:
            if self.word() == ";":
                self._at += 1
            elif self.word() in stop:
                break
            else:
                found.append(self.statement())
        return found

    def statement(self) -> Node:
        if self.done:
            raise syntax_error("")
        head = self.word()
        if head == "BEGIN":
            following = self.word(1)
            if following == "TRY":
                raise unsupported("BEGIN TRY")
            if following not in ("TRAN", "TRANSACTION", "DISTRIBUTED"):
                self._at += 1
                body = self.statements({"END"})
                self._expect("END")
                return Block(body)
        if head == "IF":
            self._at += 1
            condition = self._condition()
            then = self.statement()
            self._semicolon_before_else()
            if self.word() == "ELSE":
                self._at += 1
                return If(condition, then, self.statement())
            return If(condition, then, None)
        if head == "WHILE":
            raise unsupported("WHILE")
        return self._simple(head)

    def _semicolon_before_else(self) -> None:
        if self.word() == ";" and self.word(1) == "ELSE":
            self._at += 1

    def _expect(self, *words: str) -> None:
        for wanted in words:
            if self.word() != wanted:
                raise syntax_error("" if self.done else self.token.text)
            self._at += 1

    def _condition(self) -> Statement:
        start = self._at
        depth = cases = 0
        while not self.done:
            here = self.word()
            if here in ("(", ")"):
                depth += 1 if here == "(" else -1
            elif here == "CASE":
                cases += 1
            elif here == "END" and cases:
                cases -= 1
            elif not depth and not cases and (here in STARTERS or here == ";"):
                break
            self._at += 1
        return self._made("CONDITION", start)

    def _made(self, kind: str, start: int) -> Statement:
        tokens = self._tokens[start : self._at]
        if not tokens:
            raise syntax_error("" if self.done else self.token.text)
        text = self._text[tokens[0].start : tokens[-1].end + 1]
        return Statement(kind, tokens, text, tokens[0].line)

    def _simple(self, head: str) -> Statement:
        start = self._at
        if head not in STARTERS and head not in ("WITH", "("):
            misplaced = start and self._tokens[start - 1].token_type != TokenType.SEMICOLON
            if misplaced or head in ("END", "ELSE", ")"):
                raise syntax_error(self.token.text)
            # only the first statement of a batch may call a procedure without EXEC
            head = "CALL"
        self._at += 1
        state = _State(head)
        if head == "CREATE" and self._module_word():
            # a view or procedure takes the rest of the batch
            self._at = len(self._tokens)
            while word(self._tokens[self._at - 1]) == ";":
                self._at -= 1
            return self._made(head, start)
        while not self.done:
            here = self.word()
            if here == ";" and not state.depth:
                break
            if state.ends(here, self.word(-1), self.word(1), self.word(2)):
                break
            self._at += 1
        return self._made("SELECT" if head in ("(", "WITH") else head, start)

    def _module_word(self) -> bool:
        ahead = 2 if (self.word(0), self.word(1)) == ("OR", "ALTER") else 0
        return self.word(ahead) in ("VIEW", "PROCEDURE", "PROC", "FUNCTION", "TRIGGER")


class _State:
    """Tells for each token whether it begins the next statement."""

    def __init__(self, head: str) -> None:
        self.head, self.depth, self.cases = head, 0, 0
        self.seen: set[str] = set()
        self.wants_query = head in ("INSERT", "WITH")

    def ends(self, here: str, before: str, after: str, later: str) -> bool:
        if here in ("(", ")"):
            self.depth += 1 if here == "(" else -1
            if self.depth < 0:
                raise syntax_error(")")
            return False
        if self.depth:
            return False
        if here == "CASE":
            self.cases += 1
        elif here == "END":
            if not self.cases:
                return True
            self.cases -= 1
        elif (here == "ELSE" and not self.cases) or (
            here in STARTERS and not self.cases and self._starts(here, before, after, later)
        ):
            return True
        if here in ("VALUES", "DEFAULT") and self.head == "INSERT":
            self.wants_query = False
        self.seen.add(here)
        return False

    def _starts(self, here: str, before: str, after: str, later: str) -> bool:
        if before == "." or (self.head == "CALL" and before in (",", "=")):
            return False
        if self.head in ("GRANT", "DENY", "REVOKE"):
            # what is granted are words that begin statements elsewhere
            return bool(self.seen & {"TO", "FROM"}) and before != "WITH"
        if here in ("SELECT", "EXEC", "EXECUTE") and self.wants_query:
            self.wants_query = False
            return False
        if here == "SELECT":
            return before not in ("UNION", "ALL", "EXCEPT", "INTERSECT", "FOR", "AS")
        if here == "SET":
            # UPDATE t SET ..., and ALTER DATABASE d SET ...
            of_update = self.head == "UPDATE"
            of_database = self.head == "ALTER" and "DATABASE" in self.seen
            return not (of_update or of_database) or "SET" in self.seen
        if here in ("UPDATE", "DELETE", "INSERT"):
            return before != "THEN" and not (before == "ON" and self.head in ("CREATE", "ALTER"))
        if here == "IF":
            return not (self.head in ("DROP", "ALTER") and after == "EXISTS" and later != "(")
        if here in ("ALTER", "DROP") and self.head == "ALTER":
            return bool(self.seen & {"ADD", "DROP", "ALTER", "SET"})
        return True
