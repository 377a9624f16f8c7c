"""Reads the transfers of a component: those of its attribute, and those of a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from pydantic import GetJsonSchemaHandler, GetPydanticSchema, ValidationError

from tableferry.assets.declaring import schema, sections, transfer_files, yaml_lines
from tableferry.assets.declaring.manifest import Transfer
from tableferry.pipelines.component.connections import env_names, templates_in
from tableferry.resources.errors import InputError

TransferItem = Annotated[
    Transfer | Mapping[str, Any] | yaml_lines.YamlFile | yaml_lines.Unreadable | InputError,
    # pydantic would make a copy of a transfer, and has no schema for the others
    GetPydanticSchema(lambda _, handler: handler(Any)),
]
"""An item of the attribute: of Python code a transfer or its keys; of a file its part, or why it
cannot be read."""


class TransferSchema:
    """Has a mapping described in a JSON Schema as a transfer is, for completion and reading.

    Any mapping fits it: the loader names what is wrong by file, line and key.
    """

    def __get_pydantic_json_schema__(
        self, core: object, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # `dg check defs` would say of the list that it fits no schema, and stop before the loader
        return {"anyOf": [schema.embedded_schema(), {"type": "object"}]}


def listed_transfers(context: dg.ResolutionContext, value: Any) -> Sequence[TransferItem]:
    """Return the items of the attribute, with their line numbers if they are in a file.

    An error is returned as an item, because Dagster would show a raised one with a traceback.
    """
    tree = context.source_position_tree

    def render(text: str) -> Any:
        if names := env_names(text):
            # the syntax of transfer files, which refuses secrets
            raise InputError(f"transfers: {text}: write ${{{names[0]}}} for what a variable holds")
        return context.resolve_value(text, as_type=object)

    try:
        if tree is None or not Path(tree.position.filename).is_file():
            return [templates_in(item, render) for item in value]
        path, start = Path(tree.position.filename), tree.position.start.line
        parts = yaml_lines.YamlFile.listed(path, start, ("attributes", "transfers"))
        return [replace(part, data=templates_in(part.data, render)) for part in parts]
    except (yaml_lines.Unreadable, InputError) as error:
        return [error]


def declared_transfers(
    items: Sequence[TransferItem],
    base: Path,
    path: str | None,
    connections: Mapping[str, str],
) -> transfer_files.TransferFolder:
    """Validate the transfers of a component.

    Args:
        items: those of its attribute.
        base: the component's folder.
        path: a folder of transfer files, relative to `base`, if it has one.
        connections: the systems of the component's own connections, by name.

    Raises:
        InputError: every problem, by file and line; or there is no transfer.
    """
    if errors := [item for item in items if isinstance(item, yaml_lines.Unreadable | InputError)]:
        raise InputError("\n".join(map(str, errors)))
    parts = [item for item in items if isinstance(item, yaml_lines.YamlFile)]
    folders = [transfer_files.transfers_in(base, parts, connections)]
    if path is not None:
        if not (base / path).is_dir():
            raise InputError(f"path: {base / path} should be a folder of transfer files")
        folders.append(transfer_files.load_transfers(base / path, connections))
    if invalid := [file for folder in folders for file in folder.invalid]:
        raise InputError("\n".join(map(str, invalid)))
    transfers = [*_of_code(items, {sections.CONNECTIONS: connections, sections.FOLDER: base})]
    for folder in folders:
        transfers += folder.transfers.values()
    declared = transfer_files.TransferFolder.of(transfers)
    if not declared.transfers:
        raise InputError(f"{base}: there are no transfers: give transfers, or path")
    files = {name: file for folder in folders for name, file in folder.files.items()}
    return replace(declared, files=files)


def _of_code(items: Sequence[TransferItem], context: Mapping[str, Any]) -> Iterator[Transfer]:
    """Validate the transfers that Python code declares."""
    for index, item in enumerate(items):
        if isinstance(item, Transfer):
            yield item
        elif not isinstance(item, yaml_lines.YamlFile):
            yield _transfer(index, item, context)


def _transfer(index: int, item: object, context: Mapping[str, Any]) -> Transfer:
    try:
        return Transfer.model_validate(item, context=context)
    except ValidationError as error:
        name = item.get("transfer") if isinstance(item, Mapping) else None
        where = f"transfers.{index}" + (f" ({name})" if name else "")
        problems = [
            f"{where}: {'.'.join(map(str, detail['loc']))}: "
            f"{detail['msg'].removeprefix('Value error, ')}"
            for detail in error.errors(include_url=False)
        ]
        raise InputError("\n".join(problems)) from None
