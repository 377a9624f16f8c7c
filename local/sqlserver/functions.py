"""T-SQL's scalar functions; aggregates are in aggregates.py, dates in datefunctions.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from local.sqlserver.aggregates import AGGREGATES, WINDOW_FUNCTIONS, aggregate, window
from local.sqlserver.conversions import Value, convert, literal
from local.sqlserver.datefunctions import DATE_FUNCTIONS
from local.sqlserver.errors import SqlError, unsupported
from local.sqlserver.expressions import Compiler, compare, unified
from local.sqlserver.metafunctions import META_FUNCTIONS
from local.sqlserver.scope import Scope
from local.sqlserver.sqltype import MAX, SqlType
from local.sqlserver.typerules import (
    BIGINT,
    FLOAT,
    GUID,
    INT,
    NVARCHAR_MAX,
    family,
    max_length,
    text_length,
    text_type,
)

Handler = Callable[[Compiler, list[Value]], Value]


def call(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    """Translate a function call.

    Raises:
        SqlError: 195, there is no such function; 174, it takes other arguments.
    """
    if isinstance(node, exp.Window):
        return window(compiler, node, scope)
    if isinstance(node, exp.WithinGroup):
        order = node.expression
        return aggregate(compiler, node.this, scope, order)
    if isinstance(node, exp.Trim):
        return _trim(compiler, node, scope)
    if not isinstance(node, exp.Anonymous):
        raise unsupported(type(node).__name__)
    name = node.name.lower()
    if name in AGGREGATES:
        return aggregate(compiler, node, scope, None)
    if name in WINDOW_FUNCTIONS:
        raise SqlError(10753, 15, f"The function '{node.name}' must have an OVER clause.")
    if name in DATE_FUNCTIONS:
        return DATE_FUNCTIONS[name](compiler, node.expressions, scope)
    if name == "iif":
        condition = compiler.condition(node.expressions[0], scope)
        values = [compiler.expression(item, scope) for item in node.expressions[1:]]
        return compiler.case([(condition, values[0])], values[1])
    values = [compiler.expression(item, scope) for item in node.expressions]
    handler = _SCALARS.get(name) or META_FUNCTIONS.get(name)
    if handler is None:
        raise SqlError(195, 15, f"'{node.name}' is not a recognized built-in function name.")
    try:
        return handler(compiler, values)
    except IndexError:
        raise SqlError(174, 15, f"The {node.name} function requires more argument(s).") from None


def as_text(value: Value) -> Value:
    """The value as text of a type that holds all of it."""
    if value.is_null:
        return Value("NULL::text", SqlType("varchar", 1), True)
    if family(value.type) == "text":
        return value
    kind = text_type(False, text_length(value.type))
    return Value(convert(value, kind), kind, value.nullable)


def nullable(values: Sequence[Value]) -> bool:
    """Whether a function that is NULL for a NULL argument may be NULL."""
    return any(value.nullable or value.is_null for value in values)


def integer(value: Value) -> str:
    """The value as an int."""
    return convert(value, INT)


def _len(compiler: Compiler, args: list[Value]) -> Value:
    text = as_text(args[0])
    units = f"length(rtrim({text.sql}, ' '))" if text.supplementary else f"sys.len({text.sql})"
    return Value(units, _size_type(text), nullable(args))


def _size_type(value: Value) -> SqlType:
    # only for max types is it a bigint; the SQL stays int and is cast
    return INT


def _datalength(compiler: Compiler, args: list[Value]) -> Value:
    value = args[0]
    kind, name = family(value.type), value.type.name
    if kind == "text":
        each = 2 if value.type.is_unicode else 1
        sql = f"({each} * sys.units({value.sql}))"
    elif kind == "binary":
        sql = f"octet_length({value.sql})"
    elif name in ("decimal", "numeric"):
        precision = value.type.precision or 18
        size = 5 if precision <= 9 else 9 if precision <= 19 else 13 if precision <= 28 else 17
        sql = f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE {size} END"
    else:
        scale = 7 if value.type.scale is None else value.type.scale
        small = 0 if scale > 4 else 1 if scale > 2 else 2
        size = {
            "bigint": 8, "int": 4, "smallint": 2, "tinyint": 1, "bit": 1, "money": 8, "float": 8,
            "smallmoney": 4, "real": 4, "date": 3, "datetime": 8, "smalldatetime": 4,
            "uniqueidentifier": 16, "time": 5 - small, "datetime2": 8 - small,
            "datetimeoffset": 10 - small,
        }.get(name, 8)  # fmt: skip
        sql = f"CASE WHEN ({value.sql})::text IS NULL THEN NULL ELSE {size} END"
    return Value(sql, INT, nullable(args))


def _text_function(name: str) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        text = as_text(args[0])
        return replace(text, sql=f"{name}", nullable=nullable(args)) if False else replace(
            text, sql=name.format(text.sql), nullable=nullable(args), constant=None, name="",
            identity=False, computed=False,
        )  # fmt: skip

    return handler


def _substring(compiler: Compiler, args: list[Value]) -> Value:
    start, length = integer(args[1]), integer(args[2])
    if family(args[0].type) == "binary":
        kind = SqlType("varbinary", _at_most(args[0], args[2]))
        return Value(f"substr({args[0].sql}, {start}, {length})", kind, nullable(args))
    text = as_text(args[0])
    kind = text_type(text.type.is_unicode, _at_most(text, args[2]))
    sql = f"substr({text.sql}, {start}, {length})"
    return Value(sql, kind, nullable(args), text.collation, supplementary=text.supplementary)


def _at_most(text: Value, length: Value) -> int:
    longest = text_length(text.type)
    if isinstance(length.constant, int) and length.constant > 0:
        return length.constant if longest == MAX else min(longest, length.constant)
    return longest


def _left_right(name: str) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        text, count = as_text(args[0]), integer(args[1])
        sql = f"sys.cut({text.sql}, {count})"
        if name == "right":
            sql = f"CASE WHEN {count} > 0 THEN right({text.sql}, {count}) ELSE '' END"
        kind = text_type(text.type.is_unicode, _at_most(text, args[1]))
        return Value(sql, kind, nullable(args), text.collation)

    return handler


def _concat(compiler: Compiler, args: list[Value]) -> Value:
    texts = [as_text(arg) for arg in args]
    lengths = [text_length(text.type) for text in texts]
    kind = text_type(
        any(text.type.is_unicode for text in texts), MAX if MAX in lengths else sum(lengths)
    )
    return Value(f"concat({', '.join(text.sql for text in texts)})", kind, False)


def _concat_ws(compiler: Compiler, args: list[Value]) -> Value:
    whole = _concat(compiler, args)
    texts = [as_text(arg).sql for arg in args]
    kind = text_type(whole.type.is_unicode, MAX)
    return Value(f"concat_ws({', '.join(texts)})", kind, False)


def _isnull(compiler: Compiler, args: list[Value]) -> Value:
    first, second = args[0], args[1]
    # unlike COALESCE, the type is the first argument's
    kind = second.type if first.is_null else first.type
    collation = first.collation or second.collation
    sql = f"COALESCE({convert(first, kind)}, {convert(second, kind)})"
    if kind.name == "datetimeoffset":
        sql = (
            f"CASE WHEN ({first.sql}).utc IS NULL THEN {convert(second, kind)} ELSE {first.sql} END"
        )
    return Value(sql, kind, first.nullable and (second.nullable or second.is_null), collation)


def _coalesce(compiler: Compiler, args: list[Value]) -> Value:
    result = unified(args)
    items = ", ".join(convert(arg, result.type) for arg in args)
    every = all(arg.nullable or arg.is_null for arg in args)
    return replace(result, sql=f"COALESCE({items})", nullable=every)


def _nullif(compiler: Compiler, args: list[Value]) -> Value:
    same = compare("=", args[0], args[1])
    return replace(
        args[0], sql=f"(CASE WHEN {same} THEN NULL ELSE {args[0].sql} END)", nullable=True,
        constant=None, name="",
    )  # fmt: skip


def _choose(compiler: Compiler, args: list[Value]) -> Value:
    branches = [(f"{integer(args[0])} = {n}", value) for n, value in enumerate(args[1:], 1)]
    return compiler.case(branches, None)


def _hashbytes(compiler: Compiler, args: list[Value]) -> Value:
    algorithm = str(args[0].constant or "").upper()
    function = {
        "MD5": "decode(md5({}), 'hex')",
        "SHA2_256": "sha256({})",
        "SHA2_512": "sha512({})",
        "SHA1": "sys.sha1({})",
        "SHA": "sys.sha1({})",
    }.get(algorithm)
    if function is None:
        raise unsupported(f"HASHBYTES('{algorithm}', ...)")
    value = args[1]
    data = (
        convert(value, SqlType("varbinary", MAX)) if family(value.type) != "binary" else value.sql
    )
    return Value(function.format(data), SqlType("varbinary", 8000), nullable(args[1:]))


def _charindex(compiler: Compiler, args: list[Value]) -> Value:
    needle, hay = as_text(args[0]), as_text(args[1])
    a, b = needle.sql, hay.sql
    if not (needle.collation or hay.collation):
        a, b = f'lower({a} COLLATE "pg_c_utf8")', f'lower({b} COLLATE "pg_c_utf8")'
    if len(args) < 3:
        return Value(f"strpos({b}, {a})", INT, nullable(args))
    start = f"greatest({integer(args[2])}, 1)"
    sql = f"COALESCE(nullif(strpos(substr({b}, {start}), {a}), 0) + {start} - 1, 0)"
    return Value(sql, INT, nullable(args))


def _patindex(compiler: Compiler, args: list[Value]) -> Value:
    pattern, text = as_text(args[0]), as_text(args[1])
    return Value(f"sys.patindex({pattern.sql}, {text.sql})", INT, nullable(args))


def _replace(compiler: Compiler, args: list[Value]) -> Value:
    texts = [as_text(arg) for arg in args[:3]]
    unicode = any(text.type.is_unicode for text in texts)
    longest = (
        MAX if texts[0].type.length == MAX else max_length("nvarchar" if unicode else "varchar")
    )
    collation = next((text.collation for text in texts if text.collation), None)
    items = ", ".join(text.sql for text in texts)
    function = "replace" if collation else "sys.replace_ci"
    return Value(f"{function}({items})", text_type(unicode, longest), nullable(args), collation)


def _replicate(compiler: Compiler, args: list[Value]) -> Value:
    text = as_text(args[0])
    longest = MAX if text.type.length == MAX else max_length(text.type.name)
    sql = f"repeat({text.sql}, {integer(args[1])})"
    return Value(sql, text_type(text.type.is_unicode, longest), nullable(args), text.collation)


def _stuff(compiler: Compiler, args: list[Value]) -> Value:
    text, insert = as_text(args[0]), as_text(args[3])
    start, length = integer(args[1]), integer(args[2])
    kind = text_type(
        text.type.is_unicode or insert.type.is_unicode, MAX if text.type.length == MAX else 8000
    )
    return Value(
        f"(left({text.sql}, {start} - 1) || COALESCE({insert.sql}, '') || "
        f"substr({text.sql}, {start} + {length}))",
        kind,
        True,
    )


def _char(unicode: bool) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        code = integer(args[0])
        kind = SqlType("nchar" if unicode else "char", 1)
        if unicode:
            return Value(f"chr({code})", kind, True)
        return Value(f"convert_from(set_byte('\\x00'::bytea, 0, {code}), 'WIN1252')", kind, True)

    return handler


def _trim(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    text = as_text(compiler.expression(node.this, scope))
    chars = node.args.get("expression")
    what = f", {as_text(compiler.expression(chars, scope)).sql}" if chars is not None else ""
    kind = text_type(text.type.is_unicode, text_length(text.type))
    return Value(f"btrim({text.sql}{what})", kind, text.nullable, text.collation)


def _trimmed(function: str) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        text = as_text(args[0])
        what = f", {as_text(args[1]).sql}" if len(args) > 1 else ""
        kind = text_type(text.type.is_unicode, text_length(text.type))
        return Value(f"{function}({text.sql}{what})", kind, nullable(args), text.collation)

    return handler


def _numeric(function: str) -> Handler:
    """A function whose result has its argument's type."""

    def handler(compiler: Compiler, args: list[Value]) -> Value:
        value = args[0]
        if family(value.type) == "text" or value.is_null:
            value = Value(convert(value, FLOAT), FLOAT)
        kind = value.type
        if kind.name in ("decimal", "numeric") and function in ("ceil", "floor"):
            kind = replace(kind, scale=0)
        if kind.name in ("tinyint", "smallint", "bit"):
            kind = INT
        sql = f"{function}({value.sql})"
        return Value(
            convert(Value(sql, value.type), kind) if kind != value.type else _cast(sql, kind),
            kind,
            value.nullable,
        )

    return handler


