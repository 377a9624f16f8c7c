"""T-SQL about values that a target cannot hold, for SQL Server and Babelfish."""

from __future__ import annotations

from tableferry.resources.contract.digest_writer import NEVER, OverflowSql
from tableferry.resources.contract.fields import Field
from tableferry.resources.digest.fields import declared
from tableferry.resources.sqlserver import digest
from tableferry.resources.sqlserver.dialect import BINARY, DIALECT
from tableferry.resources.sqlserver.digest import utf8
from tableferry.resources.sqlserver.types import TYPES
from tableferry.resources.types import steps
from tableferry.resources.types.kinds import Kind
from tableferry.resources.types.timestamp_text import UtcOffset

SUPPLEMENTARY = "Latin1_General_100_CI_AS_SC"
"""A collation under which a surrogate pair is one character."""


class SqlServerOverflow(OverflowSql):
    """See `OverflowSql`."""

    digest = digest

    def plain(self, field: Field, x: str) -> tuple[str, str]:
        """Money is cast to decimal."""
        type_ = declared(TYPES, field.source.type)
        if "money" in type_.name:
            decimal = f"decimal({type_.precision},{type_.scale})"
            return f"CAST({x} AS {decimal})", decimal
        return x, field.source.type

    def unfit(self, step: steps.Step, kind: Kind, field: Field, x: str, variant: str) -> str | None:
        """Babelfish cannot count the UTF-16 units of a text."""
        match step:
            case steps.Unreplaced():
                # a lone surrogate has no UTF-8 form and becomes U+FFFD, too
                text = f"CAST({utf8(x, variant)} AS nvarchar(max))"
                return f"CHARINDEX(NCHAR(65533), {text} COLLATE {BINARY}) > 0"
            case steps.WithoutNul() if variant == "nvarchar":
                # Babelfish has no such texts
                return NEVER
            case steps.WithoutNul():
                return f"CHARINDEX(NCHAR(0), CAST({x} AS nvarchar(max)) COLLATE {BINARY}) > 0"
            case steps.Characters(characters):
                return f"LEN({self._characters(x, variant)} + N'.') - 1 > {characters}"
            case steps.Length(length, fixed):
                return f"DATALENGTH({x}) {'<>' if fixed else '>'} {length}"
            case UtcOffset():
                text = f"CAST({field.value('source', DIALECT)} AS nvarchar(34))"
                return f"RIGHT({text}, 6) <> N'+00:00'"
            case steps.Finite():
                return NEVER
        return super().unfit(step, kind, field, x, variant)

    def finer_than(self, x: str, scale: int) -> str:
        """See `OverflowSql`."""
        unit = f"0.{'0' * (scale - 1)}1" if scale else "1"
        return f"{x} % {unit} <> 0"

    def nearest(self, step: steps.Step, x: str, variant: str) -> str | None:
        """See `OverflowSql`."""
        match step:
            case steps.Characters(characters):
                return f"LEFT({self._characters(x, variant)}, {characters})"
            case steps.Length(length, fixed=False):
                return f"SUBSTRING({x}, 1, {length})"
        return None

    def _characters(self, x: str, variant: str) -> str:
        """A text whose characters LEN and LEFT count; on Babelfish they always do."""
        text = f"CAST({x} AS nvarchar(max))"
        return text if variant == "nvarchar" else f"{text} COLLATE {SUPPLEMENTARY}"
