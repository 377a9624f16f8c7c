"""The declared T-SQL types, and what PostgreSQL stores for each of them."""

from __future__ import annotations

from dataclasses import dataclass

# Bytes of a character type's declared length that mean "max" (sys.columns.max_length says so too).
MAX = -1

# 100 ns units, the resolution of datetime2(7), time(7) and datetimeoffset(7).
TICKS_PER_SECOND = 10_000_000
TICKS_PER_DAY = 86_400 * TICKS_PER_SECOND

# The code page of varchar under SQL Server's default collation, SQL_Latin1_General_CP1_CI_AS.
CODE_PAGE = "cp1252"

# sys.types rows: name -> (system_type_id, max_length in bytes, precision, scale)
SYSTEM_TYPES: dict[str, tuple[int, int, int, int]] = {
    "image": (34, 16, 0, 0),
    "text": (35, 16, 0, 0),
    "uniqueidentifier": (36, 16, 0, 0),
    "date": (40, 3, 10, 0),
    "time": (41, 5, 16, 7),
    "datetime2": (42, 8, 27, 7),
    "datetimeoffset": (43, 10, 34, 7),
    "tinyint": (48, 1, 3, 0),
    "smallint": (52, 2, 5, 0),
    "int": (56, 4, 10, 0),
    "smalldatetime": (58, 4, 16, 0),
    "real": (59, 4, 24, 0),
    "money": (60, 8, 19, 4),
    "datetime": (61, 8, 23, 3),
    "float": (62, 8, 53, 0),
    "ntext": (99, 16, 0, 0),
    "bit": (104, 1, 1, 0),
    "decimal": (106, 17, 38, 38),
    "numeric": (108, 17, 38, 38),
    "smallmoney": (122, 4, 10, 4),
    "bigint": (127, 8, 19, 0),
    "varbinary": (165, 8000, 0, 0),
    "varchar": (167, 8000, 0, 0),
    "binary": (173, 8000, 0, 0),
    "char": (175, 8000, 0, 0),
    "timestamp": (189, 8, 0, 0),
    "nvarchar": (231, 8000, 0, 0),
    "nchar": (239, 8000, 0, 0),
    "xml": (241, -1, 0, 0),
    "sysname": (231, 256, 0, 0),
}

# PostgreSQL's types whose binary format is the text itself.
TEXT_OIDS = frozenset((18, 19, 25, 114, 142, 705, 1042, 1043, 3802))

_FIXED_STORAGE = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "bit": "smallint",
    "money": "numeric(19,4)",
    "smallmoney": "numeric(10,4)",
    "real": "real",
    "float": "double precision",
    "date": "date",
    "datetime": "timestamp",
    "smalldatetime": "timestamp(0)",
    "uniqueidentifier": "uuid",
    "binary": "bytea",
    "varbinary": "bytea",
    "image": "bytea",
    "timestamp": "bytea",
}


@dataclass(frozen=True)
class SqlType:
    """A T-SQL type as declared.

    `length` counts characters for (n)char and (n)varchar and bytes for (var)binary; -1 is max.
    `precision` and `scale` are set for decimal and numeric; `scale` alone for time, datetime2 and
    datetimeoffset. rowversion goes by its other name, timestamp.
    """

    name: str
    length: int | None = None
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        if self.length is not None:
            return f"{self.name}({'max' if self.length == MAX else self.length})"
        if self.precision is not None:
            return f"{self.name}({self.precision},{self.scale or 0})"
        if self.scale is not None:
            return f"{self.name}({self.scale})"
        return self.name

    @property
    def is_text(self) -> bool:
        return self.name in ("char", "varchar", "nchar", "nvarchar", "text", "ntext", "xml")

    @property
    def is_unicode(self) -> bool:
        return self.name in ("nchar", "nvarchar", "ntext", "xml")

    @property
    def is_binary(self) -> bool:
        return self.name in ("binary", "varbinary", "image", "timestamp")


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result or of a table, as the client is told about it."""

    name: str
    type: SqlType
    nullable: bool = True
    identity: bool = False
    computed: bool = False


LIMITED = "_limited"
"""What the name of a second login ends with, which has the first one's password and rights on
`dbo`: of other schemas, and of definitions, it is shown what SQL Server shows such a login."""

MISREADS = "_misreads_38_digits"
"""What the name of a database ends with in which a bulk load appends a digit to numbers of 38, as
Babelfish 4 may, which a driver cuts off: to see whether that is noticed."""


def storage(sql_type: SqlType) -> str:
    """The PostgreSQL type that holds a T-SQL type.

    bit is kept as 0 or 1, because T-SQL computes with it as with a number. datetime is kept to the
    microsecond nearest its 1/300 s (.003333, .006667, .010000), which is how SQL Server 2016+
    converts it to datetime2; char and binary are kept padded.

    timestamp has microseconds, so the types with 100 ns are kept as integers: datetime2(7) as
    ticks of 100 ns since 0001-01-01 and time(7) as ticks since midnight. datetimeoffset keeps its
    offset in a composite `sys.datetimeoffset (utc bigint, minutes smallint)` of UTC ticks since
    0001-01-01 and the offset in minutes, so that it orders by the instant.
    """
    name, scale = sql_type.name, 7 if sql_type.scale is None else sql_type.scale
    if name in ("decimal", "numeric"):
        return f"numeric({sql_type.precision or 18},{sql_type.scale or 0})"
    if name == "datetime2":
        return "bigint" if scale == 7 else f"timestamp({scale})"
    if name == "time":
        return "bigint" if scale == 7 else f"time({scale})"
    if name == "datetimeoffset":
        return "sys.datetimeoffset"
    return _FIXED_STORAGE.get(name, "text")


# Other names of the types of SYSTEM_TYPES.
ALIASES = {
    "integer": "int",
    "dec": "decimal",
    "rowversion": "timestamp",
    "character": "char",
}
