"""Files: a source of rows, and a target of them."""

from __future__ import annotations

from resources.files import digest
from resources.files.dialect import FilesDialect
from resources.files.errors import verdict
from resources.files.exports import PATTERN
from resources.files.object_store import KINDS
from resources.files.overflow import FilesOverflow
from resources.files.server import FilesServer
from resources.files.source import FilesSource
from resources.files.target import FilesTarget, folder_problem
from resources.files.types import TYPES
from resources.server import Scheme
from resources.system import Loader, System

SYSTEM = System(
    name="files",
    title="files",
    resource=FilesServer,
    dagster="resources.files.resource:FilesResource",
    schemes=dict.fromkeys(("file", *KINDS), Scheme(0)),
    database=".",
    dialect=FilesDialect(),
    types=TYPES,
    digest=digest,
    overflow=FilesOverflow(),
    by_path=PATTERN,
    verdict=verdict,
    source=FilesSource(),
    loader=Loader(
        FilesTarget, accepts=("arrow",), modes=("replace",), table_problem=folder_problem
    ),
)
