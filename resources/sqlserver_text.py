"""Text into SQL Server: files for bcp, a table that takes them, and casts by the server."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from resources.bcp import BcpTool, require_rows, running
from resources.delimited import Framing
from resources.dialects import qualified, quote
from resources.errors import ReceiptMismatch
from resources.files import Artifact, ArtifactWriter, workspace
from resources.plan import CopyPlan
from resources.sqlserver import SqlServerConnection, SqlServerResource
from resources.sqlserver_ddl import copy_columns, count, drop_table
from resources.tables import TableRef
from resources.target import LoadReceipt
from resources.types.landing import landing

logger = logging.getLogger(__name__)


def load_files(
    resource: SqlServerResource,
    session: SqlServerConnection,
    plan: CopyPlan,
    staging: TableRef,
    chunks: Iterable[bytes],
    framing: Framing,
) -> LoadReceipt:
    """Write rows into files of bounded size, bcp each of them, and cast the rows into staging.

    bcp's own conversions lose too much: freebcp takes year 1 for 2001, cuts trailing blanks, and
    knows neither datetimeoffset nor denormal floats. So what it could damage lands as text, and
    the server converts it.

    Args:
        resource: the server.
        session: where the staging table is.
        plan: the hop.
        staging: the table of this attempt.
        chunks: framed rows, each chunk ending at a row's end.
        framing: the terminators in them.

    Raises:
        ReceiptMismatch: file, tool and server do not count the same rows.
        StatementFailed: the tool or the server complained.
        DiskFull: there is no room for a file.
    """
    tool, landed = resource.bcp_tool(), replace(staging, name=f"{staging.name}_text")
    ways = [landing(column.target.type) for column in plan.columns]
    columns = [quote("sqlserver", column.name) for column in plan.target_columns]
    definitions = ", ".join(
        f"{name} {way.type} NULL" for name, way in zip(columns, ways, strict=True)
    )
    session.execute(drop_table(landed))
    session.execute(f"CREATE TABLE {qualified(landed)} ({definitions})")
    try:
        rows = size = 0
        with workspace(resource.artifact_folder_path()) as folder:
            for artifact in _artifacts(folder, chunks, framing, resource.artifact_limit()):
                _copy_in(resource, tool, landed, artifact, framing, folder)
                rows, size = rows + artifact.rows, size + artifact.bytes
                _same("landed", int(session.query(count(landed))[0][0]), rows, staging)
                artifact.path.unlink()
        casts = ", ".join(
            way.cast.replace("{}", name) for name, way in zip(columns, ways, strict=True)
        )
        session.execute(
            f"INSERT INTO {qualified(staging)} ({copy_columns(plan)}) "
            f"SELECT {casts} FROM {qualified(landed)}"
        )
        _same("staged", int(session.query(count(staging))[0][0]), rows, staging)
    finally:
        session.execute(drop_table(landed))
    return LoadReceipt(rows, size)


def _artifacts(
    folder: Path, chunks: Iterable[bytes], framing: Framing, limit: int
) -> Iterator[Artifact]:
    """Files of at most `limit` bytes, or of one chunk; the next is begun when one is dealt with."""
    row_end = framing.row.encode()
    writer: ArtifactWriter | None = None
    number = 0
    try:
        for chunk in chunks:
            if writer is not None and writer.bytes + len(chunk) > limit:
                yield writer.finish()
                writer = None
            if writer is None:
                number += 1
                writer = ArtifactWriter(folder / f"{number:06}.dat", max(limit, len(chunk)))
            writer.write(chunk, chunk.count(row_end))
        if writer is not None:
            last, writer = writer, None
            if last.rows:
                yield last.finish()
            else:
                last.discard()
    finally:
        if writer is not None:
            writer.discard()


def _copy_in(
    resource: SqlServerResource,
    tool: BcpTool,
    table: TableRef,
    artifact: Artifact,
    framing: Framing,
    folder: Path,
) -> None:
    settings, encryption = resource.settings(), resource.encryption()
    command = tool.command(qualified(table), "in", artifact.path, framing, settings, encryption)
    conf = tool.configuration(settings, encryption) if tool.kind == "freebcp" else ""
    with running(tool, command, settings, conf, folder) as work:
        result = work.wait(settings)
    artifact.require_whole()
    require_rows(tool, result, artifact.rows, f"{artifact.rows} rows into {table}")
    refused = Path(f"{artifact.path}.errors")
    if refused.exists() and refused.stat().st_size:
        raise ReceiptMismatch(f"{table}: {tool} refused rows of {artifact.path.name}")
    logger.info(
        "%s: %d rows, %d bytes, SHA-256 %s", table, artifact.rows, artifact.bytes, artifact.sha256
    )


def _same(what: str, found: int, expected: int, table: TableRef) -> None:
    if found != expected:
        raise ReceiptMismatch(f"{table}: {expected} rows were in the files, but {found} {what}")
