"""Environment variables in the values of a YAML file, as `${NAME}`.

Dagster shows what the files say, so a variable that holds a secret is refused.
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
    """Escape a text so that no part of it is taken for a variable."""
    return text.replace("${", "$${")


def expand(node: yaml.Node, loader: yaml.SafeLoader) -> Iterator[tuple[int, str]]:
    """Substitute the variables in a document's values; keys stay as they are.

    No value changes the document's structure. An unquoted one is read as if it were written there:
    as a number, a date, a text.

    Args:
        node: the document, which is changed.
        loader: resolves the types of plain values.

    Yields:
        1-based line and reason for each variable without a value.
    """
    seen: set[int] = set()
    rest = [node]
    while rest:
        part = rest.pop()
        if id(part) in seen:  # an alias
            continue
        seen.add(id(part))
        if isinstance(part, yaml.MappingNode):
            rest += [value for _, value in part.value]
        elif isinstance(part, yaml.SequenceNode):
            rest += part.value
        elif isinstance(part, yaml.ScalarNode) and "${" in part.value:
            try:
                part.value = _REFERENCE.sub(_value, part.value)
            except ValueError as error:
                yield part.start_mark.line + 1, str(error)
            if not part.style:
                part.tag = loader.resolve(yaml.ScalarNode, part.value, (True, False))


def _value(reference: re.Match[str]) -> str:
    if reference["inside"] is None:
        return "${"
    inside = _INSIDE.fullmatch(reference["inside"])
    if inside is None:
        raise ValueError(
            f"{reference[0]} should be ${{NAME}} or ${{NAME:-default}}; for the text itself, write "
            "$${"
        )
    name = inside["name"]
    value = os.environ.get(name) or inside["default"]
    if value is None:
        raise ValueError(f"{name} is not set; ${{{name}}} takes it from the environment")
    if _SECRET_NAME.search(name) or _LOGIN.search(value):
        raise ValueError(
            f"{name} is or may hold a secret, and Dagster shows what this file says; servers are "
            "named by TABLEFERRY_<SYSTEM>_URL and TABLEFERRY_CONNECTION_<NAME>"
        )
    return value
