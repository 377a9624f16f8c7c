"""How rows leave files: each file is a range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from resources.connections import connection_url
from resources.dialects import filtered, predicate, qualified, string_literal
from resources.endpoint import Endpoint
from resources.errors import InputError, TableferryError
from resources.files.folder import content_hash
from resources.files.object_store import store_at
from resources.files.resource import FilesResource
from resources.files.types import FILE, FILE_TYPE, FROM_TEXT, from_text, read, text_type
from resources.fingerprint import SourceFingerprint
from resources.keys.range import KeyRange
from resources.refusals import MARK, SHOWN, Where
from resources.retry import is_transient
from resources.source import Source
from resources.tables import Column, TableRef
from resources.types.conversions import holds
from resources.types.kinds import Decimal, Integer, Kind

KEY = Column(FILE, FILE_TYPE, nullable=False)


class FilesSource(Source):
    """See `Source`."""

    own_key = FILE

    def require_installed(self, table: TableRef) -> None:
        """An object store needs a package that not everybody installs."""
        store_at(connection_url(table.connection))

    def own_ranges(self, endpoint: Endpoint, table: TableRef) -> Sequence[KeyRange]:
        """One per file."""
        files = cast(FilesResource, endpoint).files(table)
        return [KeyRange("file", file.name) for file in files]

    def fingerprint(
        self, endpoint: Endpoint, table: TableRef, key_range: KeyRange, where: str | None
    ) -> SourceFingerprint:
        """A file's hash and rows."""
        resource = cast(FilesResource, endpoint)
        file = next((one for one in resource.files(table) if one.name == key_range.lower), None)
        if file is None:
            gone = f"{table}: there is no file {key_range.lower} any more"
            return SourceFingerprint(0, "file:gone", refused=gone)
        condition = filtered(predicate(KEY, key_range, "files"), where)
        try:
            hashed = content_hash(file)
            if file.format == "parquet" and where is None:
                rows = resource.declared_rows(file)
            else:
                sql = f"SELECT count(*) FROM {qualified(table)} WHERE {condition}"
                rows = int(resource.query(sql)[0][0])
        except TableferryError as error:
            if is_transient(error):
                raise
            why = str(error) if file.path in str(error) else str(file.unreadable(error))
            return SourceFingerprint(0, f"file:{file.size}:{file.version}", refused=why)
        return SourceFingerprint(rows, f"file:{rows}:{hashed}")

    def declared(self, column: Column, type_: str) -> Column:
        """Texts are read as what is declared; other files declare their types themselves."""
        if not column.type.endswith(FROM_TEXT):
            return super().declared(column, type_)
        try:
            return Column(column.name, from_text(type_), column.nullable)
        except InputError as error:
            raise InputError(f"column {column.name!r}: {error}") from None

    def kept(self, column: Column, kind: Kind | None) -> Column:
        """Texts and numbers are read as before, whatever later files would make of them all."""
        guessed = read(column.type).kind
        type_ = text_type(kind) if kind is not None and guessed is not None else None
        if type_ is not None and not column.type.endswith(FROM_TEXT):
            # what does not fit into an integer fails; decimals would be rounded
            whole = isinstance(guessed, Integer) and isinstance(kind, Integer)
            wider = isinstance(guessed, Integer | Decimal) and isinstance(kind, Decimal)
            keeps = whole or (wider and kind is not None and guessed and holds(kind, guessed))
            type_ = type_.removesuffix(FROM_TEXT) if keeps else None
        return Column(column.name, type_, column.nullable) if type_ else column

    def guarded(
        self, expression: str, condition: str, where: Where, reason: str, type_: str
    ) -> str:
        """By an error with the message."""
        table, column, why = (
            string_literal("files", text) for text in (where.table, where.column, reason)
        )
        place = f"json_array({table}, {column}, CAST({where.key} AS VARCHAR), "
        place += f"left(CAST({where.value} AS VARCHAR), {SHOWN}), {why})"
        message = f"error('{MARK}' || CAST({place} AS VARCHAR))"
        return f"CASE WHEN {condition} THEN {message} ELSE {expression} END"