def _cast(sql: str, kind: SqlType) -> str:
    from local.sqlserver.conversions import pg_type

    return f"({sql})::{pg_type(kind)}"


def _float(template: str) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        return Value(
            f"({template.format(*(convert(arg, FLOAT) for arg in args))})", FLOAT, nullable(args)
        )

    return handler


def _round(compiler: Compiler, args: list[Value]) -> Value:
    value, digits = args[0], integer(args[1])
    if family(value.type) == "text":
        value = Value(convert(value, FLOAT), FLOAT)
    cut = len(args) > 2 and args[2].constant != 0
    function = "trunc" if cut else "round"
    kind = INT if value.type.name in ("tinyint", "smallint") else value.type
    return Value(_cast(f"{function}(({value.sql})::numeric, {digits})", kind), kind, nullable(args))


def _power(compiler: Compiler, args: list[Value]) -> Value:
    value = args[0]
    kind = value.type if family(value.type) in ("int", "dec") else FLOAT
    if kind.name in ("decimal", "numeric"):
        kind = replace(kind, precision=38)
    sql = f"power({convert(value, FLOAT)}, {convert(args[1], FLOAT)})"
    return Value(convert(Value(sql, FLOAT), kind), kind, nullable(args))


def _fixed(sql: str, kind: SqlType) -> Handler:
    return lambda compiler, args: Value(sql, kind, False)


