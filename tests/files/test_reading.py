"""CSV and NDJSON: every value arrives as it was written, or is refused by file, row and value."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.errors import TableferryError, TypeRefused, ValueRefused
from tableferry.resources.files.resource import FilesResource
from tableferry.resources.files.source import FilesSource
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

TARGET = TableRef("clickhouse", "warehouse", "t")
TEXT = "VARCHAR FROM TEXT"


class Reader:
    """A table of text files, each of which is a range."""

    def __init__(self, folder: Path, **files: bytes | str) -> None:
        self.resource = FilesResource(url=folder.as_uri())
        for name, data in files.items():
            path = folder / name.replace("_", ".")
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
        self.table = TableRef("files", ".", f"*.{path.name.partition('.')[2]}")
        self.name = path.name

    def types(self) -> dict[str, str]:
        return {one.name: one.type for one in self.resource.columns(self.table)[2:]}

    def plan(self, **declared: str) -> CopyPlan:
        columns = [
            FilesSource().declared(one, declared[one.name]) if one.name in declared else one
            for one in self.resource.columns(self.table)
        ]
        return plan_copy(self.table, columns, TARGET, key="_file", target_version="26.7")

    def rows(self, plan: CopyPlan | None = None, name: str = "") -> list[tuple[Any, ...]]:
        """What the load sends of a file, after it was fingerprinted."""
        plan, key_range = plan or self.plan(), KeyRange("file", name or self.name)
        found = FilesSource().fingerprints(self.resource, self.table, [key_range], None)
        refused = found[key_range.name].refused
        if refused:
            raise TableferryError(refused)
        sql = plan.select(key_range, "arrow")
        opened = FilesSource().read_arrow(self.resource, plan, key_range, sql, batch_rows=1000)
        with opened as reader:
            columns = [column.to_pylist() for column in reader.read_all().columns[2:]]
        with self.resource.read_arrow(sql) as reader:
            others = [column.to_pylist() for column in reader.read_all().columns[2:]]
        assert repr(others) == repr(columns)
        return list(zip(*columns, strict=True))


def texts(plan: CopyPlan) -> CopyPlan:
    """The plan with every column as it is written."""
    columns = [Column(one.source.name, TEXT) for one in plan.columns[2:]]
    own = [one.source for one in plan.columns[:2]]
    return plan_copy(plan.source, [*own, *columns], TARGET, key="_file", target_version="26.7")


CSV = {
    "quotes": 'a,b\n"x ""y"" z","1,2"\nq"q,""\n',
    "blanks": "a,b\n 1 , x \n\t,\t\n",
    "line breaks": 'a,b\r\n"x\r\ny\n\nz",1\r\n2,"\r"\r\n',
    "byte order mark": "\ufeffa,b\n1,\ufeff2\n",
    "no end": "a,b\n1,2",
    "comments and words": "a,b\n#1,NULL\nNA,nan\n//,\\N\n",
    "backslashes": 'a,b\n"x\\",\\\n\\",1\n'.replace('\\",1', "z,1"),
    "semicolons": 'a;b\n1,5;"x;y"\n',
    "tabs": "a\tb\n1,5\t x\n",
    "a long field": f"a,b\n{'ä' * 100_000},1\n",
    "one column": "a\n1\n\n2\n",
    "no rows": "a,b\n",
    "names": '"a ""b""", c\n1,2\n',
    "nul": "a,b\nx\0y,\0\n",
}


@pytest.mark.parametrize("case", CSV)
def test_fields_are_what_python_reads(tmp_path: Path, case: str) -> None:
    """But for empty ones without quotes, which are NULL; Python does not tell them apart."""
    data = CSV[case]
    packed = {"x.csv.gz": gzip.compress(data.encode())} if case == "quotes" else {"x.csv": data}
    reader = Reader(tmp_path, **packed)
    separator = next(one for one in ";\t," if one in data.splitlines()[0] or one == ",")
    lines = [*csv.reader(io.StringIO(data.removeprefix("\ufeff"), newline=""), delimiter=separator)]
    names, wanted = lines[0], [tuple(line or [""]) for line in lines[1:]]
    assert [*reader.types()] == names
    found = reader.rows(texts(reader.plan()))
    assert [tuple(field or "" for field in row) for row in found] == wanted


def test_an_empty_field_is_null_and_quotes_hold_an_empty_text(tmp_path: Path) -> None:
    assert Reader(tmp_path, a_csv='a,b,c\n,"",x\n').rows() == [(None, "", "x")]


