"""Who computes row digests, and by which constants a server is believed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.facts import Facts
from tableferry.resources.digest import measure
from tableferry.resources.digest.definition import NULL
from tableferry.resources.digest.expressions import DigestSql
from tableferry.resources.digest.probe import VALUES, DigestRefused, constants
from tableferry.resources.registry import system

SLOW = DigestSql(system("postgres"), "md5", "plain")


def endpoint(digest_by: str, slow: tuple[str, ...] = ("plain",)) -> Endpoint:
    server: Any = SimpleNamespace(
        digests_by=lambda: digest_by,
        system=SimpleNamespace(slow_digests=slow),
        settings=lambda: SimpleNamespace(facts=Facts()),
    )
    return cast(Endpoint, server)


@pytest.mark.parametrize(
    ("digest_by", "slow", "client_is_right", "by_client"),
    [
        ("server", ("plain",), True, False),
        ("client", (), True, True),
        ("auto", ("plain",), True, True),
        ("auto", (), True, False),
        ("auto", ("plain",), False, False),
    ],
)
def test_the_client_computes_what_is_slow_and_what_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    digest_by: str,
    slow: tuple[str, ...],
    client_is_right: bool,
    by_client: bool,
) -> None:
    def require(*_: Any) -> None:
        if not client_is_right:
            raise DigestRefused("the client gets 7 for 8")

    monkeypatch.setattr(measure, "require_client", require)
    assert measure.client_computes(endpoint(digest_by, slow), SLOW) is by_client
    assert ("the client gets 7 for 8" in caplog.text) is not client_is_right


def test_a_client_that_is_wrong_is_refused_where_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def require(*_: Any) -> None:
        raise DigestRefused("the client gets 7 for 8")

    monkeypatch.setattr(measure, "require_client", require)
    with pytest.raises(DigestRefused):
        measure.client_computes(endpoint("client"), SLOW)


@pytest.mark.parametrize("name", ["postgres", "sqlserver", "clickhouse", "files"])
def test_each_kind_of_value_is_asked_for_alone_and_in_a_row(name: str) -> None:
    known = system(name)
    dialect = DigestSql(known, "md5", known.digest.VARIANTS[0])
    *single, row = constants(dialect)
    forms = {value.form for name, value in VALUES.items() if name in known.digest.CONSTANTS}
    assert len(single) == len(row.values) == len(known.digest.CONSTANTS) >= len(forms)
    assert [each.values[0] for each in single] == [*row.values]
    assert sum(each.expected is None for each in single) == (NULL in forms)