def _unicode(compiler: Compiler, args: list[Value]) -> Value:
    text = as_text(args[0])
    code = f"nullif(ascii({text.sql}), 0)" if text.supplementary else f"sys.unicode({text.sql})"
    return Value(code, INT, True)


def _template(template: str, kind: SqlType) -> Handler:
    """A function of texts with a fixed result type."""
    return lambda compiler, args: Value(
        template.format(*(as_text(arg).sql for arg in args)), kind, True
    )


def _quotename(compiler: Compiler, args: list[Value]) -> Value:
    text = as_text(args[0]).sql
    mark = str(args[1].constant) if len(args) > 1 else "["
    pair = {"(": "()", "'": "''", '"': '""'}.get(mark, "[]")
    left, right = pair[0], pair[1]
    sql = (
        f"({literal(left)} || replace({text}, {literal(right)}, {literal(right * 2)}) || "
        f"{literal(right)})"
    )
    return Value(sql, SqlType("nvarchar", 258), True)


def _isnumeric(compiler: Compiler, args: list[Value]) -> Value:
    return Value(f"pg_input_is_valid(btrim({as_text(args[0]).sql}), 'numeric')::int", INT, False)


def _checksum(compiler: Compiler, args: list[Value]) -> Value:
    items = ", ".join(as_text(arg).sql for arg in args)
    return Value(f"hashtext(concat_ws(E'\\x01', {items}))", INT, False)