REFUSED_CSV = {
    "a blank before quotes": (b'a,b\n1,2\n1, "x"\n', "column 'b' of row 2 is 'x' .*' \"x\"'"),
    "a blank behind quotes": (b'a,b\n1,"x" \n', "column 'b' of row 1"),
    "behind quotes": (b'a,b\n1,"x"y\n', "quote"),
    "quotes that do not end": (b'a,b\n1,"x\n2,3\n', "Line: 2"),
    "too few fields": (b"a,b\n1,2\n1\n", "Expected Number of Columns: 2 Found: 1"),
    "too many fields": (b"a,b\n1,2,3\n", "Columns: 2 Found: 3|Expected 2 columns, got 3"),
    "a separator at the end": (b"a,b\n1,2,\n", "Expected 2 columns, got 3"),
    "line ends of two kinds": (b"a,b\n1,2\r\n3,4\n", "a.csv"),
    "no UTF-8": (b"a,b\n1,\xff\n", "utf-8|unicode"),
    "Latin-1": ("a,b\n1,é\n".encode("latin-1"), "utf-8|unicode"),
    "a name twice": (b"a,a\n1,2\n", "name of its own"),
    "names that differ in case": (b"a,A\n1,2\n", "name of its own"),
    "a name in two lines": (b'a,"b\nc"\n1,2\n', "second line"),
    "no header": (b"", "no header"),
    "a header that does not end": (b"a,b", "does not end"),
}


@pytest.mark.parametrize("case", REFUSED_CSV)
def test_what_is_no_csv_is_refused_by_name(tmp_path: Path, case: str) -> None:
    data, why = REFUSED_CSV[case]
    reader = Reader(tmp_path, a_csv=data, z_csv="a,b\n1,2\n")
    with pytest.raises(TableferryError, match=f"(?s)a.csv cannot be read: .*({why})"):
        reader.rows(name="a.csv")
    assert reader.rows(texts(reader.plan()), name="z.csv") == [("1", "2")]


INFERRED = {
    "BIGINT": (["0", "-7"], ["9223372036854775807"]),
    "DECIMAL(38,0)": (["9223372036854775808"], ["1" * 38]),
    "DECIMAL(18,2)": (["1.50", "-2.25"], ["1.5", "0.25"], ["2", "10.25"]),
    "DOUBLE": (["1e-05", "0.1"], ["1.0", "2.5", "3.25"], ["-0.0"]),
    "BOOLEAN": (["true", "false"],),
    "DATE": (["2024-02-29", "0001-01-01"],),
    "TIMESTAMP": (["2024-01-01 00:00:00.5", "2024-01-01 00:00:01"], ["2024-01-01T00:00:00.50"]),
    "TIMESTAMP WITH TIME ZONE": (["2024-01-01T00:00:00Z"], ["2024-01-01 00:00:00+00:00"]),
    "UUID": (["00112233-4455-6677-8899-aabbccddeeff"],),
    "VARCHAR": (
        ["1" * 42], ["007"], ["+1"], ["1.0", "1"], ["1.10", "1.1"], ["-0"], ["1_000"], [" 1"],
        ["1E5"], ["1e5"], ["1e400"], ["12345678901234567890", "1e5"], ["0.1", "5", "1e-05"],
        [".5"], ["5."], ["0x1F"], ["nan"], ["inf"], ["TRUE"], ["true", "1"], ["t"], ["2024-2-1"],
        ["2024-02-30"], ["0000-01-01"], ["24:00:00"], ["2024-01-01 24:00:00"], ["2024-01-01T00:00"],
        ["2024-01-01 00:00:00.1234567"], ["2024-01-01 00:00:00+02:00"],
        ["2024-01-01T00:00:00Z", "2024-01-01 00:00:00+00:00"],
        ["2024-01-01 00:00:00", "2024-01-01T00:00:00"], ["00112233-4455-6677-8899-AABBCCDDEEFF"],
    ),
}  # fmt: skip


def test_a_column_is_what_gives_the_same_texts_back(tmp_path: Path) -> None:
    columns = [(type_, values) for type_, cases in INFERRED.items() for values in cases]
    most = max(len(values) for _, values in columns)
    rows = [[values[at] if at < len(values) else "" for _, values in columns] for at in range(most)]
    out = io.StringIO(newline="")
    csv.writer(out).writerows([[f"c{at}" for at in range(len(columns))], *rows])
    reader = Reader(tmp_path, a_csv=out.getvalue())
    found = reader.types()
    for at, (type_, values) in enumerate(columns):
        own = found[f"c{at}"].replace("VARCHAR LIKE ", "VARCHAR! ").partition("! ")
        shown = own[0] if own[1] else own[0].removesuffix(" FROM TEXT")
        assert shown == type_, values
    as_texts = reader.rows(texts(reader.plan()))
    assert [[field or "" for field in row] for row in as_texts] == rows


