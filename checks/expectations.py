"""Great Expectations on a key range, run on bounded data.

The server itself answers row counts, and our own `sql`, a query that should return no rows.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tableferry.checks import suites
from tableferry.checks.levels import ALL_LEVEL_CHECKS
from tableferry.checks.table_side import TableSide
from tableferry.checks.verdict import MOST_SHOWN, Verdict, with_final
from tableferry.resources.connecting.waiting import limit, only_reading
from tableferry.resources.contract.table_sql import alias_prefix, qualified
from tableferry.resources.digest.fields import identity_fields
from tableferry.resources.digest.probe import dialect
from tableferry.resources.errors import shortened
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.types.kinds import Uuid
from tableferry.resources.types.type_map import Column
from tableferry.resources.words import counted

CHECK_NAME = "expectations"

ALL_CHECKS = (*ALL_LEVEL_CHECKS, CHECK_NAME)
"""`ferry check` and earlier releases may have used any level, so planning looks at all verdicts."""
MAX_ROWS = 250_000
"""Maximum number of rows read of a range; of a larger one a sample by the key's hash is read."""
MAX_BYTES = 128 << 20
"""Maximum bytes of these rows, which pandas holds a second time; of larger rows fewer are read."""

EXAMPLES = 20

_ROW_COUNTS = ("expect_table_row_count_to_be_between", "expect_table_row_count_to_equal")
_BY_SERVER = (*_ROW_COUNTS, suites.SQL, suites.UNEXPECTED_ROWS)
_gx_lock = threading.Lock()


