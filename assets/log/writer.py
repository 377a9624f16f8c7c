"""Writes what becomes of key ranges, and what checks find, into Dagster's event log."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg

from tableferry.assets.declaring.manifest import ONLY_SHOWN, Transfer
from tableferry.assets.log.check_metadata import conclusion, repeated, verdict_metadata
from tableferry.assets.log.grouping import PENDING, together
from tableferry.assets.log.ledger import (
    committed_records,
    latest_materialization,
    standing,
    stored_checks,
)
from tableferry.assets.log.records import (
    DATA_VERSION,
    NOT_COMMITTED,
    STATE,
    USER_PROVIDED,
    VERSION,
    RangeRecord,
)
from tableferry.checks.verdict import Verdict
from tableferry.resources.words import counted

if TYPE_CHECKING:
    from tableferry.assets.log.ledger import Materialization, StoredCheck


class EventLogger(Protocol):
    """What the writer needs of an op's context."""

    @property
    def instance(self) -> dg.DagsterInstance: ...

    def log_event(self, event: Any) -> None: ...


class Writer:
    """Records what becomes of the ranges of one hop, from any thread of one run."""

    def __init__(self, context: EventLogger, asset: dg.AssetKey, transfer: Transfer) -> None:
        self._context, self._asset, self._transfer = context, asset, transfer
        self._lock = threading.Lock()

    def progress(self, record: RangeRecord) -> None:
        """Tell how far an attempt came, or that it failed."""
        self._log(
            dg.AssetObservation(
                self._asset,
                partition=record.range,
                metadata=record.metadata(),
                tags={STATE: str(record.state), VERSION: record.data_version or "none"},
            )
        )

    def commit(self, record: RangeRecord) -> None:
        """Record that a range is committed, or was found unchanged."""
        assert record.data_version is not None, "a commit needs its data version"
        self._log(
            dg.AssetMaterialization(
                self._asset,
                partition=record.range,
                metadata=record.metadata(),
                tags={
                    DATA_VERSION: record.data_version,
                    USER_PROVIDED: "true",
                    STATE: str(record.state),
                },
            )
        )

    def record_commit(
        self,
        record: RangeRecord,
        verdicts: Iterable[Verdict],
        before: Iterable[RangeRecord] = (),
    ) -> None:
        """Record that a range is committed and what its checks found, in this order.

        A crash leaves a beginning of it: of a range without its verdicts, the next run checks the
        rows before it goes by them. A storage that stores groups has all of it or nothing.

        Args:
            record: of the commit.
            verdicts: about it, in the order in which they are recorded.
            before: how far the attempt came before, if that is not recorded yet.
        """
        with together(self._context.instance.event_log_storage) as at_once:
            for one in before:
                self.progress(one)
            self.commit(record)
            self.all_checked(record.range, verdicts, PENDING if at_once else None)

    def all_checked(
        self,
        range_name: str,
        verdicts: Iterable[Verdict],
        about: Materialization | None = None,
    ) -> None:
        """Record the verdicts about a range's latest materialization, if it has one, in order."""
        about = about or latest_materialization(self._context.instance, self._asset, range_name)
        for verdict in verdicts:
            self.checked(range_name, verdict, about)

    def checked(
        self, range_name: str, verdict: Verdict, about: Materialization | None = None
    ) -> None:
        """Record a check's verdict.

        Args:
            range_name: of the range that was checked.
            verdict: what was found.
            about: the materialization that it is about; the range's latest one, if it has one, when
                not given.
        """
        meaning = self._transfer.check_spec(verdict.check)
        about = about or latest_materialization(self._context.instance, self._asset, range_name)
        self._log(
            dg.AssetCheckEvaluation(
                asset_key=self._asset,
                check_name=verdict.check,
                passed=verdict.passed,
                partition=range_name,
                blocking=meaning.blocking,
                severity=_severity(meaning.severity == "warn" or verdict.source_newer),
                target_materialization_data=about,
                description=conclusion(verdict),
                metadata={**verdict_metadata(verdict), **self._scope},
            )
        )

    def checked_table(
        self,
        verdict: Verdict,
        *,
        warning: bool,
        missing: int,
        about: Materialization | None,
    ) -> None:
        """Record a check's verdict about the whole table.

        Args:
            verdict: what was found.
            warning: a failure is no more than a hint.
            missing: how many ranges are not committed.
            about: the newest materialization when the tables were read.
        """
        self._log(
            dg.AssetCheckEvaluation(
                asset_key=self._asset,
                check_name=verdict.check,
                passed=verdict.passed,
                severity=_severity(warning),
                target_materialization_data=about,
                description=conclusion(verdict),
                metadata={
                    **verdict_metadata(verdict),
                    **self._scope,
                    NOT_COMMITTED: missing,
                },
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
        """Record of a check how its ranges did in it.

        A run that is started without a range plans each check without one. Dagster would show that
        as skipped, beside the verdicts of the ranges; and as failed where the run fails.

        Args:
            check: its name.
            ranges: how many ranges the run was about.
            failed: how many of them failed in the check.
            warning: their failure is no more than a hint.
            unseen: how many the run has not compared.
            problem: why not.
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

    def checked_no_table(self, check: str, verdict: StoredCheck | None, problem: str) -> None:
        """Record that a run did not come to a check of the whole table.

        Args:
            check: its name.
            verdict: its verdict that still counts, which is repeated.
            problem: why the run did not come to it.
        """
        if verdict is not None:
            about = latest_materialization(self._context.instance, self._asset)
            self._log(repeated(verdict, about))
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

    def commit_again(self, record: RangeRecord, checks: Sequence[str]) -> list[str]:
        """Record that a range was found unchanged, and that what its checks found still holds.

        A skipped range has a new materialization, which no verdict is about yet; and a check that a
        run was to do and did not is shown as skipped. So each verdict that counted until now is
        recorded again, with the run and the time that found it.

        Args:
            record: of the skip.
            checks: whose verdicts to record again.

        Returns:
            The blocking ones that failed: a check that ran beside this run found the range damaged.
        """
        instance, name = self._context.instance, record.range
        before = latest_materialization(instance, self._asset, name)
        if before is not None and record.target_digest is None:
            last = committed_records(instance, self._asset, [name])[name]
            if last.data_version == record.data_version:
                record = replace(record, target_digest=last.target_digest)
        self.commit(record)
        if before is None:
            return []
        # after the commit: a verdict that comes later is about the new materialization
        found = standing(instance, self._asset, checks, {name: before.storage_id}, only=name)
        now = latest_materialization(instance, self._asset, name)
        failed = []
        for check, stored in stored_checks(instance, self._asset, found).get(name, {}).items():
            evaluation = repeated(stored, now)
            self._log(evaluation)
            if evaluation.blocking and not evaluation.passed:
                failed.append(check)
        return failed

    @property
    def _scope(self) -> dict[str, str]:
        """What its declaration leaves out of a transfer's verdicts."""
        return {"row_security": ONLY_SHOWN} if self._transfer.row_security == "apply" else {}

    def _log(self, event: Any) -> None:
        with self._lock:
            self._context.log_event(event)


def _severity(warning: bool) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.WARN if warning else dg.AssetCheckSeverity.ERROR