def test_files_are_taken_together(tmp_path: Path) -> None:
    """What comes late decides as well."""
    many = "a,b\n" + "1,1.50\n" * 70_000
    reader = Reader(tmp_path, a_csv=f"{many}1E5,x\n", b_csv="b,a\n1.5,2\n")
    assert reader.types() == {"a": TEXT, "b": TEXT}
    (tmp_path / "a.csv").write_text(many)
    assert reader.types() == {"a": "BIGINT FROM TEXT", "b": TEXT}


def test_what_a_later_file_writes_otherwise_is_refused(tmp_path: Path) -> None:
    reader = Reader(tmp_path, a_csv="a,b,c\n1,true,1.5\n")
    plan = reader.plan()
    late = {"b": "007,true,1.5", "c": "1,TRUE,1.5", "d": "1,true,1E5", "e": "1,true,1.25"}
    odd = {"b": "007", "c": "TRUE", "d": "1E5", "e": "1.25"}
    for name, line in late.items():
        (tmp_path / f"{name}.csv").write_text(f"a,b,c\n{line}\n")
        with pytest.raises(ValueRefused, match=f"key '{name}.csv, 1': value '{odd[name]}' is not "):
            reader.rows(plan, f"{name}.csv")


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        ("bigint", ["007", "-0"], ["+1", "1.0", "1e3", " 1", "9223372036854775808"]),
        ("decimal(4,2)", ["1.500", "01.5"], ["1.255", "100.00", "1e1"]),
        ("double", ["0.1", "1E5", "0.10000000000000001", "nan"], ["1e400", "1e-400", "1" * 42]),
        ("float", ["0.1", "16777216"], ["16777217", "0.123456789012"]),
        ("boolean", ["TRUE", "0"], ["yes", ""][:1]),
        ("date", ["2024-02-29"], ["2024-2-1", "2024-02-30", "0000-01-01"]),
        ("time", ["24:00:00", "01:02", "01:02:03.1234560"], ["24:00:01", "01:02:03.1234567"]),
        ("timestamp", ["2024-01-01", "2024-01-01T01:02"], ["2024-01-01 24:00:00", "2024-01-01Z"]),
        (
            "timestamptz",
            ["2024-01-01 00:00:00+02:00"],
            ["2024-01-01 00:00:00", "2024-01-01T00:00+99"],
        ),
    ],
)
def test_a_declared_type_takes_any_notation_of_its_values(
    tmp_path: Path, type_: str, good: list[str], bad: list[str]
) -> None:
    reader = Reader(tmp_path, a_csv="a\n" + "".join(f"{one}\n" for one in good))
    assert len(reader.rows(reader.plan(a=type_))) == len(good)
    for value in bad:
        (tmp_path / "b.csv").write_text(f"a\n{value}\n")
        shown = f"'b.csv, 1': value '{value[:20]}".replace("+", r"\+")
        with pytest.raises(ValueRefused, match=shown):
            reader.rows(reader.plan(a=type_), "b.csv")


def test_values_of_json_are_what_python_reads(tmp_path: Path) -> None:
    lines = [
        r'{"big": 123456789012345678901234567890123456789012, "exp": 1E5, "odd": 1e400, "neg": -0}',
        r'{"big": 1, "exp": 0.10, "odd": 1, "neg": 5, "text": "1E5 \"x\", -3 \\", "*": "star"}',
        r'{"text": "\u00e9\ud83d\ude00\u0000\/", "deep": {"a": [1E5, 1.10, "2, 3"]}, "flag": true}',
        r'{"text": "", "deep": [], "flag": false, "a/b~\"c": "key", "ё": null, "digits": "007"}',
        "{}",
    ]
    reader = Reader(tmp_path, a_ndjson="\n".join(lines) + "\n\n")
    keys = ["big", "exp", "odd", "neg", "text", "*", "deep", "flag", 'a/b~"c', "ё", "digits"]
    assert sorted(reader.types()) == sorted(keys)
    assert set(reader.types().values()) == {TEXT, "BOOLEAN FROM TEXT"}
    found = reader.rows(texts(reader.plan()))

    def written(value: Any) -> Any:
        if isinstance(value, Number | str) or value is None:
            return value
        if isinstance(value, bool):
            return json.dumps(value)
        return packed(value)

    wanted = [json.loads(one, parse_float=Number, parse_int=Number) for one in lines]
    assert found == [tuple(written(row.get(key)) for key in reader.types()) for row in wanted]


