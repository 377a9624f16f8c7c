"""Compares two tables with reladiff; reads what to do from its standard input."""

from __future__ import annotations

import json
import sys

from reladiff import connect_to_table, diff_tables


def main() -> None:
    """Print how many rows differ."""
    told = json.load(sys.stdin)
    tables = [
        connect_to_table(
            told["url"], tuple(name), told["key"], extra_columns=tuple(told["columns"])
        )
        for name in told["tables"]
    ]
    keys = {row[0] for _, row in diff_tables(*tables)}
    print(len(keys))


if __name__ == "__main__":
    main()
