"""Declared expectations: what they are called, and what is wrong with them, before any data.

Great Expectations is an optional extra and takes seconds to import, so nothing here imports it
before a suite is declared.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from tableferry.resources.errors import InputError

SQL = "sql"

UNEXPECTED_ROWS = "unexpected_rows_expectation"
"""Great Expectations' own `sql`: its query has `{batch}` in the place of the rows."""

_NOTES = ("meta", "notes", "severity")

_COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list", "column_set")


@dataclass(frozen=True)
class ExpectationSpec:
    """One expectation: its type in snake case and its arguments, as Great Expectations names them.

    `type: sql` is ours: `kwargs: {query: "SELECT ... FROM {table} WHERE {range} AND ..."}` passes
    if the query returns no rows.
    """

    type: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    """Its name in the results; derived from the type and the arguments if not given."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What a suite file says of it besides: meta, notes, severity."""
    file: Path | None = None
    """The suite file that declares it, if one does."""

    @property
    def label(self) -> str:
        """E.g. `expect_column_values_to_not_be_null(origin)`, or `sql: distance <= 0`."""
        if self.name:
            return self.name
        if self.type == SQL:
            query = " ".join(str(self.kwargs.get("query", "")).split())
            return f"{SQL}: {re.split(r'[{]range[}][)]* AND ', query, flags=re.IGNORECASE)[-1]}"
        columns = ", ".join(self.columns)
        return f"{self.type}({columns})" if columns else self.type

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the arguments name."""
        values = [self.kwargs.get(name) for name in _COLUMN_ARGUMENTS]
        listed = [[value] if isinstance(value, str) else value or () for value in values]
        return tuple(chain.from_iterable(listed))


def read_suite(path: Path) -> list[ExpectationSpec]:
    """Read a suite file of Great Expectations 1.x, as its file context writes it.

    https://docs.greatexpectations.io/docs/core/define_expectations/organize_expectation_suites

    Args:
        path: a JSON file with a mapping, of which `expectations` is a list of mappings with `type`
            and `kwargs`.

    Raises:
        InputError: the file cannot be read, is no suite, or has an unknown expectation; names the
            file and every problem.
    """
    try:
        suite = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: should be JSON: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    declared = suite.get("expectations") if isinstance(suite, dict) else None
    if not isinstance(declared, list) or not declared:
        raise InputError(f"{path}: should be a suite, with a list of expectations")
    specs, problems = [], []
    for index, item in enumerate(declared):
        try:
            specs.append(_of_file(item, path))
        except InputError as error:
            problems.append(f"expectations.{index}: {error}")
    if problems:
        raise InputError(f"{path}: {'; '.join(problems)}")
    return specs


def _of_file(item: Any, path: Path) -> ExpectationSpec:
    fields = item if isinstance(item, dict) else {}
    if "expectation_type" in fields:
        raise InputError("expectation_type is of Great Expectations 0.x; 1.x names the type `type`")
    type_, kwargs = fields.get("type"), fields.get("kwargs", {})
    if not isinstance(type_, str) or not isinstance(kwargs, dict):
        raise InputError("should be a mapping with type, a text, and kwargs, a mapping")
    notes = {name: fields[name] for name in _NOTES if fields.get(name)}
    spec = ExpectationSpec(type_, kwargs, fields.get("description"), notes, path)
    if problem := kind_problem(spec):
        raise InputError(problem)
    return spec


def validate_suite(suite: Sequence[ExpectationSpec], columns: Collection[str] = ()) -> None:
    """Check a declared suite without any data.

    Args:
        suite: the expectations.
        columns: the target's columns; not checked if empty.

    Raises:
        InputError: names every misspelt expectation, wrong argument and unknown column, or says
            that the extra is not installed.
    """
    problems = [
        f"{spec.file}: {problem}" if spec.file else problem
        for spec in suite
        for problem in _problems(spec, columns)
    ]
    if problems:
        raise InputError("expectations: " + "; ".join(problems))


def labels(suite: Sequence[ExpectationSpec]) -> list[str]:
    """The names of a suite's expectations; the second one of a name is `name (2)`."""
    labels: list[str] = []
    for spec in suite:
        number = sum(spec.label == earlier.label for earlier in suite[: len(labels)]) + 1
        labels.append(spec.label if number == 1 else f"{spec.label} ({number})")
    return labels


def kind_problem(spec: ExpectationSpec) -> str | None:
    """Say what is wrong with an expectation, as far as one can without importing the package."""
    if spec.type == SQL:
        query = spec.kwargs.get("query")
        if not isinstance(query, str) or set(spec.kwargs) != {"query"}:
            return "sql should have one argument, query"
        missing = [part for part in ("{table}", "{range}") if part not in query]
        return f"the query of sql should contain {' and '.join(missing)}" if missing else None
    try:
        types = _types()
    except InputError as error:
        return str(error)
    if spec.type in types:
        return None
    close = difflib.get_close_matches(spec.type, [*types, SQL], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"there is no expectation {spec.type!r}{hint}"


def _problems(spec: ExpectationSpec, columns: Collection[str]) -> list[str]:
    if problem := kind_problem(spec):
        return [problem]
    if spec.type == SQL:
        return []
    if _class(spec.type) is None:
        return [f"there is no expectation {spec.type!r}"]
    problems = [
        f"{spec.type}: there is no column {name!r}"
        for name in spec.columns
        if columns and name not in columns
    ]
    try:
        expectation(spec)
    except ValueError as error:  # pydantic's ValidationError
        lines = str(error).splitlines()[1:]
        reasons = zip(lines[::2], lines[1::2], strict=False)
        problems += [
            f"{spec.type}: {where}: {what.split(' (type=')[0].strip()}" for where, what in reasons
        ]
    return [problem.replace("__root__: ", "") for problem in problems]


@functools.cache
def _types() -> tuple[str, ...]:
    """The types of Great Expectations' own expectations: it has a file for each.

    Raises:
        InputError: the extra is not installed.
    """
    package = importlib.util.find_spec("great_expectations")
    if package is None or not package.submodule_search_locations:
        raise InputError(
            "expectations need Great Expectations: pip install 'tableferry[expectations]'"
        )
    folder = Path(package.submodule_search_locations[0]) / "expectations" / "core"
    return tuple(sorted({UNEXPECTED_ROWS, *(path.stem for path in folder.glob("expect_*.py"))}))


def expectation(spec: ExpectationSpec) -> Any:
    """Return Great Expectations' object for an expectation.

    Raises:
        ValueError: an argument is missing, unknown or wrong.
    """
    class_ = _class(spec.type)
    notes = {name: note for name, note in spec.notes.items() if name in class_.__fields__}
    return class_(**spec.kwargs, **notes)


def _class(type_: str) -> Any:
    """Great Expectations' class of a type; None if it has a file for it, but does not offer it."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations.expectations as gxe

    name = type_.replace("_", "")
    return next((getattr(gxe, n) for n in dir(gxe) if n.lower() == name), None)
