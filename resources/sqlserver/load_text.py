"""Text into SQL Server: files for bcp, a table that takes them, and casts by the server."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tableferry.resources.artifacts import Artifact, ArtifactWriter
from tableferry.resources.delimited import Framing
from tableferry.resources.dialects import drop_table, qualified
from tableferry.resources.errors import ReceiptMismatch
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.plan import CopyPlan
from tableferry.resources.sqlserver.bcp import BcpTool, require_rows
from tableferry.resources.sqlserver.bcp_process import running
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.ddl import STATEMENTS, loaded, rows_of
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.sqlserver.text_staging import text_staging
from tableferry.resources.tables import TableRef
from tableferry.resources.target import LoadReceipt

logger = logging.getLogger(__name__)


def load_files(
    resource: SqlServerServer,
    session: SqlServerConnection,
    plan: CopyPlan,
    key_range: KeyRange,
    staging: TableRef,
    chunks: Iterable[bytes],
    framing: Framing,
    folder: Path,
) -> LoadReceipt:
    """Write rows into files of bounded size, bcp each of them, and cast the rows into staging.

    The files stay, for as long as the caller keeps the folder.

    bcp's own conversions lose too much: freebcp takes year 1 for 2001, cuts trailing blanks, and
    knows neither datetimeoffset nor denormal floats. So what it could damage lands as text, and
    the server converts it.

    Args:
        resource: the server.
        session: where the staging table is.
        plan: the hop.
        key_range: the rows, for messages.
        staging: the table of this attempt.
        chunks: framed rows, each chunk ending at a row's end.
        framing: the terminators in them.
        folder: a workspace, see `resources.artifacts`.

    Raises:
        ReceiptMismatch: file, tool and server do not count the same rows.
        StatementFailed: the tool or the server complained.
        DiskFull: there is no room for a file.
    """
    tool, text_table = resource.bcp_tool(), replace(staging, name=f"{staging.name}_text")
    rows_table, columns = rows_of(staging), STATEMENTS.columns(loaded(plan))
    staged = [text_staging(column.type) for column in plan.target_columns]
    definitions = ", ".join(f"c{number} {column.type} NULL" for number, column in enumerate(staged))
    session.execute(drop_table(text_table))
    session.execute(f"CREATE TABLE {qualified(text_table)} ({definitions})")
    try:
        artifacts: list[Artifact] = []
        rows = 0
        for artifact in _artifacts(folder, chunks, framing, resource.artifact_limit()):
            task = f"{plan.target} range {key_range.name}: {artifact.path.name}"
            _copy_in(resource, tool, text_table, artifact, framing, task)
            artifacts.append(artifact)
            rows += artifact.rows
            _same("arrived", int(session.query(STATEMENTS.count(text_table))[0][0]), rows, staging)
        casts = ", ".join(
            column.cast.replace("{}", f"c{number}") for number, column in enumerate(staged)
        )
        session.execute(
            f"INSERT INTO {qualified(rows_table)} ({columns}) "
            f"SELECT {casts} FROM {qualified(text_table)}"
        )
        _same("staged", int(session.query(STATEMENTS.count(staging))[0][0]), rows, staging)
    finally:
        session.execute(drop_table(text_table))
    return LoadReceipt(rows, sum(artifact.bytes for artifact in artifacts), tuple(artifacts))


def _artifacts(
    folder: Path, chunks: Iterable[bytes], framing: Framing, limit: int
) -> Iterator[Artifact]:
    """Files of at most `limit` bytes, or of one row; the next is begun when one is dealt with."""
    row_end = framing.row.encode()
    writer: ArtifactWriter | None = None
    numbers = itertools.count(1)
    try:
        for chunk in chunks:
            start = 0
            while start < len(chunk):
                if writer is None:
                    writer = ArtifactWriter(folder / f"{next(numbers):06}.dat", limit)
                end = _fitting(chunk, start, limit - writer.bytes, row_end)
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


def _fitting(chunk: bytes, start: int, room: int, row_end: bytes) -> int:
    """The end of the last row that has room; `start` if none has."""
    if len(chunk) - start <= room:
        return len(chunk)
    found = chunk.rfind(row_end, start, start + max(room, 0))
    return start if found < 0 else found + len(row_end)


def _copy_in(
    resource: SqlServerServer,
    tool: BcpTool,
    table: TableRef,
    artifact: Artifact,
    framing: Framing,
    task: str,
) -> None:
    settings, encryption = resource.settings(), resource.encryption()
    command = tool.command(qualified(table), "in", artifact.path, framing, settings, encryption)
    conf = tool.configuration(settings, encryption) if tool.kind == "freebcp" else ""
    timeout = resource.bcp_silence()
    folder = artifact.path.parent
    with running(tool, command, settings, conf, folder, task=task, timeout=timeout) as work:
        result = work.wait(settings)
    artifact.require_whole()
    require_rows(tool, result, artifact.rows, task)
    refused = Path(f"{artifact.path}.errors")
    if refused.exists() and refused.stat().st_size:
        raise ReceiptMismatch(f"{task}: {tool} refused rows of it")
    logger.info("%s: %s", task, artifact)


def _same(what: str, found: int, expected: int, table: TableRef) -> None:
    if found != expected:
        raise ReceiptMismatch(f"{table}: {expected} rows were in the files, but {found} {what}")
