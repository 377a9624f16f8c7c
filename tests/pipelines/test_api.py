"""Transfers that Python code declares: what is built of them, and what is refused."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.manifest import Transfer
from tableferry.pipelines import api
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.tables import TableRef

SERVERS = {
    "postgres": PostgresResource(url=dg.EnvVar("ELSEWHERE")),
    "lake": ClickHouseResource(host="lake", password=dg.EnvVar("LAKE_PASSWORD")),
}


def transfer(name: str, target: str, **more: Any) -> Transfer:
    declared = {
        "transfer": name,
        "source": "postgres://public.orders",
        "hops": [{"to": TableRef("clickhouse", "warehouse", target, "lake")}],
        "key": "id",
        **more,
    }
    return Transfer.model_validate(declared)


def test_a_code_location_has_what_files_would_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELSEWHERE", "postgresql://u:p@h/db")
    found = api.definitions([transfer("orders", "orders", schedule="0 2 * * *")], SERVERS)
    dg.Definitions.validate_loadable(found)
    repository = found.get_repository_def()
    assert [job.name for job in repository.get_all_jobs()] == [ASSET_JOB]
    assert [one.name for one in repository.schedule_defs] == ["orders_schedule"]
    graph = found.resolve_asset_graph()
    target = dg.AssetKey(["lake", "warehouse", "orders"])
    assert {key.name for key in graph.asset_check_keys if key.asset_key == target} >= {"checksum"}
    assert found.resources is not None and found.resources["lake"] is SERVERS["lake"]


def test_an_asset_of_the_project_may_have_the_name_of_a_transfer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ELSEWHERE", "postgresql://u:p@h/db")

    @dg.asset(deps=[dg.AssetKey(["lake", "warehouse", "orders"])])
    def orders() -> None: ...

    ours = api.definitions([transfer("orders", "orders")], SERVERS)
    both = dg.Definitions.merge(ours, dg.Definitions(assets=[orders]))
    dg.Definitions.validate_loadable(both)
    graph = both.resolve_asset_graph()
    assert graph.get(orders.key).parent_keys == {dg.AssetKey(["lake", "warehouse", "orders"])}


def test_a_level_that_is_gone_is_refused_by_what_to_take() -> None:
    opened = api.session([transfer("orders", "a")], SERVERS, dg.DagsterInstance.ephemeral())
    with pytest.raises(InputError, match="take checksum; or count"):
        api.compare(opened, "orders", "..", "in_flight")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="take checksum; or count"):
        opened.compare("lake://a.b", "lake://a.c", level="in_flight")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="take checksum; or count"):
        opened.check("orders", level="in_flight")  # type: ignore[arg-type]


def test_two_of_a_name_or_a_target_are_refused() -> None:
    with pytest.raises(InputError, match=r"transfer 'orders' .* is taken"):
        api.definitions([transfer("orders", "a"), transfer("orders", "b")], SERVERS)
    with pytest.raises(InputError, match=r"the target lake://warehouse\.a .* is taken"):
        api.definitions([transfer("orders", "a"), transfer("others", "a")], SERVERS)
