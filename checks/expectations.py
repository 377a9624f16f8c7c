"""Great Expectations on a key range: declared in YAML, run on bounded data, imported late.

The package is an optional extra and takes seconds to import, so that nothing here imports it before
a suite is declared. What a server answers better is asked there: row counts, and our own
`sql`, a query that should return no rows.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import json
import os
import re
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tableferry.checks.checksum import in_sample
from tableferry.checks.verdict import CHECK_NAMES, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import predicate, qualified, quote
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.digest.fields import identity_fields
from tableferry.resources.digest.probe import dialect
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.own_names import own_prefix
from tableferry.resources.words import counted

CHECK_NAME = "expectations"

ALL_CHECKS = (*CHECK_NAMES.values(), CHECK_NAME)
"""`ferry check` may have used any level, so planning looks at the verdicts of all."""
MAX_ROWS = 250_000
"""Most rows of a range that are read; of a larger one a sample by the hash of the key is."""

SQL = "sql"
EXAMPLES = 20

_ROW_COUNTS = ("expect_table_row_count_to_be_between", "expect_table_row_count_to_equal")
_COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list", "column_set")
_using = threading.Lock()


@dataclass(frozen=True)
class ExpectationSpec:
    """One expectation: its type in snake case and its arguments, as Great Expectations names them.

    `type: sql` is ours: `kwargs: {query: "SELECT ... FROM {table} WHERE {range} AND ..."}` passes
    if the query returns no rows.
    """

    type: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    """What the results call it; derived from the other two when not given."""

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
        found: list[str] = []
        for name in _COLUMN_ARGUMENTS:
            value = self.kwargs.get(name)
            if value is not None:
                found += [value] if isinstance(value, str) else list(value)
        return tuple(found)


def validate_suite(suite: Sequence[ExpectationSpec], columns: Collection[str] = ()) -> None:
    """Find what is wrong with a declared suite, without any data.

    Args:
        suite: the expectations.
        columns: the target's columns; not checked if empty.

    Raises:
        InputError: names every misspelt expectation, wrong argument and unknown column, or says
            that the extra is not installed.
    """
    problems = [problem for spec in suite for problem in _problems(spec, columns)]
    if problems:
        raise InputError("expectations: " + "; ".join(problems))


def labels(suite: Sequence[ExpectationSpec]) -> list[str]:
    """The names of a suite's expectations; the second of one name is `name (2)`."""
    found: list[str] = []
    for spec in suite:
        number = sum(spec.label == other.label for other in suite[: len(found)]) + 1
        found.append(spec.label if number == 1 else f"{spec.label} ({number})")
    return found


