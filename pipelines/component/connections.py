"""The connections of a component: templates stay templates until a server is used."""

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
    """A text with `{{ env.NAME }}` in it, which is looked up when the server is first used.

    Printed, it is the template, so that no password is shown.
    """

    @property
    def env_var_name(self) -> str:
        """Its variable; of several, the first that is not set."""
        names = env_names(self)
        return next((name for name in names if Variable(name).get_value() is None), names[0])

    def get_value(self) -> str | None:
        """The text with the variables' values; None if one of them is not set."""
        if Variable(self.env_var_name).get_value() is None:
            return None
        return _ENV.sub(
            lambda found: Variable(found["plain"] or found["called"]).get_value() or "", self
        )


def lazily(value: Any, render: Callable[[str], Any]) -> Any:
    """A value of a component's attributes, with what it takes from the environment left for later.

    Args:
        value: as it stands in the file.
        render: makes of a template what it means now.
    """
    return templates_in(
        value, lambda text: render(text) if "{{" in _ENV.sub("", text) else EnvText(text)
    )


def templates_in(value: Any, render: Callable[[str], Any]) -> Any:
    """A value with every template in it rendered; other texts stay exactly what they are."""
    if isinstance(value, Mapping):
        return {name: templates_in(inside, render) for name, inside in value.items()}
    if isinstance(value, list | tuple):
        return [templates_in(inside, render) for inside in value]
    return render(value) if isinstance(value, str) and "{{" in value else value


def env_names(text: str) -> list[str]:
    """The variables that a text takes from the environment by templates."""
    return [found["plain"] or found["called"] for found in _ENV.finditer(text)]


def endpoints(declared: Mapping[str, Any]) -> dict[str, Endpoint]:
    """The servers of a component's connections, by name.

    Raises:
        InputError: names the connection that is none, and what is wrong with it; never a value.
    """
    return {name: _endpoint(name, given) for name, given in declared.items()}


def systems_of(servers: Mapping[str, Endpoint]) -> dict[str, str]:
    """The name of each server's system."""
    return {name: one.system_name for name, one in servers.items()}


def _endpoint(name: str, given: Any) -> Endpoint:
    where = f"connections: {name}"
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{where}: should be small letters, digits and underscores, a letter first"
        )
    if isinstance(given, BaseModel):  # a resource, of Python code
        return cast("Endpoint", given)
    given = lazily(given, _not_understood)
    fields = {"url": given} if isinstance(given, str) else given
    if not isinstance(fields, Mapping):
        raise InputError(f"{where}: should be a URL, or fields such as url, host and password")
    fields = dict(fields)
    of = _system(name, fields.pop(SYSTEM, None), fields.get("url"))
    resource = cast("Any", of.resource)
    for field, value in fields.items():
        if isinstance(value, Variable) and not _takes_text(resource, field):
            fields[field] = value.get_value()  # a port is no secret
            if fields[field] is None:
                raise InputError(f"{where}: {field}: {value.env_var_name} is not set")
    try:
        server = resource(**fields)
    except ValidationError as error:
        # without the values, of which one may be a password
        problems = [
            f"{'.'.join(map(str, detail['loc'])) or 'it'}: {detail['msg']}"
            for detail in error.errors(include_input=False, include_url=False)
        ]
        raise InputError(f"{where}: {'; '.join(problems)}") from None
    if not server.has_address and not of.by_path:
        raise InputError(f"{where}: should have url, url_file or host")
    return cast("Endpoint", server)


def _not_understood(text: str) -> Any:
    raise InputError(f"connections: {text} should name variables, as {{{{ env.NAME }}}}")


def _takes_text(resource: type[BaseModel], field: str) -> bool:
    declared = resource.model_fields.get(field)
    return declared is None or str in (declared.annotation, *get_args(declared.annotation))


def _system(name: str, given: object, url: object) -> System:
    """What system a connection leads to: as it says, by its name, or by the scheme of its URL."""
    if given is not None:
        if not isinstance(given, str) or not is_system(given):
            known = ", ".join(system_names())
            raise InputError(f"connections: {name}: system should be one of {known}")
        return system(given)
    if is_system(name):
        return system(name)
    address = url.get_value() if isinstance(url, Variable) else url
    scheme = str(address or "").partition("://")[0].lower()
    for one in systems():
        if scheme in one.schemes:
            return one
    raise InputError(
        f"connections: {name}: say which system it is, as `system: {system_names()[0]}`: its URL "
        "is not known here, or has no scheme of ours"
    )
