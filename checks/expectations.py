"""Great Expectations on a key range, run on bounded data.

The server itself answers row counts, and our own `sql`, a query that should return no rows.
"""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tableferry.checks.checksum import in_sample
from tableferry.checks.suites import (
    SQL,
    ExpectationSpec,
    expectation_class,
    labels,
    validate_suite,
)
from tableferry.checks.verdict import CHECK_NAMES, MOST_SHOWN, Verdict
from tableferry.resources.aliases import alias_prefix
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import predicate, qualified
from tableferry.resources.digest.fields import identity_fields
from tableferry.resources.digest.probe import dialect
from tableferry.resources.errors import shortened
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.words import counted

CHECK_NAME = "expectations"

ALL_CHECKS = (*CHECK_NAMES.values(), CHECK_NAME)
"""`ferry check` may have used any level, so planning looks at the verdicts of all."""
MAX_ROWS = 250_000
"""Maximum number of rows read of a range; of a larger one a sample by the key's hash is read."""
MAX_BYTES = 128 << 20
"""Maximum bytes of these rows, which pandas holds a second time; of larger rows fewer are read."""

EXAMPLES = 20

_ROW_COUNTS = ("expect_table_row_count_to_be_between", "expect_table_row_count_to_equal")
_gx_lock = threading.Lock()


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
        target: the server of `plan.target`.
        key_range: the rows.
        max_rows: maximum number of rows to hold in memory.

    Returns:
        A verdict whose metadata has `results`, one dict per expectation: `expectation` (its unique
        name), `type`, `arguments`, `passed`, `observed`, `unexpected` (a count), `examples`.

    Raises:
        InputError: see `validate_suite`.
    """
    began = time.monotonic()
    validate_suite(suite, [column.name for column in plan.target_columns])
    table, where = qualified(plan.target), plan.target_range(key_range)
    rows = int(target.query(f"SELECT COUNT(*) FROM {table} WHERE {where}")[0][0])
    one_in = max(1, -(-rows // max_rows))
    frame_specs = [spec for spec in suite if spec.type != SQL and spec.type not in _ROW_COUNTS]
    answers, one_in = _on_frame(frame_specs, plan, target, where, rows, one_in)
    frame_results = iter(answers)
    results = []
    for spec in suite:
        if spec.type == SQL:
            results.append(_on_server(spec, plan, target, key_range))
        elif spec.type in _ROW_COUNTS:
            results.append(_row_count(spec, rows))
        else:
            results.append(next(frame_results))
    for result, label in zip(results, labels(suite), strict=True):
        result["expectation"] = label
    failed = [str(result["expectation"]) for result in results if not result["passed"]]
    remarks: list[str] = []
    if one_in > 1 and frame_specs:
        remarks.append(f"{len(frame_specs)} of them saw about one row in {one_in}")
    return Verdict(
        check=CHECK_NAME,
        passed=not failed,
        source={},
        target={"rows": rows},
        seconds=time.monotonic() - began,
        disagreeing=tuple(failed),
        metadata={"results": results, "rows": rows, "one_row_in": one_in},
        note=(f"not met: {', '.join(failed)}" if failed else f"{len(results)} met"),
        remarks=tuple(remarks),
    )


def _on_frame(
    suite: Sequence[ExpectationSpec],
    plan: CopyPlan,
    target: Endpoint,
    where: str,
    rows: int,
    one_in: int,
) -> tuple[list[dict[str, Any]], int]:
    """Run Great Expectations on the rows, in a pandas frame.

    Args:
        suite: the expectations.
        plan: the hop.
        target: the server of `plan.target`.
        where: the condition on the rows.
        rows: how many there are.
        one_in: one in so many rows is read.

    Returns:
        The results, and one in how many rows was read because of `MAX_BYTES`.
    """
    if not suite:
        return [], one_in
    named = {name for spec in suite for name in spec.columns}
    # an expectation about the table itself must see all columns
    all_columns = any(not spec.columns or "column_set" in spec.kwargs for spec in suite)
    names = [c.name for c in plan.target_columns if all_columns or c.name in named]
    table, one_in = _rows(plan, target, where, names, rows, one_in)
    frame = pa.Table.from_arrays([_plain(c) for c in table.columns], names).to_pandas(
        integer_object_nulls=True, date_as_object=True
    )
    del table
    with _gx_lock:
        import great_expectations as gx

        batch = _batch_definition().get_batch(batch_parameters={"dataframe": frame})
        outcome = batch.validate(
            gx.ExpectationSuite(
                "range", [expectation_class(spec.type)(**spec.kwargs) for spec in suite]
            )
        )
    # the results come in another order than the suite
    remaining = [(result.expectation_config, result) for result in outcome.results]
    results = []
    for spec in suite:
        position = next(
            i
            for i, (config, _) in enumerate(remaining)
            if config.type == spec.type
            and all(config.kwargs.get(name) == value for name, value in spec.kwargs.items())
        )
        results.append(_frame_result(spec, remaining.pop(position)[1]))
    return results, one_in


def _rows(
    plan: CopyPlan, target: Endpoint, where: str, names: Sequence[str], rows: int, one_in: int
) -> tuple[pa.Table, int]:
    """Read columns of one in so many of `rows` rows, or of fewer if these take `MAX_BYTES`."""
    system = plan.target.system
    # plain names: Babelfish miscounts an emoji in a result's column name, and breaks the protocol
    quoted = [system.quote(name) for name in names]
    while True:
        condition = f"({where})"
        if one_in > 1:
            identity = dialect(target).digest(identity_fields(plan), "target")
            condition += f" AND {in_sample(plan, 'target', identity, one_in)}"
        prefix = alias_prefix(condition, *quoted)
        selected = ", ".join(f"{name} AS {prefix}{i}" for i, name in enumerate(quoted))
        sql = f"SELECT {selected} FROM {qualified(plan.target)} WHERE {condition}"
        batches: list[pa.RecordBatch] = []
        read = size = 0
        with target.read_arrow(sql) as reader:
            for batch in reader:
                read, size = read + batch.num_rows, size + batch.nbytes
                if size > MAX_BYTES and read > 1:
                    break
                batches.append(batch)
            else:
                return pa.Table.from_batches(batches, reader.schema).rename_columns(names), one_in
        del batches, batch
        one_in = max(2 * one_in, -(-rows * size // (read * MAX_BYTES)))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast extension types to text: pandas shows them as bytes."""
    if isinstance(column.type, pa.UuidType):
        return pa.chunked_array([[str(value) for value in column.to_pylist()]], pa.string())
    return column


