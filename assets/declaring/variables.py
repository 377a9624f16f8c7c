"""`${NAME}` in the values of a YAML file stands for a variable of the environment.

The files say what moves, and Dagster shows what they say: a variable that holds a secret is
refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import yaml

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^{}]*)\}")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_SECRET_NAME = re.compile(
    r"PASSW|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|PRIVATE|^TABLEFERRY_(.*_URL|CONNECTION_.*)$",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"://[^/@\s]*:[^/@\s]*@")


def escaped(text: str) -> str:
    """A text as it has to be written for no part of it to be taken for a variable."""
    return text.replace("${", "$${")


def expand(node: yaml.Node, loader: yaml.SafeLoader) -> Iterator[tuple[int, str]]:
    """Put the values of variables into a document's values; keys stay as they are.

    A value never changes the document's structure, whatever it holds. Without quotes around it, it
    means what it would mean if it stood there: a number, a date, a text.

    Args:
        node: the document, which is changed.
        loader: tells what a plain value means.

    Yields:
        Line, counted from 1, and reason of each that has no value.
    """
    seen: set[int] = set()
    rest = [node]
    while rest:
        one = rest.pop()
        if id(one) in seen:  # an alias
            continue
        seen.add(id(one))
        if isinstance(one, yaml.MappingNode):
            rest += [value for _, value in one.value]
        elif isinstance(one, yaml.SequenceNode):
            rest += one.value
        elif isinstance(one, yaml.ScalarNode) and "${" in one.value:
            try:
                one.value = _REFERENCE.sub(_value, one.value)
            except ValueError as error:
                yield one.start_mark.line + 1, str(error)
            if not one.style:
                one.tag = loader.resolve(yaml.ScalarNode, one.value, (True, False))


def _value(found: re.Match[str]) -> str:
    if found["inside"] is None:
        return "${"
    parts = _INSIDE.fullmatch(found["inside"])
    if parts is None:
        raise ValueError(
            f"{found[0]} should be ${{NAME}} or ${{NAME:-default}}; for the text itself, write $${{"
        )
    name = parts["name"]
    value = os.environ.get(name) or parts["default"]
    if value is None:
        raise ValueError(f"{name} is not set; ${{{name}}} takes it from the environment")
    if _SECRET_NAME.search(name) or _LOGIN.search(value):
        raise ValueError(
            f"{name} is or may hold a secret, and what this file says is shown in Dagster; servers "
            "are named by TABLEFERRY_<SYSTEM>_URL and TABLEFERRY_CONNECTION_<NAME>"
        )
    return value
