"""Runs a command with the stand-in for a cluster as the tests' ClickHouse.

`python -m tableferry_local.cluster [--delay SECONDS] [--sticky] [--alone] COMMAND ...`
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tableferry_local.cluster.balancer import Balancer
from tableferry_local.cluster.replication import Cluster

URL = "TABLEFERRY_TEST_CLICKHOUSE_URL"


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tableferry_local.cluster")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds from node to node")
    parser.add_argument("--sticky", action="store_true", help="keep a connection on its node")
    parser.add_argument("--alone", action="store_true", help="have one node of the two")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="tableferry-cluster-") as folder,
        Cluster(Path(folder), delay=options.delay, replicas=2 - options.alone) as cluster,
        Balancer(cluster, sticky=options.sticky) as balancer,
    ):
        environment = {**os.environ, URL: balancer.url}
        return subprocess.run(options.command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
