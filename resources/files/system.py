"""Files: a source of rows, and a target of them."""

from __future__ import annotations

from tableferry.resources.contract.loader import Loader
from tableferry.resources.contract.settings import Scheme
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target_options import WriteMode
from tableferry.resources.files import digest
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.errors import is_transient
from tableferry.resources.files.exports import PATTERN
from tableferry.resources.files.object_store import KINDS
from tableferry.resources.files.overflow import FilesOverflow
from tableferry.resources.files.server import FilesServer
from tableferry.resources.files.source import FilesSource
from tableferry.resources.files.target import FilesTarget, folder_problem
from tableferry.resources.files.types import TYPES

SYSTEM = System(
    name="files",
    title="files",
    resource=FilesServer,
    extra="files",
    dagster="tableferry.resources.files.resource:FilesResource",
    schemes=dict.fromkeys(("file", *KINDS), Scheme(0)),
    database=".",
    dialect=DIALECT,
    types=TYPES,
    digest=digest,
    overflow=FilesOverflow(),
    by_path=PATTERN,
    is_transient=is_transient,
    source=FilesSource(),
    loader=Loader(
        FilesTarget,
        accepts=("arrow",),
        modes=(WriteMode.REPLACE,),
        quarantines=False,
        stored_share=0.4,
        table_problem=folder_problem,
    ),
)
