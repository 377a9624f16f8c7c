"""Records key ranges and check verdicts in Dagster's event log."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import ONLY_SHOWN, Transfer
from tableferry.assets.log import check_metadata, declared, grouping, ledger, records
from tableferry.checks.verdict import Verdict
from tableferry.resources.crash_points import reached
from tableferry.resources.words import counted


class EventLogger(Protocol):
    """What the writer needs of an op's context."""

    @property
    def instance(self) -> dg.DagsterInstance: ...

    def log_event(self, event: Any) -> None: ...


class Writer:
    """Records the ranges of one hop, from any thread of a run."""

    def __init__(self, context: EventLogger, asset: dg.AssetKey, transfer: Transfer) -> None:
        self._context, self._asset, self._transfer = context, asset, transfer
        self._lock = threading.Lock()
        self._asked = {
            check: {records.ASKED: dg.MetadataValue.text(asked)}
            for check, asked in declared.asked_of(transfer).items()
        }

    @cached_property
    def declared(self) -> str:
        """What the transfer declares now of the rows of this hop."""
        targets = [asset_key(hop.to) for hop in self._transfer.hops]
        return declared.declaration_of(self._transfer, targets.index(self._asset) + 1)

    def progress(self, record: records.RangeRecord) -> None:
        """Record how far an attempt came, or that it failed."""
        self._log(
            dg.AssetObservation(
                self._asset,
                partition=record.range,
                metadata=record.metadata(),
                tags={
                    records.STATE: str(record.state),
                    records.VERSION: record.data_version or "none",
                },
            )
        )

    def created(self, identity: str) -> None:
        """Record that this run has created the target, which nobody else did."""
        self._log(dg.AssetObservation(self._asset, tags={records.CREATED: identity}))

    def rejected(self, table: dg.AssetKey, rows: int) -> None:
        """Record how many rows the table beside the target keeps."""
        self._log(dg.AssetMaterialization(table, metadata={"dagster/row_count": rows}))

    def commit(self, record: records.RangeRecord) -> None:
        """Record that a range is committed, or unchanged."""
        assert record.data_version is not None, "a commit needs its data version"
        metadata = replace(record, declared=self.declared).metadata()
        if record.repaired is not None:
            metadata["repaired_rows"] = check_metadata.rows_that_differed(record.repaired)
        origin = {records.WRITTEN_BY: record.written_by, records.TAKEN_FROM: record.taken_from}
        self._log(
            dg.AssetMaterialization(
                self._asset,
                partition=record.range,
                metadata=metadata,
                tags={
                    records.DATA_VERSION: record.data_version,
                    records.USER_PROVIDED: "true",
                    records.STATE: str(record.state),
                    **{name: run_id for name, run_id in origin.items() if run_id},
                },
            )
        )

    def record_commit(
        self,
        record: records.RangeRecord,
        verdicts: Iterable[Verdict],
    ) -> None:
        """Record the commit of a range and then its verdicts.

        A storage that stores groups stores all or nothing. With another one, a crash may leave the
        commit without verdicts: the next run checks such a range.
        """
        with grouping.together(self._context.instance.event_log_storage) as grouped:
            self.commit(record)
            reached("inside_record")
            self.all_checked(record.range, verdicts, grouping.PENDING if grouped else None)

    def all_checked(
        self,
        range_name: str,
        verdicts: Iterable[Verdict],
        about: ledger.Materialization | None = None,
    ) -> None:
        """Record verdicts about a range's latest materialization, if it has one, in order."""
        about = about or ledger.latest_materialization(
            self._context.instance, self._asset, range_name
        )
        for verdict in verdicts:
            self.checked(range_name, verdict, about)

    def checked(
        self, range_name: str, verdict: Verdict, about: ledger.Materialization | None = None
    ) -> None:
        """Record a verdict about a materialization of a range, by default the latest."""
        spec = self._transfer.check_spec(verdict.check)
        self._evaluated(
            verdict,
            spec.severity == "warn" or verdict.source_newer,
            about or ledger.latest_materialization(self._context.instance, self._asset, range_name),
            partition=range_name,
            blocking=spec.blocking,
        )

    def checked_table(
        self, verdict: Verdict, *, warning: bool, missing: int, about: ledger.Materialization | None
    ) -> None:
        """Record a verdict about the whole table.

        Args:
            verdict: the verdict.
            warning: a failure is only a warning.
            missing: the number of ranges that are not committed.
            about: the newest materialization when the tables were read.
        """
        self._evaluated(verdict, warning, about, {records.NOT_COMMITTED: missing})

    def _evaluated(
        self,
        verdict: Verdict,
        warning: bool,
        about: ledger.Materialization | None,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        scope = {"row_security": ONLY_SHOWN} if self._transfer.row_security == "apply" else {}
        self._log(
            dg.AssetCheckEvaluation(
                asset_key=self._asset,
                check_name=verdict.check,
                passed=verdict.passed,
                severity=_severity(warning),
                target_materialization_data=about,
                description=check_metadata.conclusion(verdict),
                metadata={
                    **check_metadata.verdict_metadata(verdict),
                    **scope,
                    **self._asked.get(verdict.check, {}),
                    **(metadata or {}),
                },
                **more,
            )
        )

    def summarised(
        self,
        check: str,
        *,
        ranges: int,
        failed: int,
        warning: bool = False,
        unseen: int = 0,
        problem: str = "",
    ) -> None:
        """Record a summary of a check over all ranges of a run.

        A run that is started without a range plans each check without one. Dagster would show the
        planned check as skipped, or as failed if the run fails, beside the verdicts of the ranges.

        Args:
            check: name of the check.
            ranges: number of ranges of the run.
            failed: number of ranges that failed in the check.
            warning: their failure is only a warning.
            unseen: number of ranges that were not compared.
            problem: why they were not compared.
        """
        parts = [f"{failed} of {counted(ranges, 'range')} failed"] if failed else []
        if unseen > 0:
            parts.append(f"not compared: {unseen} of {counted(ranges, 'range')}; {problem}")
        self._log(
            dg.AssetCheckEvaluation(
                asset_key=self._asset,
                check_name=check,
                passed=not parts,
                severity=_severity(warning or not failed),
                description="; ".join(parts) or f"all {ranges} ranges passed",
                metadata={"ranges": ranges, "failed_ranges": failed, "ranges_not_compared": unseen},
            )
        )

    def checked_no_table(
        self, check: str, verdict: ledger.StoredCheck | None, problem: str
    ) -> None:
        """Record that a run did not reach a check of the whole table, and why.

        The check's standing verdict is repeated if it has one.
        """
        if verdict is not None:
            about = ledger.latest_materialization(self._context.instance, self._asset)
            self._log(check_metadata.repeated(verdict, about))
            return
        self._log(
            dg.AssetCheckEvaluation(
                asset_key=self._asset,
                check_name=check,
                passed=False,
                severity=dg.AssetCheckSeverity.WARN,
                description=f"not compared: {problem}",
            )
        )

    def commit_again(self, record: records.RangeRecord, checks: Sequence[str]) -> list[str]:
        """Record that a range is unchanged, and repeat the standing verdicts of these checks.

        The range gets a new materialization, which no verdict is about yet, and Dagster shows a
        planned check without a verdict as skipped. So each standing verdict is recorded again, with
        the run and time that found it.

        Returns:
            The blocking checks that failed: a check beside this run found the range damaged.
        """
        instance, name = self._context.instance, record.range
        before = ledger.latest_materialization(instance, self._asset, name)
        if before is not None and not (record.target_digest or record.left_digest):
            last = ledger.committed_records(instance, self._asset, [name])[name]
            if last.data_version == record.data_version:
                digests = last.target_digest, last.left_digest
                record = replace(record, target_digest=digests[0], left_digest=digests[1])
        self.commit(record)
        if before is None:
            return []
        # after the commit: a verdict recorded later is about the new materialization
        verdicts = ledger.standing(
            instance, self._asset, checks, {name: before.storage_id}, only=name
        )
        now = ledger.latest_materialization(instance, self._asset, name)
        failed = []
        for check, stored in ledger.stored_checks(instance, verdicts).get(name, {}).items():
            evaluation = check_metadata.repeated(stored, now, self._asked.get(check, {}))
            self._log(evaluation)
            if evaluation.blocking and not evaluation.passed:
                failed.append(check)
        return failed

    def _log(self, event: Any) -> None:
        with grouping.together(self._context.instance.event_log_storage), self._lock:
            self._context.log_event(event)


def _severity(warning: bool) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.WARN if warning else dg.AssetCheckSeverity.ERROR
