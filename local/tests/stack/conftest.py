"""The tests of the local stack have no business where other servers are tested on."""

from __future__ import annotations

from tests import servers

collect_ignore_glob = ["*"] if servers.named() else []
