"""What to tell the user about a column that cannot travel: why, and what would work."""

from __future__ import annotations

from resources.dialects import quote
from resources.tables import Column, System
from resources.types.conversions import default_type, source_export
from resources.types.export import Export, Refusal
from resources.types.kinds import Array, Decimal

MOST_DIGITS = {"clickhouse": 76, "sqlserver": 38}


def text_type(target: System) -> str:
    """The target's type for text of any length."""
    return "String" if target == "clickhouse" else "nvarchar(max)"


def no_decimal(export: Export, column: Column, target: System) -> str:
    """A numeric column for whose digits the target has no type of its own."""
    kind = export.kind
    example = "Decimal(76, 10)" if target == "clickhouse" else "decimal(38,10)"
    if isinstance(kind, Array):
        kind, example = kind.item, f"Array(Nullable({example}))"
    if isinstance(kind, Decimal) and kind.precision is None:
        return (
            f"it has no declared precision and scale; {_declare(column, example)} or what your "
            f"values need (one that does not fit is refused by name), or {text_type(target)} for "
            "its text"
        )
    return (
        f"its digits are more than the {MOST_DIGITS[target]} of {target}; "
        f"{_declare(column, text_type(target))} for its text, or {example} or another smaller type "
        "(a value that does not fit is refused by name)"
    )


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
