"""What counts as another declaration of the same rows."""

from __future__ import annotations

from typing import Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.declared import changes, declaration_of

HOP = {"to": "sqlserver://dbo.t"}


def declared(hop: dict[str, Any] | None = None, **settings: Any) -> str:
    document = {
        "transfer": "t",
        "source": "postgres://public.t",
        "key": "id",
        "hops": [{**HOP, **(hop or {})}, "clickhouse://d.t"],
    }
    return declaration_of(Transfer.model_validate({**document, **settings}), 1)


def test_the_order_in_which_settings_are_written_says_nothing() -> None:
    types = {"clickhouse": "String", "sqlserver": "nvarchar(9)"}
    backwards = dict(reversed(types.items()))
    first = declared({"exclude": ["a", "b"]}, columns={"c": {"type": types}, "d": {"rename": "e"}})
    same = declared(
        {"exclude": ["b", "a"]}, columns={"d": {"rename": "e"}, "c": {"type": backwards}}
    )
    assert first == same
    assert declared() == declared({"columns": {"c": {}}, "exclude": []}, columns={"d": {}})
    other = declared({"exclude": ["a"]})
    assert [*changes(first, other)] == ["changed since: columns"]
    assert [*changes(declared(), other)] == ["changed since: columns"]
    assert not [*changes(None, other)], "of a record of an earlier release nothing is known"
