"""Rows by bcp: text into SQL Server through files, and out of it through a pipe.

In: rows are written into files of bounded size, the tool copies each into a table of texts, and the
server casts these into the staging table. Out: the tool runs a query, whose expressions come from
`tsv_text`, and writes into a named pipe the text that ClickHouse reads. `bcp_tool` finds and runs
the tool.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import secrets
import select
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tableferry.resources.artifacts import (
    Artifact,
    ArtifactWriter,
    artifact_folder,
    most_bytes,
    workspace,
)
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target import LoadReceipt
from tableferry.resources.errors import ReceiptMismatch, ValueRefused
from tableferry.resources.sqlserver import bcp_process, bcp_tool, ddl, types
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.sqlserver.tsv_text import EMPTY
from tableferry.resources.tables import TableRef
from tableferry.resources.types.kinds import Binary, Date, Float, Text, Time, Timestamp
from tableferry.resources.types.steps import REPLACEMENT, Unreplaced

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
REFUSED = (
    (b"\0", "holds the character U+0000, which bcp cannot tell from an empty text"),
    (REPLACEMENT.encode(), Unreplaced.reason),
)
"""Bytes that bcp writes in place of others, and why a value that holds them is refused."""


@dataclass(frozen=True)
class StagedText:
    """One column of the table that bcp fills; `{}` stands for its quoted name in `cast`."""

    type: str
    cast: str


def text_staging(target_type: str) -> StagedText:
    """How values for a SQL Server column are staged: as text where bcp would damage them.

    bcp's own conversions lose too much: freebcp reads year 1 as 2001, cuts trailing blanks, and
    knows neither datetimeoffset nor denormal floats. The server casts the texts instead; they are
    written so that CAST reads them alike in every language and DATEFORMAT setting.
    """
    held = types.slot(target_type)
    kind = held.kind if held else None
    if isinstance(kind, Text):
        # `END` follows the text, so that LEN, which leaves out trailing blanks, counts all of it
        length = kind.units
        wider = f"nvarchar({length + 1 if length and length < types.MAX_UNITS else 'max'})"
        return StagedText(wider, "LEFT({}, LEN({}) - 1)")
    if isinstance(kind, Binary):
        length = kind.length
        wider = f"varbinary({length + 1 if length and length < types.MAX_BYTES else 'max'})"
        return StagedText(wider, "SUBSTRING({}, 1, DATALENGTH({}) - 1)")
    if isinstance(kind, Float):
        return StagedText("nvarchar(30)", f"CAST({{}} AS {target_type})")
    if isinstance(kind, (Date, Time, Timestamp)):
        return StagedText("nvarchar(34)", f"CAST({{}} AS {target_type})")
    return StagedText(target_type, "{}")


def load_files(
    resource: SqlServerServer,
    session: SqlServerConnection,
    plan: CopyPlan,
    staging: TableRef,
    chunks: Iterable[bytes],
    framing: Framing,
    folder: Path,
) -> LoadReceipt:
    """Write rows into files of bounded size, copy in each by bcp, and cast the rows into staging.

    The chunks are rows with the terminators of `framing`, each ending at a row's end. The files
    stay in `folder`, a workspace of `resources.artifacts`.

    Raises:
        ReceiptMismatch: the counts of file, tool and server disagree.
        StatementFailed: the tool or the server complained.
        DiskFull: the disk has no room for a file.
    """
    text_table = replace(staging, name=f"{staging.name}_text")
    rows_table, columns = ddl.rows_of(staging), ddl.STATEMENTS.columns(ddl.loaded(plan))
    staged = [text_staging(column.type) for column in plan.target_columns]
    definitions = ", ".join(f"c{number} {column.type} NULL" for number, column in enumerate(staged))
    session.execute(drop_table(text_table))
    session.execute(f"CREATE TABLE {qualified(text_table)} ({definitions})")
    try:
        artifacts: list[Artifact] = []
        rows = 0
        for artifact in _artifacts(folder, chunks, framing, most_bytes()):
            task = f"{staging}: {artifact.path.name}"
            _copy_in(resource, text_table, artifact, framing, task)
            artifacts.append(artifact)
            rows += artifact.rows
            _require_rows(session, text_table, rows, "arrived", staging)
        casts = ", ".join(
            column.cast.replace("{}", f"c{number}") for number, column in enumerate(staged)
        )
        session.execute(
            f"INSERT INTO {qualified(rows_table)} ({columns}) "
            f"SELECT {casts} FROM {qualified(text_table)}"
        )
        _require_rows(session, staging, rows, "staged", staging)
    finally:
        session.execute(drop_table(text_table))
    return LoadReceipt(rows, sum(artifact.bytes for artifact in artifacts), tuple(artifacts))


def _artifacts(
    folder: Path, chunks: Iterable[bytes], framing: Framing, limit: int
) -> Iterator[Artifact]:
    """Write files of at most `limit` bytes, or of one row; begin each when the last is loaded."""
    row_end = framing.row.encode()
    writer: ArtifactWriter | None = None
    numbers = itertools.count(1)
    try:
        for chunk in chunks:
            start = 0
            while start < len(chunk):
                if writer is None:
                    writer = ArtifactWriter(folder / f"{next(numbers):06}.dat", limit)
                end = _last_row_end(chunk, start, limit - writer.bytes, row_end)
                if end == start and writer.rows:
                    yield writer.finish()
                    writer = None
                    continue
                if end == start:
                    end = chunk.index(row_end, start) + len(row_end)
                rows = chunk[start:end]
                writer.write(rows, rows.count(row_end))
                start = end
        if writer is not None:
            last, writer = writer, None
            yield last.finish()
    finally:
        if writer is not None:
            writer.discard()


def _last_row_end(chunk: bytes, start: int, size: int, row_end: bytes) -> int:
    """The end of the last row within `size` bytes from `start`; `start` if there is none."""
    if len(chunk) - start <= size:
        return len(chunk)
    at = chunk.rfind(row_end, start, start + max(size, 0))
    return start if at < 0 else at + len(row_end)


def _copy_in(
    resource: SqlServerServer, table: TableRef, artifact: Artifact, framing: Framing, task: str
) -> None:
    with _tool(resource, qualified(table), "in", artifact.path, framing, task=task) as work:
        result = work.wait()
    artifact.require_whole()
    bcp_tool.require_rows(work.tool, result, artifact.rows, task)
    refused = Path(f"{artifact.path}.errors")
    if refused.exists() and refused.stat().st_size:
        raise ReceiptMismatch(f"{task}: {work.tool} refused rows of it")
    logger.info("%s: %s", task, artifact)


@contextmanager
def _tool(
    resource: SqlServerServer,
    what: str,
    direction: Literal["in", "queryout"],
    file: Path,
    framing: Framing | None,
    *,
    task: str,
    silence: float | None = None,
) -> Iterator[bcp_process.BcpProcess]:
    """Run the installed tool on a table or query, with a file in a private folder."""
    tool, login, encryption = bcp_tool.find_tool(), resource.login(), resource.encryption()
    command = tool.command(what, direction, file, framing, login, encryption)
    if tool.kind == "freebcp":
        configuration = tool.configuration(login.settings, encryption)
        (file.parent / "freetds.conf").write_text(configuration, encoding="utf-8")
    timeout = silence or bcp_process.silent_seconds()
    with (
        login.token_file(file.parent / bcp_tool.TOKEN_FILE),
        bcp_process.running(tool, command, login, file.parent, task=task, timeout=timeout) as work,
    ):
        yield work


def _require_rows(
    session: SqlServerConnection, table: TableRef, expected: int, what: str, staging: TableRef
) -> None:
    rows = int(session.query(ddl.STATEMENTS.count(table))[0][0])
    if rows != expected:
        raise ReceiptMismatch(f"{staging}: {expected} rows were in the files, but {rows} {what}")


@contextmanager
def read_tab_separated(
    resource: SqlServerServer,
    plan: CopyPlan,
    sql: str,
    artifacts: list[Artifact] | None = None,
    *,
    silence: float | None = None,
) -> Iterator[Iterator[bytes]]:
    """Stream selected rows as TabSeparated chunks of about 1 MiB that end at row ends.

    The file that bcp writes is a named pipe: nothing is on disk, and only the pipe's own buffer is
    ahead of the reader. The chunks end without an error only if the tool ended well, complained of
    nothing, and counted as many rows as came.

    `artifacts` gets an entry when all rows have been read; the tool may be silent for `silence`
    seconds, by default those of the resource.

    Raises:
        ValueRefused: bcp cannot write a text as it is.
        StatementFailed: the server or the tool complained, or the tool hangs.
        ReceiptMismatch: the tool counted another number of rows.
    """
    empty = f"~{secrets.token_hex(16)}"
    sql, task = sql.replace(EMPTY, empty), f"rows of {plan.source}"
    with workspace(artifact_folder()) as folder:
        pipe = folder / "rows.tsv"
        os.mkfifo(pipe, 0o600)

        def chunks() -> Iterator[bytes]:
            rows, size, digest = 0, 0, hashlib.sha256()
            for chunk in _whole_rows(_read(pipe, work)):
                for mark, reason in REFUSED:
                    if mark in chunk:
                        raise _refused(plan, chunk, mark, reason)
                data = chunk.replace(empty.encode(), b"")
                rows, size = rows + data.count(b"\n"), size + len(data)
                digest.update(data)
                resource.keep_pace(len(chunk))
                yield data
            bcp_tool.require_rows(work.tool, work.wait(), rows, task)
            artifact = Artifact(pipe, rows, size, digest.hexdigest())
            logger.info("%s: %s", task, artifact)
            if artifacts is not None:
                artifacts.append(artifact)

        work: bcp_process.BcpProcess
        with (
            resource.permit(),
            _tool(resource, sql, "queryout", pipe, None, task=task, silence=silence) as work,
        ):
            yield chunks()


def _read(pipe: Path, work: bcp_process.BcpProcess) -> Iterator[bytes]:
    """Read what the tool writes into the pipe until it ends."""
    process = work.process
    # opened without waiting for the writer, which may die before it opens its end
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        while True:
            ended = process.poll() is not None
            if poll.poll(bcp_process.POLL_SECONDS * 1000):
                try:
                    data = os.read(reader, CHUNK_BYTES)
                except BlockingIOError:
                    continue
                if data:
                    yield data
                    # the tool was blocked while the consumer of these rows took its time
                    work.touch()
                    continue
                if not ended:
                    # the writer has closed its end and is about to exit
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(bcp_process.POLL_SECONDS)
            if ended:
                return
            work.require_active()
    finally:
        os.close(reader)


def _whole_rows(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join pieces to chunks that end at row ends: only a row's last byte is a newline."""
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
    if rest := b"".join(kept):
        yield rest


def _refused(plan: CopyPlan, chunk: bytes, mark: bytes, reason: str) -> ValueRefused:
    """The error that names the first value with bytes that are refused."""
    at = chunk.index(mark)
    start, end = chunk.rfind(b"\n", 0, at) + 1, chunk.find(b"\n", at)
    fields = chunk[start : end if end >= 0 else None].decode(errors="replace").split("\t")
    position = chunk.count(b"\t", start, at)
    key = ", ".join(fields[at] for at in plan.row_key)
    return ValueRefused(
        str(plan.source), plan.columns[position].source.name, key, fields[position][:200], reason
    )
