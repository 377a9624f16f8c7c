"""Text out of SQL Server: bcp writes a query's rows into a pipe, as ClickHouse reads them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tableferry.resources.artifacts import Artifact, workspace
from tableferry.resources.errors import ValueRefused
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.plan import CopyPlan
from tableferry.resources.sqlserver.bcp import require_rows
from tableferry.resources.sqlserver.bcp_process import LOOK_SECONDS, Running, running
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.sqlserver.tsv_text import EMPTY
from tableferry.resources.types.steps import REPLACEMENT, Unreplaced

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
REFUSED = (
    (b"\0", "holds the character U+0000, which bcp cannot tell from an empty text"),
    (REPLACEMENT.encode(), Unreplaced.reason),
)
"""Bytes that bcp writes for what it cannot write, and why a value that holds them is refused."""


@contextmanager
def read_tab_separated(
    resource: SqlServerServer,
    plan: CopyPlan,
    key_range: KeyRange,
    artifacts: list[Artifact] | None = None,
    *,
    rows_of: str | None = None,
    silence: float | None = None,
) -> Iterator[Iterator[bytes]]:
    """Stream a key range as TabSeparated chunks of about 1 MiB that end at row ends.

    The file that bcp writes is a named pipe, so that nothing is on disk and the pipe's own buffer
    is all that is ahead of the reader. The chunks end without an error only if the tool ended well,
    complained of nothing, and counted as many rows as came.

    Args:
        resource: the server.
        plan: the hop.
        key_range: the rows to read.
        artifacts: gets an entry for what was read, as soon as all of it was.
        rows_of: see `CopyPlan.select`.
        silence: seconds that the tool may be silent; those of the resource if not given.

    Raises:
        ValueRefused: a text that bcp cannot write as it is.
        StatementFailed: the server or the tool complained, or the tool hangs.
        ReceiptMismatch: the tool counted another number of rows.
    """
    tool, settings, encryption = resource.bcp_tool(), resource.settings(), resource.encryption()
    empty = f"~{secrets.token_hex(16)}"
    sql = plan.select(key_range, "text", rows_of=rows_of).replace(EMPTY, empty)
    task, timeout = f"{plan.source} range {key_range.name}", silence or resource.bcp_silence()
    with workspace(resource.artifact_folder_path()) as folder:
        pipe = folder / "rows.tsv"
        os.mkfifo(pipe, 0o600)
        command = tool.command(sql, "queryout", pipe, None, settings, encryption)
        conf = tool.configuration(settings, encryption) if tool.kind == "freebcp" else ""

        def chunks() -> Iterator[bytes]:
            rows, size, digest = 0, 0, hashlib.sha256()
            for chunk in _whole_rows(_read(pipe, work)):
                for mark, reason in REFUSED:
                    if mark in chunk:
                        raise _refused(plan, chunk, mark, reason)
                data = chunk.replace(empty.encode(), b"")
                rows, size = rows + data.count(b"\n"), size + len(data)
                digest.update(data)
                yield data
            require_rows(tool, work.wait(settings), rows, task)
            artifact = Artifact(pipe, rows, size, digest.hexdigest())
            logger.info("%s: %s", task, artifact)
            if artifacts is not None:
                artifacts.append(artifact)

        work: Running
        with running(tool, command, settings, conf, folder, task=task, timeout=timeout) as work:
            yield chunks()


def _read(pipe: Path, work: Running) -> Iterator[bytes]:
    """What the tool writes into the pipe, until it has ended."""
    process = work.process
    # opened without waiting for a writer, who may die before it opens its end
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        while True:
            ended = process.poll() is not None
            if poll.poll(LOOK_SECONDS * 1000):
                try:
                    data = os.read(reader, CHUNK_BYTES)
                except BlockingIOError:
                    continue
                if data:
                    yield data
                    # it could not go on while the reader of these rows took its time
                    work.hear()
                    continue
                if not ended:
                    # hung up: the writer has closed its end and will end, too
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK_SECONDS)
            if ended:
                return
            work.require_alive()
    finally:
        os.close(reader)


def _whole_rows(pieces: Iterator[bytes]) -> Iterator[bytes]:
    kept: list[bytes] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        end = piece.rfind(b"\n") + 1
        if size < CHUNK_BYTES or not end:
            kept.append(piece)
            continue
        yield b"".join([*kept, piece[:end]])
        kept, size = [piece[end:]], len(piece) - end
    rest = b"".join(kept)
    if rest:
        yield rest


def _refused(plan: CopyPlan, chunk: bytes, mark: bytes, reason: str) -> ValueRefused:
    """The error that names the first value with bytes that must not be."""
    at = chunk.index(mark)
    start, end = chunk.rfind(b"\n", 0, at) + 1, chunk.find(b"\n", at)
    fields = chunk[start : end if end >= 0 else None].decode(errors="replace").split("\t")
    position = chunk.count(b"\t", start, at)
    key = fields[plan.columns.index(plan.key)]
    return ValueRefused(
        str(plan.source), plan.columns[position].source.name, key, fields[position][:200], reason
    )