def _frame_result(spec: ExpectationSpec, result: Any) -> dict[str, Any]:
    details = result.result or {}
    raised = (result.exception_info or {}).get("exception_message")
    values = details.get("partial_unexpected_list") or []
    return _result(
        spec,
        bool(result.success),
        observed=raised or details.get("observed_value"),
        unexpected=details.get("unexpected_count"),
        examples=[shown(value) for value in values[:EXAMPLES]],
    )


def _row_count(spec: ExpectationSpec, rows: int) -> dict[str, Any]:
    low = spec.kwargs.get("value", spec.kwargs.get("min_value"))
    high = spec.kwargs.get("value", spec.kwargs.get("max_value"))
    passed = (low is None or rows >= low) and (high is None or rows <= high)
    return _result(spec, passed, observed=rows)


def _on_server(
    spec: ExpectationSpec, plan: CopyPlan, target: Endpoint, key_range: KeyRange
) -> dict[str, Any]:
    where = f"({predicate(plan.key.target, key_range, plan.target.system)})"
    parts = {"{table}": qualified(plan.target), "{range}": where}
    # in one pass: a name may hold a placeholder
    query = re.sub(r"\{(table|range)\}", lambda match: parts[match[0]], spec.kwargs["query"])
    rows, examples = 0, list[str]()
    with target.read_arrow(query) as reader:
        for batch in reader:
            rows += batch.num_rows
            few = batch.slice(0, EXAMPLES - len(examples))
            examples += [shown(row) for row in few.to_pylist()]
    observed = counted(rows, "row") if rows else "no rows"
    return _result(spec, not rows, observed=observed, unexpected=rows, examples=examples)


def _result(
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
        "observed": None if observed is None else shortened(shown(observed), MOST_SHOWN),
        "unexpected": unexpected,
        "examples": [shortened(example, MOST_SHOWN) for example in examples],
    }


def shown(value: Any) -> str:
    """A value as text: a row or list as JSON, bytes in hexadecimal, None as `NULL`."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, bool | int | float | list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False, default=shown)
    return str(value)


@functools.cache
def _batch_definition() -> Any:
    """A batch definition for whole data frames, in a context that keeps nothing."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    # the declared type is a TypedDict, but a plain one does
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    asset = context.data_sources.add_pandas("ranges").add_dataframe_asset("range")
    return asset.add_batch_definition_whole_dataframe("whole")
