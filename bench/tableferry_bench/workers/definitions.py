"""Loads the transfers of TABLEFERRY_TRANSFERS as a code server does, and counts them."""

from __future__ import annotations

import json

from dagster._core.definitions.repository_definition import RepositoryDefinition
from dagster._core.remote_representation.external_data import RepositorySnap

from tableferry.pipelines import definitions


def main() -> None:
    """Load it, and describe it as Dagster's webserver and daemon ask for it."""
    repository = definitions.defs().get_repository_def()
    assert isinstance(repository, RepositoryDefinition)
    snap = RepositorySnap.from_def(repository)
    names = {schedule.name.removesuffix("_schedule") for schedule in snap.schedules}
    print(json.dumps({"transfers": sum(not name.endswith("_check") for name in names)}))


if __name__ == "__main__":
    main()