def run_suite(
    suite: Sequence[ExpectationSpec],
    plan: CopyPlan,
    target: Endpoint,
    key_range: KeyRange,
    *,
    max_rows: int = MAX_ROWS,
) -> Verdict:
    """Run a suite on a key range of the target.

    Args:
        suite: the expectations.
        plan: the hop.
        target: where `plan.target` is.
        key_range: the rows.
        max_rows: most rows to hold in memory.

    Returns:
        A verdict whose metadata has `results`, one dict per expectation: `expectation` (its name,
        each another one), `type`, `arguments`, `passed`, `observed`, `unexpected` (a count),
        `examples`.

    Raises:
        InputError: as `validate_suite`.
    """
    began = time.monotonic()
    validate_suite(suite, [column.name for column in plan.target_columns])
    table, where = qualified(plan.target), plan.target_range(key_range)
    rows = int(target.query(f"SELECT COUNT(*) FROM {table} WHERE {where}")[0][0])
    one_in = max(1, -(-rows // max_rows))
    frame_specs = [spec for spec in suite if spec.type != SQL and spec.type not in _ROW_COUNTS]
    framed = iter(_on_frame(frame_specs, plan, target, where, one_in))
    results = []
    for spec in suite:
        if spec.type == SQL:
            results.append(_on_server(spec, plan, target, key_range))
        elif spec.type in _ROW_COUNTS:
            results.append(_row_count(spec, rows))
        else:
            results.append(next(framed))
    for result, label in zip(results, labels(suite), strict=True):
        result["expectation"] = label
    failed = [str(result["expectation"]) for result in results if not result["passed"]]
    return Verdict(
        check=CHECK_NAME,
        passed=not failed,
        source={},
        target={"rows": rows},
        seconds=time.monotonic() - began,
        disagreeing=tuple(failed),
        metadata={"results": results, "rows": rows, "one_row_in": one_in},
        note=(f"not met: {', '.join(failed)}" if failed else f"{len(results)} met"),
        remarks=(f"{_sampled(len(frame_specs))} about one row in {one_in}",)
        if one_in > 1 and frame_specs
        else (),
    )


def _sampled(expectations: int) -> str:
    return "1 of them saw" if expectations == 1 else f"{expectations} of them saw"


def kind_problem(spec: ExpectationSpec) -> str | None:
    """What is wrong with an expectation, as far as that is seen without importing the package."""
    if spec.type == SQL:
        query = spec.kwargs.get("query")
        if not isinstance(query, str) or set(spec.kwargs) != {"query"}:
            return "sql should have one argument, query"
        missing = [part for part in ("{table}", "{range}") if part not in query]
        return f"the query of sql should contain {' and '.join(missing)}" if missing else None
    try:
        kinds = _kinds()
    except InputError as error:
        return str(error)
    if spec.type in kinds:
        return None
    close = difflib.get_close_matches(spec.type, [*kinds, SQL], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"there is no expectation {spec.type!r}{hint}"


def _problems(spec: ExpectationSpec, columns: Collection[str]) -> list[str]:
    if problem := kind_problem(spec):
        return [problem]
    if spec.type == SQL:
        return []
    found = [
        f"{spec.type}: there is no column {name!r}"
        for name in spec.columns
        if columns and name not in columns
    ]
    try:
        _build(spec)
    except ValueError as error:  # pydantic's ValidationError
        lines = str(error).splitlines()[1:]
        reasons = zip(lines[::2], lines[1::2], strict=False)
        found += [
            f"{spec.type}: {where}: {what.split(' (type=')[0].strip()}" for where, what in reasons
        ]
    return [problem.replace("__root__: ", "") for problem in found]


def _on_frame(
    suite: Sequence[ExpectationSpec], plan: CopyPlan, target: Endpoint, where: str, one_in: int
) -> list[dict[str, Any]]:
    """Great Expectations' results on the rows, in a pandas frame."""
    if not suite:
        return []
    named = {name for spec in suite for name in spec.columns}
    # an expectation about the table itself must see all columns
    whole = any(not spec.columns or "column_set" in spec.kwargs for spec in suite)
    names = [c.name for c in plan.target_columns if whole or c.name in named]
    system = plan.target.system
    # Babelfish counts an emoji in the name of a result's column once, which breaks the protocol
    quoted = [quote(system, name) for name in names]
    condition = f"({where})"
    if one_in > 1:
        identity = dialect(target).digest(identity_fields(plan), "target")
        condition += f" AND {in_sample(plan, 'target', identity, one_in)}"
    own = own_prefix(condition, *quoted)
    selected = ", ".join(f"{name} AS {own}{i}" for i, name in enumerate(quoted))
    sql = f"SELECT {selected} FROM {qualified(plan.target)} WHERE {condition}"
    with target.read_arrow(sql) as reader:
        table = reader.read_all().rename_columns(names)
    frame = pa.Table.from_arrays([_plain(c) for c in table.columns], names).to_pandas(
        integer_object_nulls=True, date_as_object=True
    )
    with _using:
        import great_expectations as gx

        asset = _frames()
        batch = asset.get_batch(batch_parameters={"dataframe": frame})
        outcome = batch.validate(
            gx.ExpectationSuite(name="range", expectations=[_build(spec) for spec in suite])
        )
    # results come in another order than the suite
    by_config = [(result.expectation_config, result) for result in outcome.results]
    found = []
    for spec in suite:
        place = next(
            i
            for i, (config, _) in enumerate(by_config)
            if config.type == spec.type
            and all(config.kwargs.get(name) == value for name, value in spec.kwargs.items())
        )
        found.append(_row(spec, by_config.pop(place)[1]))
    return found


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without extension types, which pandas shows as bytes."""
    if isinstance(column.type, pa.UuidType):
        return pa.chunked_array([[str(value) for value in column.to_pylist()]], pa.string())
    return column


def _row(spec: ExpectationSpec, result: Any) -> dict[str, Any]:
    found = result.result or {}
    raised = (result.exception_info or {}).get("exception_message")
    values = found.get("partial_unexpected_list") or []
    return _outcome(
        spec,
        bool(result.success),
        observed=raised or found.get("observed_value"),
        unexpected=found.get("unexpected_count"),
        examples=[shown(value) for value in values[:EXAMPLES]],
    )


def _row_count(spec: ExpectationSpec, rows: int) -> dict[str, Any]:
    low = spec.kwargs.get("value", spec.kwargs.get("min_value"))
    high = spec.kwargs.get("value", spec.kwargs.get("max_value"))
    passed = (low is None or rows >= low) and (high is None or rows <= high)
    return _outcome(spec, passed, observed=rows)


def _on_server(
    spec: ExpectationSpec, plan: CopyPlan, target: Endpoint, key_range: KeyRange
) -> dict[str, Any]:
    where = f"({predicate(plan.key.target, key_range, plan.target.system)})"
    parts = {"{table}": qualified(plan.target), "{range}": where}
    # in one go: a name may hold a placeholder
    query = re.sub(r"\{(table|range)\}", lambda found: parts[found[0]], spec.kwargs["query"])
    rows, examples = 0, list[str]()
    with target.read_arrow(query) as reader:
        for batch in reader:
            rows += batch.num_rows
            few = batch.slice(0, EXAMPLES - len(examples))
            examples += [shown(row) for row in few.to_pylist()]
    observed = counted(rows, "row") if rows else "no rows"
    return _outcome(spec, not rows, observed=observed, unexpected=rows, examples=examples)


def _outcome(
    spec: ExpectationSpec,
    passed: bool,
    *,
    observed: object = None,
    unexpected: int | None = None,
    examples: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "expectation": spec.label,
        "type": spec.type,
        "arguments": dict(spec.kwargs),
        "passed": passed,
        "observed": None if observed is None else shown(observed),
        "unexpected": unexpected,
        "examples": list(examples),
    }


def shown(value: Any) -> str:
    """A value as text: a row or list as JSON, bytes in hexadecimal, what is not there as `NULL`."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, bool | int | float | list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False, default=shown)
    return str(value)


def _build(spec: ExpectationSpec) -> Any:
    return _known()[spec.type](**spec.kwargs)


@functools.cache
def _kinds() -> tuple[str, ...]:
    """The names in snake case of Great Expectations' own expectations: it has a file for each.

    Raises:
        InputError: the extra is not installed.
    """
    package = importlib.util.find_spec("great_expectations")
    if package is None or not package.submodule_search_locations:
        raise InputError(
            "expectations need Great Expectations: pip install 'tableferry[expectations]'"
        )
    folder = Path(package.submodule_search_locations[0]) / "expectations" / "core"
    return tuple(sorted(path.stem for path in folder.glob("expect_*.py")))


@functools.cache
def _known() -> dict[str, Any]:
    """Great Expectations' own expectations by their names in snake case."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations.expectations as gxe

    classes = (getattr(gxe, name) for name in dir(gxe) if name.startswith("Expect"))
    return {
        found.expectation_type: found for found in classes if hasattr(found, "expectation_type")
    }


@functools.cache
def _frames() -> Any:
    """One batch definition in a context that keeps nothing."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    # a TypedDict of GX's own, which it accepts as a plain one
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    asset = context.data_sources.add_pandas("ranges").add_dataframe_asset("range")
    return asset.add_batch_definition_whole_dataframe("whole")