def run_suite(
    suite: Sequence[suites.ExpectationSpec], target: TableSide, key_range: KeyRange
) -> Verdict:
    """Run a suite on a key range of the target.

    Args:
        suite: the expectations.
        target: the target of a hop.
        key_range: the rows.

    Returns:
        A verdict whose metadata has `results`, one dict per expectation: `expectation` (its unique
        name), `type`, `arguments`, `passed`, `observed`, `unexpected` (a count), `examples`; and
        `great_expectations`, the whole result as Great Expectations gives it, but for long lists
        and texts.

    Raises:
        InputError: see `validate_suite`.
    """
    began = time.monotonic()
    suites.validate_suite(suite, [column.name for column in target.plan.target_columns])
    table, where = qualified(target.table), target.rows_in([key_range])
    count = target.table.system.dialect.count
    rows = int(target.endpoint.query(f"SELECT {count} FROM {table} WHERE {where}")[0][0])
    one_in = max(1, -(-rows // MAX_ROWS))
    frame_specs = [spec for spec in suite if spec.type not in _BY_SERVER]
    answers, one_in = _on_frame(frame_specs, target, where, rows, one_in)
    frame_results = iter(answers)
    outcomes = []
    for spec in suite:
        if spec.type in _ROW_COUNTS:
            outcomes.append(_row_count(spec, rows))
        elif spec.type in _BY_SERVER:
            outcomes.append(_on_server(spec, target, key_range))
        else:
            outcomes.append(next(frame_results))
    results = [_shown(*item) for item in zip(suites.labels(suite), suite, outcomes, strict=True)]
    failed = [str(result["expectation"]) for result in results if not result["passed"]]
    remarks: list[str] = []
    if one_in > 1 and frame_specs:
        remarks.append(f"{len(frame_specs)} of them saw about one row in {one_in}")
    verdict = Verdict(
        check=CHECK_NAME,
        passed=not failed,
        source={},
        target={"rows": rows},
        seconds=time.monotonic() - began,
        disagreeing=tuple(failed),
        metadata={
            "results": results,
            "rows": rows,
            "one_row_in": one_in,
            "great_expectations": _whole(suite, outcomes),
        },
        note=(f"not met: {', '.join(failed)}" if failed else f"{len(results)} met"),
        remarks=tuple(remarks),
    )
    return with_final(verdict, [table for table in target.plan.final if table == target.table])


def _on_frame(
    suite: Sequence[suites.ExpectationSpec], target: TableSide, where: str, rows: int, one_in: int
) -> tuple[list[_Outcome], int]:
    """Run Great Expectations on the rows, in a pandas frame.

    Args:
        suite: the expectations.
        target: the target of a hop.
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
    all_columns = any(
        not spec.columns or {"column_set", "row_condition"} & spec.kwargs.keys() for spec in suite
    )
    columns = [c for c in target.plan.target_columns if all_columns or c.name in named]
    table, one_in = _rows(target, where, columns, rows, one_in)
    frame = table.to_pandas(integer_object_nulls=True, date_as_object=True)
    del table
    with _gx_lock:
        import great_expectations as gx

        batch = _batch_definition().get_batch(batch_parameters={"dataframe": frame})
        declared = gx.ExpectationSuite("range", [suites.expectation(spec) for spec in suite])
        for position, item in enumerate(declared.expectations):
            item.id = str(position)
        # the results come in another order than the suite
        outcomes = {item.expectation_config.id: item for item in batch.validate(declared).results}
    return [_frame_outcome(outcomes[str(position)]) for position in range(len(suite))], one_in


def _rows(
    target: TableSide, where: str, columns: Sequence[Column], rows: int, one_in: int
) -> tuple[pa.Table, int]:
    """Read columns of one in so many of `rows` rows, or of fewer if these take `MAX_BYTES`."""
    system = target.table.system
    # plain names: Babelfish miscounts an emoji in a result's column name, and breaks the protocol
    quoted = [system.quote(column.name) for column in columns]
    # pandas shows uuids as bytes, and ClickHouse writes none to Arrow before 26.5
    read = [
        system.dialect.text(name) if isinstance(system.types.read(column.type).kind, Uuid) else name
        for name, column in zip(quoted, columns, strict=True)
    ]
    while True:
        condition = f"({where})"
        if one_in > 1:
            identity = dialect(target.endpoint).digest(identity_fields(target.plan), "target")
            condition += f" AND {target.in_sample(identity, one_in)}"
        prefix = alias_prefix(condition, *quoted)
        selected = ", ".join(f"{name} AS {prefix}{i}" for i, name in enumerate(read))
        sql = f"SELECT {selected} FROM {qualified(target.table)} WHERE {condition}"
        batches: list[pa.RecordBatch] = []
        count = size = 0
        with target.endpoint.read_arrow(sql) as reader:
            for batch in reader:
                count, size = count + batch.num_rows, size + batch.nbytes
                if size > MAX_BYTES and count > 1:
                    break
                batches.append(batch)
            else:
                names = [column.name for column in columns]
                return pa.Table.from_batches(batches, reader.schema).rename_columns(names), one_in
        del batches, batch
        one_in = max(2 * one_in, -(-rows * size // (count * MAX_BYTES)))


def _frame_outcome(result: Any) -> _Outcome:
    # of a metric that could not be computed the error is a level deeper
    infos = [result.exception_info or {}, *(result.exception_info or {}).values()]
    errors = [info.get("exception_message") for info in infos if isinstance(info, Mapping)]
    return _Outcome(bool(result.success), result.result or {}, next(filter(None, errors), None))


def _row_count(spec: suites.ExpectationSpec, rows: int) -> _Outcome:
    low = spec.kwargs.get("value", spec.kwargs.get("min_value"))
    high = spec.kwargs.get("value", spec.kwargs.get("max_value"))
    passed = (low is None or rows >= low) and (high is None or rows <= high)
    return _Outcome(passed, {"observed_value": rows})


def _on_server(spec: suites.ExpectationSpec, target: TableSide, key_range: KeyRange) -> _Outcome:
    """Run a query that should return no rows; of those that it returns, read `MAX_BYTES`."""
    table, where = qualified(target.table), f"({target.plan.target_keys(key_range)})"
    batch = f"(SELECT * FROM {table} WHERE {where}) AS batch"
    parts = {"{table}": table, "{range}": where, "{batch}": batch}
    query = spec.kwargs["query" if spec.type == suites.SQL else "unexpected_rows_query"]
    # in one pass: a name may hold a placeholder
    query = re.sub(r"\{(table|range|batch)\}", lambda match: parts[match[0]], query)
    rows, size, examples = 0, 0, list[Any]()
    with only_reading(limit()), target.endpoint.read_arrow(query) as reader:
        for read in reader:
            rows, size = rows + read.num_rows, size + read.nbytes
            examples += _bounded(read.slice(0, EXAMPLES - len(examples)).to_pylist())
            if size > MAX_BYTES:
                break
    observed = f"{counted(rows, 'row')}{' and more' * (size > MAX_BYTES)}" if rows else "no rows"
    return _Outcome(
        not rows,
        {
            "observed_value": observed,
            "unexpected_count": rows,
            "partial_unexpected_list": examples,
        },
    )


@dataclass(frozen=True)
class _Outcome:
    """What an expectation found, as Great Expectations says it."""

    success: bool
    result: Mapping[str, Any]
    error: str | None = None
    """Why it could not be computed."""


def _shown(label: str, spec: suites.ExpectationSpec, outcome: _Outcome) -> dict[str, Any]:
    """Return the line of an expectation in a report."""
    observed = outcome.error or outcome.result.get("observed_value")
    values = outcome.result.get("partial_unexpected_list") or []
    return {
        "expectation": label,
        "type": spec.type,
        "arguments": dict(spec.kwargs),
        "passed": outcome.success,
        "observed": None if observed is None else shortened(shown(observed), MOST_SHOWN),
        "unexpected": outcome.result.get("unexpected_count"),
        "examples": [shortened(shown(value), MOST_SHOWN) for value in values[:EXAMPLES]],
    }


def _whole(suite: Sequence[suites.ExpectationSpec], outcomes: Sequence[_Outcome]) -> dict[str, Any]:
    """Return the result of a suite in the form of Great Expectations' validation results."""
    met = sum(outcome.success for outcome in outcomes)
    return {
        "success": met == len(outcomes),
        "results": [
            {
                "success": outcome.success,
                "expectation_config": {"type": spec.type, "kwargs": spec.kwargs, **spec.notes},
                "result": _bounded(outcome.result),
                "exception_info": {
                    "raised_exception": outcome.error is not None,
                    "exception_message": outcome.error and shortened(outcome.error, MOST_SHOWN),
                },
            }
            for spec, outcome in zip(suite, outcomes, strict=True)
        ],
        "statistics": {
            "evaluated_expectations": len(outcomes),
            "successful_expectations": met,
            "unsuccessful_expectations": len(outcomes) - met,
        },
    }


def _bounded(value: Any) -> Any:
    """Return a value as JSON has it, of long lists and texts the beginning."""
    if isinstance(value, Mapping):
        return {str(name): _bounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        items = [_bounded(item) for item in itertools.islice(value, EXAMPLES)]
        rest = len(value) - len(items)
        return [*items, f"and {rest:,} more"] if rest else items
    if hasattr(value, "item"):  # a number of numpy's
        return _bounded(value.item())
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return shortened(shown(value), MOST_SHOWN)


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
