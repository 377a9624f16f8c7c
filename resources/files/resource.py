"""Files as Dagster's resource."""

from __future__ import annotations

from tableferry.resources.connecting.resource import ServerResource
from tableferry.resources.files.server import FilesServer


class FilesResource(FilesServer, ServerResource):
    """Folders of files, see `FilesServer`."""
