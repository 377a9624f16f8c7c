"""Problems of values that a transfer file declares, as pydantic's validators raise them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tableferry.assets.declaring.yaml_lines import Location
from tableferry.resources.errors import InputError


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
