"""References to tables, as transfer files write them and messages show them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tableferry.resources.errors import InputError
from tableferry.resources.registry import systems
from tableferry.resources.tables import TableRef

NAMES = st.one_of(
    st.text(min_size=1, max_size=30),
    st.lists(st.sampled_from(['"', ".", " ", "a", "://", "\n"]), min_size=1).map("".join),
)


@given(st.sampled_from([one.name for one in systems() if not one.by_path]), NAMES, NAMES)
@example("sqlserver", "dbo", '"')
@example("postgres", "a.b", ".")
def test_what_is_printed_is_read_back(system: str, schema: str, name: str) -> None:
    table = TableRef(system, schema, name)
    assert TableRef.parse(str(table)) == table


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("postgres://public.orders", "public", "orders"),
        ("sqlserver://dbo.Order Details", "dbo", "Order Details"),
        ("sqlserver://dbo.order-lines.2024", "dbo", "order-lines.2024"),
        ('sqlserver://dbo."order-lines.2024"', "dbo", "order-lines.2024"),
        ('sqlserver://"my.schema".orders', "my.schema", "orders"),
        ('postgres://public.say "hi"', "public", 'say "hi"'),
        ('postgres://public."say ""hi"""', "public", 'say "hi"'),
        ("clickhouse://warehouse.Заказы", "warehouse", "Заказы"),
        ("sqlserver://dbo.a]b", "dbo", "a]b"),
        ("postgres://it's.%", "it's", "%"),
    ],
)
def test_references(text: str, schema: str, name: str) -> None:
    table = TableRef.parse(text)
    assert (table.schema, table.name) == (schema, name)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (TableRef("postgres", "public", "orders"), "postgres://public.orders"),
        (TableRef("postgres", "public", "a.b"), "postgres://public.a.b"),
        (TableRef("postgres", "a.b", "c"), 'postgres://"a.b".c'),
        (TableRef("postgres", "public", 'say "hi"'), 'postgres://public.say "hi"'),
        (TableRef("postgres", "public", '"hi"'), 'postgres://public."""hi"""'),
        (TableRef("sqlserver", "dbo", " x "), 'sqlserver://dbo." x "'),
    ],
)
def test_quotation_marks_stand_only_where_they_are_needed(table: TableRef, text: str) -> None:
    assert str(table) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "public.orders",
        "oracle://public.orders",
        "postgres://orders",
        "postgres://.orders",
        "postgres://public.",
        'postgres://"public.orders',
        'postgres://"public".',
        'postgres://"public"x.orders',
        'postgres://public."orders',
        'postgres://public."or"ders"',
        'postgres://public.""',
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"should have the form system://schema\.table"):
        TableRef.parse(text)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@host:5432/db",
        "postgres://user:se/cr@et@host/db",
        "postgres://user:secret@host.example.com/db",
    ],
)
def test_the_login_of_a_url_is_not_repeated(url: str) -> None:
    with pytest.raises(InputError, match=r"://\*\*\*@host") as error:
        TableRef.parse(url)
    assert "user" not in str(error.value) and "cr" not in str(error.value).split("@host")[0]
    odd = TableRef("postgres", "a:b@c", "t")
    assert TableRef.parse(str(odd)) == odd
