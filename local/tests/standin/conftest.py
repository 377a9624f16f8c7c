"""The tests of the SQL Server stand-in itself have no business where a real one is tested on."""

from __future__ import annotations

from tests import servers

collect_ignore_glob = ["*"] if servers.named(servers.SQLSERVER) else []
