"""Problems of values that a transfer file declares, as pydantic's validators raise them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tableferry.assets.declaring.yaml_lines import Location
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError

QUOTE_COMMAS = 'a type that has a comma is to be quoted: {type: "decimal(12,2)"}'
"""In braces, YAML takes what follows a comma for another key."""

PLAIN_WORDS = {
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "string_type": "should be a text",
    "list_type": "should be a list",
    "dict_type": "should be keys with values",
    "model_type": "should be keys with values",
}
"""What users are told for pydantic's kinds of errors."""


class InvalidParts(ValueError):
    """Reports several problems of one value, each with its location inside the value."""

    def __init__(self, problems: list[tuple[Location, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message in problems))

    @classmethod
    def raise_any(cls, problems: Iterable[tuple[Location, str]]) -> None:
        """Raise if there are any problems."""
        if listed := list(problems):
            raise cls(listed)


@contextmanager
def as_value_error() -> Iterator[None]:
    """Raise an `InputError` as the `ValueError` that pydantic reports with its location."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from None


def not_fillable(type_: str, target: System) -> str:
    """Say why columns of a target cannot have a declared type."""
    if type_.count("(") > type_.count(")"):
        return f"{type_!r} is the beginning of a type: {QUOTE_COMMAS}"
    kind = target.types.read(target.types.plain(type_)).kind
    like = target.types.default(kind) if kind else None
    instead = f"; {like} is one" if like else ""
    return f"{type_!r} is not a {target} type that can be filled{instead}"
