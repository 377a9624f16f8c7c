"""Shows the statements of a load into ClickHouse, by a load that only records them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import cast

import pyarrow as pa

from tableferry.resources.clickhouse.ddl import in_partition, not_in, strays_of
from tableferry.resources.clickhouse.dialect import RANGE_COLUMN
from tableferry.resources.clickhouse.layout import TableLayout, layouts_of
from tableferry.resources.clickhouse.load import ClickHouseLoad
from tableferry.resources.clickhouse.markers import CLAIM, NO_UUID
from tableferry.resources.clickhouse.server import (
    ClickHouseServer,
    among,
    definition_query,
    insert_statement,
)
from tableferry.resources.clickhouse.staging import planned_image
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import markers_of
from tableferry.resources.contract.recording import Preview, Recording, RecordingServer
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.target_options import TargetOptions, written_to
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

NEW_UUID = "<UUID of {}>"
NEW_ENGINE = "MergeTree"


class RecordingClickHouse(RecordingServer):
    """Looks like a server: records what it is told to do, and passes questions on."""

    def execute(self, sql: str, settings: Mapping[str, str | int] | None = None) -> None:
        """Record a statement as it would be sent."""
        self._recording.record(self._server.for_all(sql))

    def definition(self, table: TableRef, name: str | None = None) -> str:
        """See `ClickHouseServer.definition`."""
        return str(self.query(definition_query(table, name))[0][0])

    def insert(
        self,
        table: TableRef,
        columns: Iterable[str],
        chunks: Iterable[bytes],
        fmt: str,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        """Record an INSERT, and take its rows."""
        self._recording.record(insert_statement(table, columns, fmt))
        for _ in chunks:
            pass


def preview(
    real: ClickHouseTarget,
    plan: CopyPlan,
    options: TargetOptions,
    columns: Sequence[Column] | None,
) -> Preview:
    """Prepare a target and load ranges into it, all of which is only recorded."""
    server, target, shadow = real.resource, plan.target, shadow_of(plan.target)
    recording = Recording()
    recorder = type(real)(cast(ClickHouseServer, RecordingClickHouse(server, recording)))
    beside = markers_of(target)
    present = layouts_of(server, [target, shadow, beside])
    if beside not in present:
        recording.answer(qualified(beside), (0,))
        recording.answer(f"argMax(token, number) FROM {qualified(beside)}", ("",))
    like = present.get(target) or TableLayout(
        NEW_ENGINE, NEW_ENGINE, NO_UUID, options.partition_by is None, ""
    )

    def makes(table: TableRef) -> None:
        """Answer as the server does once it has made a table."""
        cut, hidden = (RANGE_COLUMN, 1) if like.atomic else ("", 0)
        row = (like.engine, like.engine_full, NEW_UUID.format(table.name), cut, hidden)
        recording.answer(
            f"FROM system.tables WHERE {among([table])}", (table.name, *row, like.database_engine)
        )
        recording.columns[table] = plan.target_columns
        copied = target in present and not options.recreate
        if copied:
            recording.columns[table] = server.columns(target)
        recording.answer(definition_query(table), (server.definition(target) if copied else "",))

    for table in (target, shadow):
        if table not in present:
            recording.upon(qualified(table), partial(makes, table))
    recorder.prepare(plan, options, columns)
    if options.recreate:
        recorder.expect_image(shadow, planned_image(plan, options))

    def publish(key_range: KeyRange, options: TargetOptions, rows: int | None) -> list[str]:
        table = written_to(plan, options)
        rejected = recorder.rejected_table(plan, key_range)
        # statements differ by whether there are rows, and not by how many
        staged = 1 if rows is None else min(rows, 1)

        def load(attempt: ClickHouseLoad) -> str:
            strays = 0
            elsewhere = strays_of(plan, key_range)
            if attempt.atomic and table in present:
                count = f"SELECT count() FROM {qualified(table)} WHERE {elsewhere}"
                ((strays,),) = recorder.resource.query(count)
            own, marker = attempt.owner, attempt.marker
            staging = qualified(attempt.staging_table)
            standing = [(CLAIM, "", 0), (key_range.name, own.token, 1)]
            holders = [(attempt.lock, own.text)] + ([(rejected.name, "")] if rejected else [])
            recording.answer(definition_query(table, attempt.lock), (own.text,))
            recording.answer("FROM system.parts WHERE database", (0,))  # nothing is replaced
            for text in (f"FROM {qualified(table)} WHERE", staging):
                recording.answer(text, (staged, 0))
            in_range = plan.target_range(key_range)
            recording.answer(f"SELECT count() FROM {qualified(table)} WHERE {in_range}", (0,))
            recording.answer(elsewhere, (strays,))
            recording.answer(not_in(plan, staging), (0, 0))  # rows that stay
            recording.answer(f"SELECT count(), {marker.token}", (staged, own.token))
            recording.answer(
                f"SELECT countIf({in_partition(key_range)}), count(), ",
                (staged, staged + strays, own.token),
            )
            recording.answer(f"SELECT {marker.standing}", (standing,))
            recording.answer(
                f"{marker.standing} FROM system.tables",
                *((name, comment, staged, standing) for name, comment in holders),
            )
            _load(attempt, plan, options, staged)
            return own.token

        with recording.answering():
            if table not in present:
                recording.answer(f"FROM {qualified(table)} WHERE", (0,))
            return recording.published(recorder, plan, key_range, options, load)

    return Preview(recording.taken(), publish)


def _load(load: ClickHouseLoad, plan: CopyPlan, options: TargetOptions, rows: int) -> None:
    """Load some rows; what is in them does not matter."""
    if options.format not in ("arrow", None):
        load.load_bytes(iter([b"\n" * rows]))
        return
    fields = plan.arrow_schema
    batch = pa.RecordBatch.from_arrays(
        [pa.nulls(rows, field.type) for field in fields], schema=fields
    )
    load.load_arrow([batch] if rows else [])
