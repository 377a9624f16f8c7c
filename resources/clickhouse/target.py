"""Loads key ranges into ClickHouse tables: one range is one partition."""

from __future__ import annotations

import contextlib
import functools
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tableferry.resources import crash_points, errors
from tableferry.resources.clickhouse import ddl, hazards, locks, quarantine, replaced, server
from tableferry.resources.clickhouse.cluster import require_place
from tableferry.resources.clickhouse.dialect import DIALECT, RANGE_COLUMN, literal
from tableferry.resources.clickhouse.errors import EXISTS
from tableferry.resources.clickhouse.layout import (
    TableLayout,
    commented,
    drop_former,
    ensure_shadow,
    layout_of,
    layouts_of,
    lost,
    shadow_owner,
    unapplied,
)
from tableferry.resources.clickhouse.load import ClickHouseLoad
from tableferry.resources.clickhouse.markers import (
    NO_UUID,
    ClickHouseMarkers,
    RangeMarker,
    published,
    table_identity,
)
from tableferry.resources.clickhouse.policies import granted, user_of
from tableferry.resources.clickhouse.publish_audit import BEFORE
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract import looking_ahead, target_names
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard, not_carried_over
from tableferry.resources.contract.markers import Publication, Published, markers_of
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target import (
    ATTEMPT,
    RUN,
    Alive,
    Target,
    TargetMoved,
    altered_meanwhile,
    no_live_owner,
)
from tableferry.resources.contract.target_columns import unfilled, unfilled_notes, verify_columns
from tableferry.resources.contract.target_options import TargetOptions, check_mode, require_named
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef, staging_name, staging_prefix
from tableferry.resources.types.type_map import Column
from tableferry.resources.words import counted

WAIT_SECONDS = 30
"""How long a table that is put aside waits for the INSERTs that had found it."""

INSERTING = (
    r"(?is)\bINSERT\s+INTO\s+(?:TABLE\s+)?(?:[`\"]?{}[`\"]?\s*\.\s*)?[`\"]?{}[`\"]?(?:[\s(;]|$)"
)
"""The text of an INSERT into a table of a database."""


