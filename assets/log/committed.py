"""What planning reads of a committed range, whoever reads the event log for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tableferry.assets.log.records import DataVersion


class WrittenColumn(Protocol):
    """A column that a range was written with, as Dagster's `TableColumn` has it."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def description(self) -> str | None: ...


class WrittenColumns(Protocol):
    """All of them, as Dagster's `TableSchema` has them."""

    @property
    def columns(self) -> Sequence[WrittenColumn]: ...


@dataclass(frozen=True)
class Committed:
    """The latest materialization of a range, as far as planning needs it."""

    data_version: DataVersion
    storage_id: int
    failed: tuple[str, ...] = ()
    """The checks that failed since."""
    unchecked: bool = False
    """A declared check has no verdict: its run died before, or the check was declared since."""

    @classmethod
    def of(
        cls,
        versions: Mapping[str, str],
        ids: Mapping[str, int],
        verdicts: Mapping[str, Mapping[str, bool]],
        checks: Sequence[str],
        declared: Sequence[str],
    ) -> dict[str, Committed]:
        """Those of a hop, by range.

        Args:
            versions: data versions of the newest materializations.
            ids: storage ids of the same.
            verdicts: whether the checks passed, as far as a verdict counts.
            checks: whose failure makes a range suspect.
            declared: checks that every range must have a verdict of.
        """
        found = {}
        for name, version in versions.items():
            if name not in ids:
                continue
            passed = verdicts.get(name, {})
            found[name] = cls(
                DataVersion.parse(version),
                ids[name],
                failed=tuple(one for one in checks if not passed.get(one, True)),
                unchecked=any(one not in passed for one in declared),
            )
        return found
