"""Nor have those of the local stack where other servers are tested on."""

from __future__ import annotations

from tests import servers

collect_ignore_glob = ["*"] if servers.named() else []
