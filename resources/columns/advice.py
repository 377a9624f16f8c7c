"""What users are told about a column that cannot travel: why, and what would work."""

from __future__ import annotations

from tableferry.resources.contract.system import System
from tableferry.resources.types.export import Export, Refusal
from tableferry.resources.types.kinds import Array, Decimal
from tableferry.resources.types.type_map import Column


def no_decimal(export: Export, column: Column, target: System) -> str:
    """Explain that the target has no type for all digits of a numeric column."""
    example, undeclared = _decimal(export, target)
    text = target.types.text
    if undeclared:
        return (
            f"it has no declared precision and scale; {_declare(column, example)} or what your "
            f"values need (one that does not fit is refused), or {text} for its text"
        )
    return (
        f"its digits are more than the {target.types.most_digits} of {target}; "
        f"{_declare(column, text)} for its text, or {example} or another smaller type "
        "(a value that does not fit is refused)"
    )


def choices(source: System, column: Column, target: System) -> list[tuple[str, str]]:
    """List types that would work for a column without a default, and what each would hold."""
    export, text = source.types.export(column.type), target.types.text
    if isinstance(export, Refusal):
        return [(text, export.note or "its text")] if export.as_text else []
    example, _ = _decimal(export, target)
    decimal = (example, "a value that does not fit is refused")
    return [decimal, (text, "its text")] if export.as_text else [decimal]


def _decimal(export: Export, target: System) -> tuple[str, bool]:
    """A target type for decimals, or arrays of them, and whether their digits are undeclared."""
    kind, types = export.kind, target.types
    example = types.decimal(types.most_digits, 10)
    if isinstance(kind, Array):
        array = types.default(Array(Decimal(types.most_digits, 10)))
        kind, example = kind.item, array or example
    return example, isinstance(kind, Decimal) and kind.precision is None


def alternative(source: System, column: Column, target: System) -> str:
    """Describe what would work for a column, with the SQL that would be selected."""
    export = source.types.export(column.type)
    leave_out = f"leave it out with exclude: [{column.name}]"
    if export.as_text is None:
        if isinstance(export, Refusal):
            return leave_out
        return f"we would choose {target.types.default(export.kind)}"
    note = export.note if isinstance(export, Refusal) else "its text"
    expression = export.as_text.replace("{}", source.quote(column.name))
    return f"{_declare(column, target.types.text)} for {note} ({expression}), or {leave_out}"


def _declare(column: Column, type_: str) -> str:
    return f'declare columns: {{{column.name}: {{type: "{type_}"}}}}'
