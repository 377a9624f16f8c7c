"""Files as Dagster's resource."""

from __future__ import annotations

from resources.connection import ServerResource
from resources.files.server import FilesServer


class FilesResource(FilesServer, ServerResource):
    """Folders of files, see `FilesServer`."""
