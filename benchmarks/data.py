"""TPC-H's `lineitem` of any size, generated straight into PostgreSQL: the benchmarks' workload."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg

from resources.errors import InputError

CHUNK_BYTES = 1 << 20

# TPC Benchmark H, revision 3.0.1, section 1.4.1. Ordered by key, as generated.
DDL = """
CREATE TABLE public.lineitem (
    l_orderkey bigint NOT NULL,
    l_partkey integer NOT NULL,
    l_suppkey integer NOT NULL,
    l_linenumber integer NOT NULL,
    l_quantity numeric(15, 2) NOT NULL,
    l_extendedprice numeric(15, 2) NOT NULL,
    l_discount numeric(15, 2) NOT NULL,
    l_tax numeric(15, 2) NOT NULL,
    l_returnflag char(1) NOT NULL,
    l_linestatus char(1) NOT NULL,
    l_shipdate date NOT NULL,
    l_commitdate date NOT NULL,
    l_receiptdate date NOT NULL,
    l_shipinstruct char(25) NOT NULL,
    l_shipmode char(10) NOT NULL,
    l_comment varchar(44) NOT NULL
)
"""


def load_lineitem(url: str, scale: float) -> int:
    """Replace `public.lineitem` with TPC-H's at a scale factor; deterministic.

    Args:
        url: connection URL of the PostgreSQL database.
        scale: scale factor; 1 is about 6 million rows and 0.75 GB of text.

    Returns:
        The number of rows.

    Raises:
        InputError: the generator, of the package tpchgen-cli, is not installed or fails.
    """
    generator = Path(sys.executable).with_name("tpchgen-cli")
    if not generator.exists():
        raise InputError("lineitem is made by tpchgen-cli: pip install 'tableferry[dev]'")
    command = [str(generator), "csv", "-s", str(scale), "--tables", "lineitem", "--stdout"]
    with (
        psycopg.connect(url) as connection,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as made,
    ):
        assert made.stdout is not None
        connection.execute("DROP TABLE IF EXISTS public.lineitem")
        connection.execute(DDL)
        with connection.cursor() as cursor:
            copy_in = "COPY public.lineitem FROM STDIN WITH (FORMAT csv, HEADER)"
            with cursor.copy(copy_in) as copy:
                while chunk := made.stdout.read(CHUNK_BYTES):
                    copy.write(chunk)
            rows = cursor.rowcount
        if made.wait():
            raise InputError(f"tpchgen-cli failed at scale factor {scale}")
        connection.execute("ALTER TABLE public.lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber)")
        connection.execute("ANALYZE public.lineitem")
    return rows
