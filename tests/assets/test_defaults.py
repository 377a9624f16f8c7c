"""What transfer files have in common, and what the environment says in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableferry.assets.declaring.transfer_files import load_transfer, load_transfers
from tableferry.resources.errors import InputError

ORDERS = """\
transfer: orders
source: postgres://public.orders
hops: [clickhouse://warehouse.orders]
key: id
"""
LINES = ORDERS.replace("orders", "lines")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders.yaml").write_text(ORDERS)
    (tmp_path / "lines.yaml").write_text(LINES + "ranges: {count: 3}\ntags: {team: ops}\n")
    return tmp_path


def test_a_file_wins_over_the_defaults(folder: Path) -> None:
    (folder / "defaults.yaml").write_text(
        "reconcile: full_hash\nranges: {rows: 5}\ntags: {team: sales, cost: low}\n"
        "checks: {row_count: {severity: warn}}\n"
    )
    found = load_transfers(folder)
    assert list(found.transfers) == ["lines", "orders"], "the defaults are no transfer"
    orders, lines = found.transfers["orders"], found.transfers["lines"]
    assert (orders.reconcile, orders.ranges.rows, orders.tags["team"]) == ("full_hash", 5, "sales")
    assert (lines.ranges.rows, lines.ranges.count) == (None, 3), "taken as a whole"
    assert lines.tags == {"team": "ops", "cost": "low"}, "put together"
    assert load_transfer(folder / "orders.yaml") == orders


def test_nothing_but_comments_is_no_defaults(folder: Path) -> None:
    (folder / "defaults.yaml").write_text("# reconcile: count\n")
    found = load_transfers(folder)
    assert not found.invalid
    assert found.transfers["orders"].reconcile == "checksum"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: b: c\n", 1, "mapping values are not allowed"),
        ("- 1\n", 1, "defaults.yaml should be a mapping"),
        ("reconcile: count\nsource: postgres://a.b\n", 2, "source belongs in each file"),
        ("write: replace\nrecon: count\n", 2, "unknown key recon"),
        ("profile: safe\nprofile: safe\n", 2, "profile is given twice"),
        ("tags:\n  team: sales\n  'a b': c\n", 3, "tags.a b: should be"),
        ("ranges:\n  rows: 0\n", 2, "greater than 0"),
        ("profile: safe\nreconcile: in_flight\n", 2, "take checksum; or count"),
        ("\n\nprofile: ${NOBODY_SET_THIS}\n", 3, "NOBODY_SET_THIS is not set"),
    ],
)
def test_what_is_wrong_with_the_defaults_is_said_of_their_file_and_line(
    folder: Path, text: str, line: int, message: str
) -> None:
    (folder / "defaults.yaml").write_text(text)
    found = load_transfers(folder)
    wrong = {one.path.name: str(one) for one in found.invalid}["orders.yaml"]
    assert wrong.startswith(f"{folder}/defaults.yaml:{line}: ")
    assert message in wrong
    assert len(wrong.splitlines()) == 1, wrong


def test_what_a_file_says_itself_is_judged_there(folder: Path) -> None:
    (folder / "defaults.yaml").write_text("tags: {team: sales}\nreconcile: count\n")
    (folder / "orders.yaml").write_text(ORDERS + "tags:\n  'x y': a\nreconcile: maybe\n")
    (wrong,) = load_transfers(folder).invalid
    lines = [(problem.path.name, problem.line) for problem in wrong.problems]
    assert lines == [("orders.yaml", 6), ("orders.yaml", 7)]


def test_a_broken_default_leaves_out_only_who_goes_by_it(folder: Path) -> None:
    (folder / "defaults.yaml").write_text("ranges: {rows: none}\n")
    found = load_transfers(folder)
    assert list(found.transfers) == ["lines"]


def test_values_come_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGE", "test: {x}\ntransfer: evil")
    monkeypatch.setenv("ROWS", "1000")
    monkeypatch.setenv("EMPTY", "")
    (folder / "orders.yaml").write_text(
        "transfer: orders\nsource: ${SOURCE:-postgres}://public.orders\n"
        'hops: ["clickhouse://warehouse.orders"]\nkey: id\nranges:\n  rows: ${ROWS}\n'
        'description: "${STAGE} for $${HOME}"\nreconcile: ${EMPTY:-count}\n'
        'parallel: {load: "${LOAD:-2}"}\n'
    )
    transfer = load_transfer(folder / "orders.yaml")
    assert str(transfer.source) == "postgres://public.orders"
    assert transfer.ranges.rows == 1000
    assert transfer.description == "test: {x}\ntransfer: evil for ${HOME}"
    assert (transfer.reconcile, transfer.parallel.load) == ("count", 2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("${NOBODY_SET_THIS}", "NOBODY_SET_THIS is not set"),
        ("${}", "should be ${NAME} or ${NAME:-default}"),
        ("${a-b}", "should be ${NAME}"),
        ("${DB_PASSWORD}", "DB_PASSWORD is or may hold a secret"),
        ("${TABLEFERRY_POSTGRES_URL}", "may hold a secret"),
        ("${INNOCENT}", "INNOCENT is or may hold a secret"),
    ],
)
def test_a_variable_without_a_value_is_named_by_file_and_line(
    folder: Path, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DB_PASSWORD", "TABLEFERRY_POSTGRES_URL"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("INNOCENT", "postgresql://me:hunter2@db/shop")
    path = folder / "orders.yaml"
    path.write_text(f"{ORDERS}\nreconcile: {value}\n")
    with pytest.raises(InputError) as refused:
        load_transfer(path)
    said = str(refused.value)
    assert said.startswith(f"{path}:6: ")
    assert message in said
    assert len(said.splitlines()) == 1, "what it would have stood for is not judged"
    assert "hunter2" not in said