_SCALARS: dict[str, Handler] = {
    "len": _len,
    "datalength": _datalength,
    "upper": _text_function('upper({} COLLATE "pg_c_utf8")'),
    "lower": _text_function('lower({} COLLATE "pg_c_utf8")'),
    "reverse": _text_function("reverse({})"),
    "ltrim": _trimmed("ltrim"),
    "rtrim": _trimmed("rtrim"),
    "trim": _trimmed("btrim"),
    "substring": _substring,
    "left": _left_right("left"),
    "right": _left_right("right"),
    "concat": _concat,
    "concat_ws": _concat_ws,
    "isnull": _isnull,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "choose": _choose,
    "hashbytes": _hashbytes,
    "charindex": _charindex,
    "patindex": _patindex,
    "replace": _replace,
    "replicate": _replicate,
    "space": lambda compiler, args: Value(
        f"repeat(' ', {integer(args[0])})", SqlType("varchar", 8000), nullable(args)
    ),
    "stuff": _stuff,
    "char": _char(False),
    "nchar": _char(True),
    "unicode": _unicode,
    "ascii": _template("ascii({})", INT),
    "quotename": _quotename,
    "abs": _numeric("abs"),
    "ceiling": _numeric("ceil"),
    "floor": _numeric("floor"),
    "sign": _numeric("sign"),
    "round": _round,
    "power": _power,
    "square": _float("{0} * {0}"),
    "sqrt": _float("sqrt({0})"),
    "exp": _float("exp({0})"),
    "log": lambda compiler, args: _float("ln({0}) / ln({1})" if len(args) > 1 else "ln({0})")(
        compiler, args
    ),
    "log10": _float("log({0})"),
    "sin": _float("sin({0})"),
    "cos": _float("cos({0})"),
    "tan": _float("tan({0})"),
    "atan": _float("atan({0})"),
    "atn2": _float("atan2({0}, {1})"),
    "pi": _fixed("pi()", FLOAT),
    "rand": _fixed("random()", FLOAT),
    "newid": _fixed("gen_random_uuid()", GUID),
    "newsequentialid": _fixed("uuidv7()", GUID),
    "isnumeric": _isnumeric,
    "checksum": _checksum,
    "binary_checksum": _checksum,
    "isjson": lambda compiler, args: Value(f"({as_text(args[0]).sql} IS JSON)::int", INT),
    "json_value": lambda compiler, args: Value(
        f"jsonb_path_query_first(({as_text(args[0]).sql})::jsonb, "
        f"({as_text(args[1]).sql})::jsonpath) #>> '{{}}'",
        SqlType("nvarchar", 4000),
    ),
    "rowcount_big": lambda compiler, args: Value(
        convert(compiler.parameter("@@rowcount"), BIGINT), BIGINT, False
    ),
    "string_escape": lambda compiler, args: Value(
        f"btrim(to_json({as_text(args[0]).sql})::text, '\"')", NVARCHAR_MAX
    ),
}
