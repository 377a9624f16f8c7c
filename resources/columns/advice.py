"""What to tell the user about a column that cannot travel: why, and what would work."""

from __future__ import annotations

from tableferry.resources.columns.conversions import default_type, source_export
from tableferry.resources.contract.dialects import quote
from tableferry.resources.contract.system import System
from tableferry.resources.types.column import Column
from tableferry.resources.types.export import Export, Refusal
from tableferry.resources.types.kinds import Array, Decimal


def text_type(target: System) -> str:
    """The target's type for text of any length."""
    return target.types.text


def no_decimal(export: Export, column: Column, target: System) -> str:
    """A numeric column for whose digits the target has no type of its own."""
    example, undeclared = _decimal(export, target)
    if undeclared:
        return (
            f"it has no declared precision and scale; {_declare(column, example)} or what your "
            f"values need (one that does not fit is refused by name), or {text_type(target)} for "
            "its text"
        )
    most = target.types.most_digits
    return (
        f"its digits are more than the {most} of {target}; "
        f"{_declare(column, text_type(target))} for its text, or {example} or another smaller type "
        "(a value that does not fit is refused by name)"
    )


def choices(source: System, column: Column, target: System) -> list[tuple[str, str]]:
    """The types that a column could be declared as where none is chosen for it; none if none works.

    Args:
        source: the column's system.
        column: the column.
        target: the target's system.

    Returns:
        Each type, and what it would hold.
    """
    export, text = source_export(source, column.type), text_type(target)
    if isinstance(export, Refusal):
        return [(text, export.note or "its text")] if export.as_text else []
    example, _ = _decimal(export, target)
    held = "a value that does not fit is refused by name"
    return [(example, held), *([(text, "its text")] if export.as_text else [])]


def _decimal(export: Export, target: System) -> tuple[str, bool]:
    """A type of the target for a decimal, or array of them, and whether its digits are unknown."""
    kind, types = export.kind, target.types
    example = types.decimal(types.most_digits, 10)
    if isinstance(kind, Array):
        array = types.default(Array(Decimal(types.most_digits, 10)))
        kind, example = kind.item, array or example
    return example, isinstance(kind, Decimal) and kind.precision is None


def alternative(source: System, column: Column, target: System) -> str:
    """What would work for a column, with the SQL that would be selected."""
    export = source_export(source, column.type)
    leave_out = f"leave it out with exclude: [{column.name}]"
    if export.as_text is None:
        if isinstance(export, Refusal):
            return leave_out
        return f"we would choose {default_type(target, export.kind)}"
    note = export.note if isinstance(export, Refusal) else "its text"
    expression = export.as_text.replace("{}", quote(source, column.name))
    return f"{_declare(column, text_type(target))} for {note} ({expression}), or {leave_out}"


def _declare(column: Column, type_: str) -> str:
    return f'declare columns: {{{column.name}: {{type: "{type_}"}}}}'
