"""Names of our own in queries over users' columns.

ClickHouse takes the alias of an expression for a column of the same name everywhere in its query,
and others let GROUP BY and ORDER BY choose between the two. So a name of ours is one that the rest
of its query does not hold, and it is read only from outside of the subquery which makes it, where
no other columns are in sight.
"""

from __future__ import annotations

import itertools
import unicodedata

PREFIX = "ferry"


def own_prefix(*sql: str) -> str:
    """What names of ours begin with, in a query that is made of some parts: no column has a name
    that begins so, in whatever case or width of its letters.

    Args:
        sql: every part of the query with columns of users: expressions, conditions, row filters,
            or names as they are.
    """
    text = _folded("\n".join(sql))
    found = f"{PREFIX}__"
    for number in itertools.count(2):
        if found not in text:
            break
        found = f"{PREFIX}{number}__"
    return found


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