class Number(str):
    """A number as it is written."""

    __slots__ = ()


def packed(value: Any) -> str:
    """A nested value without blanks, its numbers as they are written."""
    if isinstance(value, Number):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(packed, value))}]"
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"{json.dumps(key)}:{packed(one)}" for key, one in value.items()) + "}"
        )
    return json.dumps(value, ensure_ascii=False)


JSON_TYPES = {
    "BIGINT": ["1", "-7"],
    "DECIMAL(18,2)": ["1.50", "2.25"],
    "DOUBLE": ["1e-05"],
    "BOOLEAN": ["true", "null"],
    "DATE": ['"2024-02-29"'],
    "VARCHAR": ['"5"', '"true"'],
}


def test_strings_of_digits_are_no_numbers(tmp_path: Path) -> None:
    for number, (type_, values) in enumerate(JSON_TYPES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        data = "".join(f'{{"a": {one}}}\n' for one in values)
        assert Reader(folder, a_ndjson=data).types() == {"a": f"{type_} FROM TEXT"}


@pytest.mark.parametrize(
    "pair", [('"1"', "1"), ("true", "1"), ("[1]", '"[1]"'), ("true", '"true"')]
)
def test_values_of_several_kinds_need_a_declared_type(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    reader = Reader(tmp_path, a_ndjson=f'{{"a": {pair[0]}}}\n', b_ndjson=f'{{"a": {pair[1]}}}\n')
    with pytest.raises(TypeRefused, match=r"a.*of several kinds of JSON values"):
        reader.plan()
    assert len(reader.rows(reader.plan(a="varchar"))) == 1


REFUSED_JSON = {
    "a key twice": ('{"a": 1, "a": 2}', 'object 2 has a key twice: {"a": 1, "a": 2}'),
    "an array": ('[{"a": 1}]', "object 2 is not a JSON object"),
    "a number": ("5", "object 2 is not a JSON object"),
    "NaN": ('{"a": NaN}', "object 2 is not JSON: it has NaN"),
    "an infinity": ('{"a": [-Infinity]}', "object 2 is not JSON"),
    "a comma too many": ('{"a": 1,}', "object 2 is not JSON"),
    "leading zeros": ('{"a": 01}', "leading zero"),
    "two objects": ('{"a": 1} {"a": 2}', "Malformed JSON"),
    "an object in two lines": ('{\n"a": 1}', "Malformed JSON"),
    "half a surrogate pair": (r'{"a": "\ud83d"}', "surrogate"),
    "keys that differ in case": ('{"A": 1}', "name of its own"),
    "no name": ('{"": 1}', "name of its own"),
}


@pytest.mark.parametrize("case", REFUSED_JSON)
def test_what_is_no_json_is_refused_by_name(tmp_path: Path, case: str) -> None:
    line, why = REFUSED_JSON[case]
    reader = Reader(tmp_path, a_ndjson=f'{{"a": 1}}\n{line}\n', z_ndjson='{"a": 3}\n')
    with pytest.raises(TableferryError) as error:
        reader.rows(reader.plan(a="bigint"), "a.ndjson")
    assert "a.ndjson" in str(error.value) and why in str(error.value)
    assert reader.rows(reader.plan(a="bigint"), "z.ndjson") == [(3,)]


def test_malformed_json_is_told_by_its_line(tmp_path: Path) -> None:
    reader = Reader(tmp_path, a_ndjson='{"id": 1}\n{"id": }\n{"id": 3}\n')
    with pytest.raises(TableferryError, match="at byte 8 in line 2: "):
        reader.types()


@pytest.mark.parametrize("name", ["a_ndjson", "a_ndjson_gz"])
def test_a_byte_order_mark_is_no_part_of_json(tmp_path: Path, name: str) -> None:
    text = '\ufeff{"id": 1, "x": "a\\tb, \\"q\\" \\u0001"}\r\n\n \n{"id": 2, "x": null}'
    data = gzip.compress(text.encode()) if name.endswith("gz") else text.encode()
    reader = Reader(tmp_path, **{name: data})
    assert reader.types() == {"id": "BIGINT FROM TEXT", "x": TEXT}
    assert reader.rows() == [(1, 'a\tb, "q" \x01'), (2, None)]


def test_an_error_does_not_repeat_a_long_value(tmp_path: Path) -> None:
    reader = Reader(tmp_path, a_csv="id,note\n1," + "abc" * (6 << 20) + "\n")
    with pytest.raises(TableferryError) as refused:
        reader.rows()
    message = str(refused.value)
    assert "Line: 2" in message and "Maximum line size of 16777216 bytes exceeded" in message
    assert len(message) < 1_000


LENGTHS = (0, 3, 2_100, 300_000, 1, 1_100_000, 40)
"""In bytes; pyarrow parses 1 MiB at once where no row is longer."""


@pytest.mark.parametrize("format", ["csv", "ndjson"])
def test_rows_of_all_lengths_arrive_and_are_numbered(tmp_path: Path, format: str) -> None:
    odd = 'a"b\n,\u00e9\u20ac\\ '
    rows = [(f"row {at}", (odd * length)[:length]) for at, length in enumerate(LENGTHS)]
    written = io.StringIO()
    if format == "csv":
        csv.writer(written, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *rows])
    else:
        for row in rows:
            written.write(json.dumps(dict(zip("ab", row, strict=True)), ensure_ascii=False))
            written.write("\n \t\n")
    reader = Reader(tmp_path, **{f"f_{format}": written.getvalue()})
    assert reader.rows() == rows
    with reader.resource.read_arrow(f'SELECT "_row" FROM "."."f.{format}"') as numbers:
        assert numbers.read_all()[0].to_pylist() == [*range(1, len(rows) + 1)]


def test_words_within_strings_are_no_infinities(tmp_path: Path) -> None:
    line = json.dumps({"a": 'NaN, Infinity ,] " ,}', "b": "inf"})
    assert Reader(tmp_path, a_ndjson=f"{line}\n").rows() == [tuple(json.loads(line).values())]


def test_columns_of_folders_names_are_not_made_up(tmp_path: Path) -> None:
    (tmp_path / "year=2024").mkdir()
    reader = Reader(tmp_path, a_csv="a\n1\n")
    (tmp_path / "a.csv").rename(tmp_path / "year=2024" / "a.csv")
    reader.table = replace(reader.table, name="**/*.csv")
    assert reader.types() == {"a": "BIGINT FROM TEXT"}


@pytest.mark.timeout(120)
def test_readers_that_are_not_read_to_the_end_hold_nobody_up(tmp_path: Path) -> None:
    """DuckDB's threads call Python, whose lock the thread that ends a query may hold."""
    reader = Reader(tmp_path, a_csv="a,b\n" + "1,x\n" * 100_000, b_csv='a,b\n1, "x"\n')
    plan = reader.plan()
    key_range = KeyRange("file", "a.csv")
    sql = plan.select(key_range, "arrow")
    for _ in range(20):
        opened = FilesSource().read_arrow(reader.resource, plan, key_range, sql, batch_rows=1000)
        with opened as stream:
            assert stream.read_next_batch().num_rows
        with pytest.raises(TableferryError, match="to one reader"):
            reader.rows(plan, "b.csv")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a_ndjson", b"", "no object in it has a key, so that it has no columns"),
        ("a_ndjson", b"\n \n\n", "no object in it has a key, so that it has no columns"),
        ("a_ndjson", b"{}\n{}\n", "no object in it has a key, so that it has no columns"),
        ("a_ndjson", b"\0" * 99 + b'{"a": 1}\n', "Malformed JSON in file"),
        ("a_ndjson", b'{"a": 1}\n' + b"\0" * 5000, "line 2 is not JSON"),
        ("a_ndjson", b'{"a": "' + b"x" * 5000 + b'"\n', "line 1 is not JSON"),
        ("a_csv", "sep=;\na;b\n1;2\n", "its first line is Excel's sep="),
        ("a_csv", '"sep=,"\r\na,b\r\n1,2\r\n', "its first line is Excel's sep="),
        ("a_csv", "SEP=\t\na\tb\n1\t2\n", "its first line is Excel's sep="),
    ],
)
def test_what_is_no_table_is_refused_in_plain_words(
    tmp_path: Path, name: str, data: bytes | str, said: str
) -> None:
    with pytest.raises(TableferryError) as found:
        Reader(tmp_path, **{name: data}).types()
    assert f"{tmp_path}/{name.replace('_', '.')} cannot be read: " in str(found.value)
    assert said in str(found.value)
    for word in ("SELECT", "LINE", "\0", "Error"):
        assert word not in str(found.value)
