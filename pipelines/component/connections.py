"""Reads the connections and transfers of a component; templates are rendered at first use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import dagster as dg
from pydantic import BaseModel, GetJsonSchemaHandler, GetPydanticSchema, ValidationError

from tableferry.assets.declaring import schema, sections, transfer_files, yaml_lines
from tableferry.assets.declaring.manifest import Transfer
from tableferry.resources.connecting.address import Variable
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.registry import is_system, system, system_names, systems

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ENV = re.compile(
    r"""\{\{\s*env (?: \.(?P<plain>\w+) | \(\s*(?P<quote>['"])(?P<called>\w+)(?P=quote)\s*\) )
    \s*\}\}""",
    re.VERBOSE,
)
SYSTEM = "system"


class EnvText(Variable):
    """A text with `{{ env.NAME }}` templates, rendered when the server is first used.

    It prints as the template, so that no password is shown.
    """

    @property
    def env_var_name(self) -> str:
        """The first of its variables that is not set, or else the first."""
        names = env_names(self)
        return next((name for name in names if Variable(name).get_value() is None), names[0])

    def get_value(self) -> str | None:
        """Render the text; None if one of its variables is not set."""
        if Variable(self.env_var_name).get_value() is None:
            return None
        return _ENV.sub(
            lambda match: Variable(match["plain"] or match["called"]).get_value() or "", self
        )


def lazily(value: Any, render: Callable[[str], Any]) -> Any:
    """Render the templates in an attribute's value, but leave those of variables for later."""
    return templates_in(
        value, lambda text: render(text) if "{{" in _ENV.sub("", text) else EnvText(text)
    )


def templates_in(value: Any, render: Callable[[str], Any]) -> Any:
    """Render every template in a value; other texts stay unchanged."""
    if isinstance(value, Mapping):
        return {name: templates_in(item, render) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [templates_in(item, render) for item in value]
    return render(value) if isinstance(value, str) and "{{" in value else value


def env_names(text: str) -> list[str]:
    """Return the environment variables in a text's templates."""
    return [match["plain"] or match["called"] for match in _ENV.finditer(text)]


def endpoints(declared: Mapping[str, Any]) -> dict[str, Endpoint]:
    """Build the servers of a component's connections, by name.

    Raises:
        InputError: a connection is invalid; the message names it, but never a value.
    """
    return {name: _endpoint(name, value) for name, value in declared.items()}


def _endpoint(name: str, value: Any) -> Endpoint:
    where = f"connections: {name}"
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{where}: should be small letters, digits and underscores, a letter first"
        )
    if isinstance(value, BaseModel):  # a resource that Python code created
        return cast("Endpoint", value)
    value = lazily(value, _refuse_template)
    fields = {"url": value} if isinstance(value, str) else value
    if not isinstance(fields, Mapping):
        raise InputError(f"{where}: should be a URL, or fields such as url, host and password")
    fields = dict(fields)
    system_ = _system(name, fields.pop(SYSTEM, None), fields.get("url"))
    resource = cast("Any", system_.resource)
    for field, text in fields.items():
        if isinstance(text, Variable) and not _takes_text(resource, field):
            fields[field] = text.get_value()  # e.g. a port, which is not secret
            if fields[field] is None:
                raise InputError(f"{where}: {field}: {text.env_var_name} is not set")
    try:
        server = resource(**fields)
    except ValidationError as error:
        # the values are left out: one may be a password
        problems = [
            f"{'.'.join(map(str, detail['loc'])) or 'it'}: {detail['msg']}"
            for detail in error.errors(include_input=False, include_url=False)
        ]
        raise InputError(f"{where}: {'; '.join(problems)}") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if not server.has_address and not system_.by_path:
        raise InputError(f"{where}: should have url, url_file or host")
    return cast("Endpoint", server)


def _refuse_template(text: str) -> Any:
    raise InputError(f"connections: {text} should name variables, as {{{{ env.NAME }}}}")


def _takes_text(resource: type[BaseModel], field: str) -> bool:
    declared = resource.model_fields.get(field)
    return declared is None or str in (declared.annotation, *get_args(declared.annotation))


def _system(name: str, declared: object, url: object) -> System:
    """Find a connection's system by its declaration, its name, or the scheme of its URL."""
    if declared is not None:
        if not isinstance(declared, str) or not is_system(declared):
            known = ", ".join(system_names())
            raise InputError(f"connections: {name}: system should be one of {known}")
        return system(declared)
    if is_system(name):
        return system(name)
    address = url.get_value() if isinstance(url, Variable) else url
    scheme = str(address or "").partition("://")[0].lower()
    for candidate in systems():
        if scheme in candidate.schemes:
            return candidate
    raise InputError(
        f"connections: {name}: say which system it is, as `system: {system_names()[0]}`: its URL "
        "is not known here, or has another scheme"
    )


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
