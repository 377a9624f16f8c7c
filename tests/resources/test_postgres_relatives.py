"""Which servers that speak like PostgreSQL are refused, by the versions that they document."""

from __future__ import annotations

import re

import pytest

from tableferry.resources.postgres.session import refused_relative


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27)", "CockroachDB"),
        ("PostgreSQL 11.2-YB-2.19.3.0-b0 on x86_64-pc-linux-gnu, compiled by clang", r"\(YB\)"),
        ("PostgreSQL 15.2-YB-2.25.1.0-b0 on aarch64-unknown-linux-gnu", r"\(YB\)"),
        ("PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 20041017 "
         "(Red Hat 3.4.2-6.fc3), Redshift 1.0.59594", "Redshift"),
        ("PostgreSQL 12.12 (Greenplum Database 7.1.0 build commit:e7c2b1f) on x86_64", "segments"),
        ("PostgreSQL 9.5.0 on x86_64-unknown-linux-gnu (Materialize v0.80.2)", "Materialize"),
        ("PostgreSQL 13.14.0-RisingWave-2.0.1 (0d15632)", "RisingWave"),
    ],
)  # fmt: skip
def test_relatives_are_refused_by_name(version: str, why: str) -> None:
    reason = refused_relative(version)
    assert reason is not None
    assert re.search(why, reason), reason


@pytest.mark.parametrize(
    "version",
    [
        "PostgreSQL 18.6 on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0) 12.2.0, 64-bit",
        "PostgreSQL 16.4 on aarch64-unknown-linux-gnu, compiled by aarch64-unknown-linux-gnu-gcc "
        "(GCC) 9.5.0, 64-bit",
        "PostgreSQL 15.2 (EnterpriseDB Advanced Server 15.2.0) on x86_64-pc-linux-gnu",
    ],
)
def test_whoever_runs_postgresql_is_not(version: str) -> None:
    assert refused_relative(version) is None
