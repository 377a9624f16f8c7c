"""The JSON Schema of a transfer file: what editors go by agrees with what is accepted."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.schema import transfer_schema
from tableferry.pipelines.cli import main

ROOT = Path(__file__).parents[2]
SQL = "SELECT * FROM {table} WHERE {range} AND id < 0"
GOOD: dict[str, Any] = {
    "transfer": "orders",
    "source": "postgres://public.orders",
    "hops": ["sqlserver://dbo.orders", {"to": "clickhouse://warehouse.orders", "wire": "text"}],
    "key": "id",
}
WATERMARK = {"fingerprint": {"watermark": "updated_at"}}


@functools.cache
def validator(defaults: bool) -> jsonschema.Draft202012Validator:
    schema = transfer_schema(defaults=defaults)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def problems(document: object, *, defaults: bool = False) -> list[str]:
    return [error.message for error in validator(defaults).iter_errors(document)]


@pytest.mark.parametrize("path", sorted((ROOT / "pipelines/transfers").glob("*.yaml")))
def test_the_shipped_transfers_fit(path: Path) -> None:
    assert problems(yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    "more",
    [
        {"ranges": {"width": "month"}},
        {"ranges": {"count": 8, "bounds": [1, 100]}},
        {"fingerprint": {"watermark": "updated_at"}},
        {"incremental": {"full_check": "24h"}, "write": "upsert", **WATERMARK},
        {"incremental": True, "write": "upsert", **WATERMARK},
        {"incremental": False},
        {"columns": ["id", {"note": {"rename": "remark"}}]},
        {"columns": {"note": {"type": {"clickhouse": "String"}, "on_overflow": None}}},
        {"checks": {"row_count": {"severity": "warn", "blocking": False}}},
        {"parallel": {"export": 4}, "profile": "throughput", "owners": ["team:x"]},
        {"expectations": [{"type": "sql", "kwargs": {"query": SQL}, "name": "none"}]},
    ],
    ids=lambda more: next(iter(more)),
)
def test_what_is_accepted_fits(more: dict[str, Any]) -> None:
    assert problems({**GOOD, **more}) == []
    Transfer.model_validate({**GOOD, **more})


def test_variables_fit_everywhere() -> None:
    more = {"ranges": {"rows": "${ROWS}"}, "reconcile": "${LEVEL:-count}", "profile": "${P}"}
    assert problems({**GOOD, **more}) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"rangez": {"rows": 5}},
        {"ranges": {"rows": "many"}},
        {"ranges": {"width": "week"}},
        {"reconcile": "md5"},
        {"fingerprint": {"water": "x"}},
        {"hops": []},
        {"hops": [{"wire": "text"}]},
        {"checks": {"nope": {}}},
        {"columns": {"a": {"typ": "text"}}},
        {"profile": "fast"},
        {"parallel": {"load": 65}},
    ],
    ids=str,
)
def test_what_is_refused_does_not_fit(wrong: dict[str, Any]) -> None:
    assert problems({**GOOD, **wrong}) != []


def test_every_key_is_described() -> None:
    fields = transfer_schema()["properties"]
    assert set(fields) == set(Transfer.model_fields) - {"only"}
    undescribed = {name for name, one in fields.items() if not one.get("description")}
    assert undescribed == set()


def test_the_command_prints_both() -> None:
    printed = json.loads(CliRunner().invoke(main, ["schema"]).stdout)
    assert printed["required"] == ["transfer", "source", "hops"]
    defaults = json.loads(CliRunner().invoke(main, ["schema", "--defaults"]).stdout)
    assert "source" not in defaults["properties"]
    assert problems({"reconcile": "count"}, defaults=True) == []
    assert problems({"source": "postgres://a.b"}, defaults=True) != []