class ClickHouseTarget(Target):
    """A ClickHouse server as a load target.

    A table that we create has the hidden column `_range` and is partitioned by it. A range is
    loaded into a staging table of the same shape and published by one REPLACE PARTITION.
    """

    def __init__(self, resource: server.ClickHouseServer) -> None:
        self.resource = resource
        self._layouts: dict[TableRef, TableLayout] = {}
        self._images: dict[TableRef, ddl.Image] = {}

    def __repr__(self) -> str:
        return f"ClickHouseTarget({self.resource.settings()})"

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse a missing database, and SQL that cannot be parsed. See `Target.require`."""
        self._required(plan, options)

    def _required(self, plan: CopyPlan, options: TargetOptions) -> TableLayout | None:
        if options.mode.moves:
            replaced.require_sight(self.resource, plan.target)
        layout = looking_ahead.answer(self.resource, layouts_of, plan.target)
        if layout is not None and options.mode.moves:
            self._require_place(plan.target, layout.engine_full, layout.database_engine)
        like = _of_loaded(layout, options)
        _check_mode(plan, options, like.atomic if like else options.partition_by is None)
        if like is None:
            require_named(plan.target)
            self._require_database(plan.target, options.engine or "")
            if any((options.engine, options.order_by, options.partition_by)):
                self._require_syntax(plan, options)
        return layout

    def verify(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]
    ) -> list[str]:
        """See `Target.verify`."""
        verify_columns(plan, columns, incompatibility)
        return unfilled_notes(plan, options, unfilled(plan, columns, options.mark))

    def prepare(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column] | None = None
    ) -> list[str]:
        """Create the table if it is missing, else verify it. See `Target.prepare`."""
        layout = self._required(plan, options)
        notes = []
        self._images = {}
        markers = ClickHouseMarkers(self.resource, plan.target)
        markers.create()
        self.created = None
        if layout is None:
            self._drop_aside(plan.target)
            created = self._create(plan, options)
            self._images[options.written_to(plan)] = ddl.planned_image(plan, options)
            layout = self._require(plan.target)
            self.created = layout.uuid if created and layout.uuid != NO_UUID else None
            markers.remove_others([table_identity(plan.target, layout.uuid)])
        else:
            columns = found or self.resource.columns(plan.target)
            notes += self.verify(plan, options, columns)
        quarantine.create_quarantine(self.resource, plan)
        self._layouts = {plan.target: layout}
        markers.claim(table_identity(plan.target, layout.uuid))
        if options.mode.whole_table:
            ensure_shadow(self.resource, plan, options, layout)
            shadow = target_names.shadow_of(plan.target)
            markers.claim(table_identity(shadow, self._require(shadow).uuid))
        elif not layout.atomic:
            notes.append(
                f"{plan.target} is not partitioned by key range ({RANGE_COLUMN}), so that a range "
                "is replaced by delete and insert: readers may see it half done"
            )
        return [*notes, *self.unapplied(plan, options)]

    def _create(self, plan: CopyPlan, options: TargetOptions) -> bool:
        """Create the target; return False if another session was faster: its table is as good."""
        try:
            self.resource.execute(ddl.create_table(plan, options))
        except errors.StatementFailed as error:
            if error.code != EXISTS:
                raise
            return False
        return True

    def gathered_in(self, plan: CopyPlan, options: TargetOptions) -> str | None:
        """See `Target.gathered_in`."""
        layout = layout_of(self.resource, plan.target)
        if layout is None or not self._made_like(plan, options, layout):
            return None
        return self.identity(target_names.shadow_of(plan.target))

    def _made_like(self, plan: CopyPlan, options: TargetOptions, layout: TableLayout) -> bool:
        """Whether the shadow has the shape that it should have."""
        shadow = target_names.shadow_of(plan.target)
        owner = shadow_owner(self.resource, plan, options, layout)
        return locks.read_owner(self.resource, shadow, shadow.name) == owner

    def as_made(self, plan: CopyPlan, options: TargetOptions) -> bool:
        """See `Target.as_made`."""
        return not commented(self.resource, plan.target) and super().as_made(plan, options)

    def drop_empty(self, table: TableRef, identity: str) -> bool:
        """There is no lock: the table is renamed, so that no INSERT finds it any more, and dropped
        once those that had found it are over. See `Target.drop_empty`."""
        aside = target_names.aside_of(table)
        if self.identity(table) != identity:
            return False
        self._drop_aside(table)
        self.resource.execute(f"RENAME TABLE {qualified(table)} TO {qualified(aside)}")
        crash_points.reached("table_aside")
        try:
            self._wait_for_inserts(table)
            if self._drop_aside(table):
                return True
        except errors.TableferryError:
            self.resource.execute(f"RENAME TABLE {qualified(aside)} TO {qualified(table)}")
            raise
        return False

    def _drop_aside(self, table: TableRef) -> bool:
        """Drop the empty table that was put aside for a new one; return whether there was one.

        Raises:
            InputError: it has rows, which somebody wrote meanwhile.
        """
        aside = target_names.aside_of(table)
        if not layout_of(self.resource, aside):
            return False
        ((rows,),) = self.resource.query(f"SELECT count() FROM {qualified(aside)}")
        if rows:
            raise errors.InputError(
                f"{table} was empty and about to be recreated, but somebody has written "
                f"{counted(rows, 'row')} to it, which {aside} holds now; rename that table back, "
                "or drop it"
            )
        self.resource.execute(drop_table(aside))
        return True

    def _wait_for_inserts(self, table: TableRef) -> None:
        """Wait for the INSERTs that name a table as theirs.

        Raises:
            RangeBusy: some still run.
        """
        inserting = literal(INSERTING.format(*map(re.escape, (table.schema, table.name))))
        for _ in range(WAIT_SECONDS * 10):
            ((running,),) = self.resource.query(
                f"SELECT count() FROM {self._processes()} "
                f"WHERE query_kind IN ('Insert', 'AsyncInsertFlush') AND match(query, {inserting})"
            )
            if not running:
                return
            time.sleep(0.1)
        raise errors.RangeBusy(
            f"{table}: somebody still writes to it, so that it is not recreated; run again"
        )

    def _processes(self) -> str:
        """The table of what runs, on any replica of a cluster."""
        cluster = self.resource.clustered()
        if cluster is None:
            return "system.processes"
        return f"clusterAllReplicas({literal(cluster.name)}, system.processes)"

    def unalterable(self, table: TableRef, statements: Sequence[str]) -> str:
        """See `Target.unalterable`."""
        path = qualified(table)
        sent = {
            right
            for right in ("ADD COLUMN", "DROP COLUMN", "MODIFY COLUMN", "RENAME COLUMN", "UPDATE")
            if any(each.startswith(f"ALTER TABLE {path} {right} ") for each in statements)
        }
        lacking = [
            right for right in sorted(sent) if not granted(self.resource, f"ALTER {right}", path)
        ]
        if not lacking:
            return ""
        user, rights = user_of(self.resource), ", ".join(f"ALTER {right}" for right in lacking)
        return f"{user} may not alter {table}: GRANT {rights} ON {path} TO {user}"

    def altering(
        self, table: TableRef, before: Column, after: Column
    ) -> tuple[tuple[str, ...], str]:
        """A column of a key cannot be altered. See `Target.altering`."""
        statements, _ = super().altering(table, before, after)
        rows = self.resource.query(
            "SELECT is_in_sorting_key, is_in_partition_key, is_in_primary_key "
            f"FROM system.columns WHERE database = {literal(table.schema)} "
            f"AND table = {literal(table.name)} AND name = {literal(before.name)}"
        )
        keys = ("sorting", "partition", "primary")
        held = [key for key, held in zip(keys, rows[0], strict=True) if held] if rows else []
        return statements, f"it is a column of the {held[0]} key" if held else ""

    def unapplied(self, plan: CopyPlan, options: TargetOptions) -> list[str]:
        """See `Target.unapplied`."""
        return unapplied(self.resource, plan, options)

    def hazards(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column]
    ) -> list[Hazard]:
        """A staging table has the table's own columns. See `Target.hazards`."""
        return hazards.hazards(self.resource, plan, options)

    def lost(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        """See `Target.lost`."""
        return not_carried_over(lost(self.resource, plan, options))

    def creation(self, plan: CopyPlan, options: TargetOptions) -> list[str]:
        """See `Target.creation`."""
        return [self.resource.for_all(ddl.create_table(plan, options))]

    def publication(self, publication: Publication, options: TargetOptions) -> list[str]:
        """See `Target.publication`."""
        plan, key_range = publication.plan, publication.key_range
        layout = _of_loaded(layout_of(self.resource, plan.target), options)
        atomic = options.partition_by is None if layout is None else layout.atomic
        table, name = options.written_to(plan), staging_name(plan.target, key_range.name)
        staging, owner = f"{name}_{ATTEMPT}", locks.Owner(RUN, ATTEMPT)
        image = self._image(plan.target) if layout else ddl.planned_image(plan, options)
        target, staged = qualified(table), qualified(table, staging)
        in_range = ddl.in_partition(key_range) if atomic else plan.target_range(key_range)
        statements = ddl.staging_table(table, staging, owner, key_range if atomic else None, image)
        fmt = "ArrowStream" if publication.format in ("arrow", None) else "TabSeparated"
        columns = [column.name for column in plan.target_columns]
        statements.append(server.insert_statement(replace(table, name=staging), columns, fmt))
        if options.keeps_rows(plan) and (atomic or options.appends(plan)):
            statements += ddl.complete(
                publication, options, ddl.names(columns), target, staged, in_range
            )
        if atomic:
            statements.append(ddl.replace_partition(target, staged, key_range))
        else:
            statements += ddl.rewrite(publication, options, target, staged, in_range)
        statements.append(drop_table(table, staging))
        return [*map(self.resource.for_all, statements)]

    @contextlib.contextmanager
    def attempt(
        self, publication: Publication, options: TargetOptions, alive: Alive = no_live_owner
    ) -> Iterator[ClickHouseLoad]:
        """Hold the range by a lock table, with a new staging table. See `Target.attempt`.

        Each attempt's staging table has a new name, so that a run that lost the range, but does not
        know it yet, can neither publish nor damage what another run stages.
        """
        plan, key_range = publication.plan, publication.key_range
        table = options.written_to(plan)
        if table not in self._layouts:
            self._layouts[table] = self._require(table)
        layout = self._layouts[table]
        lock = staging_name(plan.target, key_range.name)
        owner = locks.Owner(publication.owner, uuid.uuid4().hex[:12])
        staging = f"{lock}_{owner.token}"
        locks.take_lock(self.resource, table, lock, owner, key_range, alive)
        try:
            image, of_range = (self._image(table), key_range) if layout.atomic else ((), None)
            for statement in ddl.staging_table(table, staging, owner, of_range, image):
                self.resource.execute(statement)
            yield ClickHouseLoad(
                resource=self.resource,
                plan=plan,
                key_range=key_range,
                options=options,
                table=table,
                lock=lock,
                staging=staging,
                owner=owner,
                publication=publication,
                marker=self._marker(table, layout, owner, publication),
                atomic=layout.atomic,
                look=functools.partial(self.hazards, plan, options, ()),
            )
        except BaseException:
            # the table may have been altered
            self._images.pop(table, None)
            raise
        finally:
            # if the server is away, the next attempt or `clean` drops them
            with contextlib.suppress(errors.TableferryError):
                self.resource.execute(drop_table(table, staging))
                if options.audits_shown:
                    self.resource.execute(drop_table(table, f"{staging}{BEFORE}"))
                locks.release_lock(self.resource, table, lock, owner)

    def published(self, plan: CopyPlan, options: TargetOptions) -> Published:
        """See `Target.published`."""
        return looking_ahead.answer(self.resource, published, plan.target) or Published()

    @contextlib.contextmanager
    def marking(
        self, publication: Publication, options: TargetOptions, alive: Alive = no_live_owner
    ) -> Iterator[None]:
        """Hold the range by its lock table. See `Target.marking`."""
        plan, key_range = publication.plan, publication.key_range
        table, lock = options.written_to(plan), staging_name(plan.target, key_range.name)
        owner = locks.Owner(publication.owner, uuid.uuid4().hex[:12])
        marker = self._marker(table, self._require(table), owner, publication)
        locks.take_lock(self.resource, table, lock, owner, key_range, alive)
        try:
            marker.put()
            marker.require_alone()
            yield
        finally:
            with contextlib.suppress(errors.TableferryError):
                locks.release_lock(self.resource, table, lock, owner)

    def _marker(
        self, table: TableRef, layout: TableLayout, owner: locks.Owner, publication: Publication
    ) -> RangeMarker:
        where = table_identity(table, layout.uuid)
        return RangeMarker(self.resource, table, where, publication, owner.token, layout.atomic)

    def forget_markers(self, table: TableRef) -> bool:
        """See `Target.forget_markers`."""
        layout = layout_of(self.resource, table)
        if not layout or not layout_of(self.resource, markers_of(table)):
            return False
        identity = table_identity(table, layout.uuid)
        return ClickHouseMarkers(self.resource, table).remove(identity)

    def identity(self, table: TableRef) -> str | None:
        """The table's UUID, which EXCHANGE TABLES and RENAME do not change."""
        layout = layout_of(self.resource, table)
        # tables outside an Atomic database have none, and cannot be exchanged either
        return layout.uuid if layout and layout.uuid != NO_UUID else None

    def promote(
        self,
        plan: CopyPlan,
        options: TargetOptions,
        gathered: Mapping[str, str] | None = None,
        known: Published | None = None,
    ) -> None:
        """Exchange shadow and target in one step, and drop the former target.

        The shadow's comment names the UUID of the table that it replaces. After the exchange the
        target has another UUID, which tells a repetition that it only has to drop the table.
        """
        shadow, target = target_names.shadow_of(plan.target), plan.target
        state = layout_of(self.resource, shadow)
        if state is None:
            return
        before, markers = self._require(target), ClickHouseMarkers(self.resource, target)
        owner = locks.read_owner(self.resource, shadow, shadow.name)
        current = owner is not None and owner.replaces == before.uuid
        if current:
            if gathered is not None:
                markers.require(table_identity(shadow, state.uuid), gathered)
                if not self._made_like(plan, options, before):
                    raise TargetMoved(altered_meanwhile(target))
            exchange = f"EXCHANGE TABLES {qualified(target)} AND {qualified(shadow)}"
            former = table_identity(target, before.uuid)
            if known is not None:
                markers.require_unmoved(former, known)
            self.resource.execute(exchange)
            crash_points.reached("inside_swap")
            try:
                if known is not None:
                    # somebody may have published in it at the last moment
                    markers.require_unmoved(former, known)
            except TargetMoved:
                self.resource.execute(exchange)
                raise
        # once exchanged, the shadow is the former target
        drop_former(self.resource, target, shadow)
        gone = before if current else state
        markers.remove(table_identity(target, gone.uuid))
        self._layouts = {}

    def retire(
        self,
        plan: CopyPlan,
        ranges: Sequence[KeyRange],
        into: Sequence[KeyRange],
        options: TargetOptions,
    ) -> None:
        """Empty the partitions of ranges without others in their place. See `Target.retire`.

        Other rows stay until the new ranges bring them, and drop those that they find elsewhere,
        see `ClickHouseLoad.finalise`; the source may be away until then. With `append` and `upsert`
        the new ranges take them over.
        """
        table = options.written_to(plan)
        layout = self._require(table)
        if layout_of(self.resource, markers_of(table)):
            markers = ClickHouseMarkers(self.resource, plan.target)
            markers.take_back(table_identity(table, layout.uuid), [gone.name for gone in ranges])
        if not layout.atomic:
            for key_range in () if into else ranges:
                self.resource.execute(
                    f"ALTER TABLE {qualified(table)} DELETE WHERE {plan.target_range(key_range)} "
                    "SETTINGS mutations_sync = 2"
                )
            return
        if into or not ranges:
            return
        for key_range in ranges:
            self.resource.execute(f"ALTER TABLE {qualified(table)} DROP {ddl.partition(key_range)}")
        replaced.let_go_ranges(self.resource, table, ranges)

    def keep_quarantined(self, plan: CopyPlan, ranges: Sequence[str]) -> None:
        """See `Target.keep_quarantined`."""
        quarantine.keep_quarantined(self.resource, plan.target, ranges)

    def clean(
        self, target: TableRef, alive: Alive = no_live_owner, *, rejected: bool = True
    ) -> list[str]:
        """Drop locks, staging tables and outdated shadows of dead runs. See `Target.clean`."""
        shadow, prefix = target_names.shadow_of(target), staging_prefix(target)
        rows = self.resource.query(
            f"SELECT name, comment FROM system.tables WHERE database = {literal(target.schema)} "
            f"AND (name = {literal(shadow.name)} OR startsWith(name, {literal(prefix)})) "
            "ORDER BY name"
        )
        owners = {name: locks.Owner.read(comment) for name, comment in rows}
        former = owners.pop(shadow.name, None)
        dropped = [
            name
            for name, owner in owners.items()
            if (rejected or not target_names.is_rejected(target, name)) and not alive(owner.run)
        ]
        for name in dropped:
            self.resource.execute(drop_table(target, name))
        layout = layout_of(self.resource, target) if former else None
        if former and layout and former.replaces != layout.uuid:
            drop_former(self.resource, target, shadow)
            dropped.append(shadow.name)
        return dropped

    def staged_columns(self, plan: CopyPlan, staging: TableRef) -> list[Column]:
        """See `Target.staged_columns`."""
        return self.resource.columns(staging)

    def rejected_table(self, plan: CopyPlan, key_range: KeyRange) -> TableRef | None:
        """The range's rows that failed their audit. See `Target.rejected_table`."""
        kept = target_names.rejected_of(plan.target, key_range.name)
        return kept if layout_of(self.resource, kept) else None

    def _require_place(self, table: TableRef, engine: str, database_engine: str) -> None:
        cluster = self.resource.clustered()
        engines = {table: engine}
        if cluster:
            own = layouts_of(self.resource, [markers_of(table), target_names.quarantine_of(table)])
            engines |= {name: layout.engine_full for name, layout in own.items()}
        for name, written in engines.items():
            require_place(
                self.resource,
                name,
                engine=written,
                database_engine=database_engine,
                cluster=cluster.name if cluster else None,
            )

    def _require_database(self, table: TableRef, engine: str) -> None:
        try:
            database_engine = self.resource.database_engine(DIALECT.quote(table.schema))
        except errors.InputError as error:
            raise errors.InputError(f"{table}: {error}") from None
        self._require_place(table, engine, database_engine)

    def _require_syntax(self, plan: CopyPlan, options: TargetOptions) -> None:
        statement = ddl.create_table(plan, options)
        try:
            self.resource.query(f"SELECT formatQuerySingleLine({literal(statement)})")
        except errors.StatementFailed as error:
            raise errors.InputError(
                f"{plan.target}: engine, order_by or partition_by cannot be parsed: {error}"
            ) from None

    def _image(self, table: TableRef) -> ddl.Image:
        image = self._images.get(table)
        if image is None:
            image = self._images[table] = ddl.defined_image(self.resource.definition(table))
        return image

    def _require(self, table: TableRef) -> TableLayout:
        layout = layout_of(self.resource, table)
        if layout is None:
            raise errors.TableMissing(f"{table} does not exist")
        return layout


def _of_loaded(layout: TableLayout | None, options: TargetOptions) -> TableLayout | None:
    """The target's layout if the table that is loaded has it; None if that is as declared."""
    return None if options.recreate else layout


def _check_mode(plan: CopyPlan, options: TargetOptions, atomic: bool) -> None:
    check_mode(plan, options)
    key = plan.key.target.name
    if options.mode.updates_known and atomic and key not in plan.row_identity:
        raise errors.InputError(
            f"{plan.target}: upsert into ClickHouse goes range by range, and needs the key "
            f"column {key!r} to be part of the primary key"
        )
