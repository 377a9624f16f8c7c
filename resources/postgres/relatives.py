"""Servers that speak like PostgreSQL, and keep rows and transactions in a way of their own."""

from __future__ import annotations

import re

RELATIVES = {
    "CockroachDB": "it exports no snapshots, and has neither COPY in binary nor versions of rows",
    "-YB-|YugabyteDB": "it exports snapshots as a preview only, and its rows have no versions",
    "Redshift": "it has neither exported snapshots nor advisory locks nor versions of rows",
    "Greenplum|Cloudberry|Greengage|WarehousePG": "rows of different segments have the same places "
    "and versions, and a snapshot of the coordinator is not exported to others",
    "Materialize|RisingWave|CrateDB|QuestDB": "its transactions and catalog are not PostgreSQL's",
}
"""Why each is refused, by what its `version()` says; docs/relatives.md tells more."""


def refused(version: str) -> str | None:
    """Say why a server is refused; None for PostgreSQL, whoever runs it.

    Args:
        version: what `version()` returns, which all of them have.
    """
    for name, why in RELATIVES.items():
        if found := re.search(name, version, re.IGNORECASE):
            return f"it is no PostgreSQL ({found[0].strip('-')}): {why}"
    return None
