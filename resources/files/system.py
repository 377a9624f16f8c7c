"""Files: a source of rows."""

from __future__ import annotations

from resources.connection import Scheme
from resources.files import digest
from resources.files.dialect import FilesDialect
from resources.files.errors import verdict
from resources.files.resource import FilesResource
from resources.files.source import FilesSource
from resources.files.types import TYPES
from resources.system import System

SYSTEM = System(
    name="files",
    title="files",
    resource=FilesResource,
    schemes={"file": Scheme(0)},
    database=".",
    dialect=FilesDialect(),
    types=TYPES,
    digest=digest,
    by_path=True,
    verdict=verdict,
    source=FilesSource(),
    no_loader="files are read, never written",
)
