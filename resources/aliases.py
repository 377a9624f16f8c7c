"""Aliases in queries over users' columns.

ClickHouse resolves an alias before a column of the same name everywhere in its query, and other
servers let GROUP BY and ORDER BY choose between the two. So our aliases occur nowhere else in their
query, and they are read only from outside the subquery that defines them, where no column of a user
is in scope.
"""

from __future__ import annotations

import itertools
import unicodedata


def alias_prefix(*sql: str) -> str:
    """Return a prefix for aliases that no column's name begins with, in any case or letter width.

    Args:
        sql: every part of the query with users' columns: expressions, conditions, row filters, or
            plain names.
    """
    text = "\n".join(sql)
    text = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    prefixes = ("ferry__" if number == 1 else f"ferry{number}__" for number in itertools.count(1))
    return next(prefix for prefix in prefixes if prefix not in text)
