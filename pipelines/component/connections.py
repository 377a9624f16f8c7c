"""Reads the connections of a component; templates are rendered when a server is first used."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

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
