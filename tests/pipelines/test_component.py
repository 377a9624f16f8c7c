"""`tableferry.TransfersComponent` in a project: what it defines, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import dagster as dg
import jsonschema
import pytest
from dagster.components.core.snapshot import get_package_entry_snap
from dagster.components.testing import create_defs_folder_sandbox, test_cases
from dagster.components.testing.utils import component_defs
from dagster_shared.serdes.objects import EnvRegistryKey

import tableferry
from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.pipelines.component.connections import EnvText, endpoints, lazily
from tableferry.pipelines.component.scaffolder import ScaffoldParams, TransfersScaffolder
from tests.guide import blocks

HEAD = "type: tableferry.TransfersComponent\nattributes:\n"
ORDERS = """\
  transfers:
    - transfer: orders
      source: postgres://shop.orders
      hops: ["sqlserver://dbo.orders", "dw://warehouse.orders"]
      key: id
      schedule: "0 2 * * *"
"""
CONNECTIONS = """\
  connections:
    postgres: "{{ env.SHOP_URL }}"
    sqlserver: {host: erp, port: "{{ env.ERP_PORT }}", user: sa, password: "{{ env('ERP_KEY') }}"}
    dw: {system: clickhouse, url: "https://me:{{ env.DW_KEY }}@dw/warehouse"}
"""
SECRET = "s3cret-of-the-test"


@contextmanager
def project(**files: str) -> Iterator[dg.Definitions]:
    """A project's definitions; files by path below `defs`, with `__` for `/` and `--` for `.`."""
    with create_defs_folder_sandbox() as sandbox:
        for name, text in files.items():
            path = sandbox.defs_folder_path / name.replace("__", "/").replace("--", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        with sandbox.build_all_defs() as found:
            found.get_repository_def().load_all_definitions()
            yield found


def refusal(**files: str) -> str:
    """Why a project does not load."""
    with pytest.raises(Exception) as caught, project(**files):
        pass
    return str(caught.value.__cause__ or caught.value)


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POSTGRES", "SQLSERVER", "CLICKHOUSE"):
        monkeypatch.delenv(f"TABLEFERRY_{name}_URL", raising=False)
    monkeypatch.setenv("ERP_PORT", "1444")


def test_a_component_has_what_files_would_give() -> None:
    with project(**{"shop__defs--yaml": HEAD + CONNECTIONS + ORDERS}) as found:
        repository = found.get_repository_def()
    assert [job.name for job in repository.get_all_jobs()] == [ASSET_JOB]
    assert [one.name for one in repository.schedule_defs] == ["orders_schedule"]
    assert {one.name for one in repository.sensor_defs} == {
        *("shop_new_ranges", "shop_failed_ranges", "shop_first_ranges"),
        *("shop_reaper", "shop_failure_alert", "shop_check_alert", "shop_missed_alert"),
    }
    graph = repository.asset_graph
    middle, last = (
        dg.AssetKey(["sqlserver", "dbo", "orders"]),
        dg.AssetKey(["dw", "warehouse", "orders"]),
    )
    assert graph.get(middle).parent_keys == {dg.AssetKey(["postgres", "shop", "orders"])}
    assert graph.get(last).parent_keys == {middle}
    assert {key.name for key in graph.asset_check_keys if key.asset_key == last} >= {"checksum"}
    lines = [one.line_number for one in _references(graph.get(last).metadata)]
    assert lines == [10, 1], "the hop's line in defs.yaml, and the component's"
    job = repository.get_job(ASSET_JOB)
    assert set(job.resource_defs) == {"io_manager"}, "what it needs, it brings"


def _references(metadata: Any) -> list[dg.LocalFileCodeReference]:
    return metadata["dagster/code_references"].code_references


def test_translation_upstream_and_files_of_a_folder() -> None:
    transfer = ORDERS.partition("- ")[2].replace("\n      ", "\n")
    more = """\
  path: transfers
  upstream: {orders: raw/orders}
  translation:
    key_prefix: lake
    group_name: "of_{{ transfer.transfer }}"
    tags: {system: "{{ hop.to.system }}"}
    automation_condition: "{{ dg.AutomationCondition.eager() }}"
"""
    python = "import dagster as dg\n\n@dg.asset(key=['raw', 'orders'])\ndef raw(): ...\n"
    with project(
        **{
            "shop__defs--yaml": HEAD + CONNECTIONS + more,
            "shop__transfers__orders--yaml": transfer,
            "raw--py": python,
        }
    ) as found:
        graph = found.get_repository_def().asset_graph
    middle = graph.get(dg.AssetKey(["lake", "sqlserver", "dbo", "orders"]))
    last = graph.get(dg.AssetKey(["lake", "dw", "warehouse", "orders"]))
    assert middle.parent_keys == {dg.AssetKey(["raw", "orders"])}
    assert last.parent_keys == {middle.key}
    assert (last.group_name, last.tags["system"]) == ("of_orders", "clickhouse")
    assert last.automation_condition and last.is_partitioned
    assert {one.asset_key for one in graph.asset_check_keys} == {middle.key, last.key}
    assert not graph.get(dg.AssetKey(["raw", "orders"])).is_external
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("orders_ranges", ["..5", "5.."])
        before = dg.evaluate_automation_conditions(found, instance)
        instance.report_runless_asset_event(dg.AssetMaterialization(["raw", "orders"]))
        after = dg.evaluate_automation_conditions(found, instance, cursor=before.cursor)
        asked = [one.get_requested_partitions(middle.key) for one in (before, after)]
    assert asked == [set(), {"..5", "5.."}], "its ranges, once what makes the source has run"


def test_sources_are_drawn_where_no_other_asset_makes_them() -> None:
    items = ORDERS.replace("orders", "items").partition("transfers:\n")[2]
    text = HEAD + CONNECTIONS + ORDERS + items + "  upstream: {items: raw/items}\n"
    keys = [dg.AssetKey(["postgres", "shop", "orders"]), dg.AssetKey(["raw", "items"])]

    def drawn(**files: str) -> list[bool]:
        with project(**files) as found:
            graph = found.get_repository_def().asset_graph
        assert all(graph.get(key).is_external for key in keys)
        return ["dagster/table_name" in graph.get(key).metadata for key in keys]

    assert drawn(**{"shop__defs--yaml": text}) == [False, False]
    text += "  sources: true\n"
    assert drawn(**{"shop__defs--yaml": text}) == [True, False]
    chain = ORDERS.replace("orders", "next").replace(
        "postgres://shop.next", "dw://warehouse.orders"
    )
    text = HEAD + CONNECTIONS + ORDERS + chain.partition("transfers:\n")[2] + "  sources: true\n"
    with project(**{"shop__defs--yaml": text}) as found:
        graph = found.get_repository_def().asset_graph
    source = graph.get(keys[0])
    assert (source.kinds, source.group_name) == ({"postgres"}, "shop")
    assert [one.line_number for one in _references(source.metadata)] == [9, 1]
    assert graph.get(dg.AssetKey(["dw", "warehouse", "orders"])).is_materializable


def test_two_components_of_one_project() -> None:
    erp = HEAD + CONNECTIONS.replace("SHOP_URL", "OTHER_URL") + ORDERS
    both = {"shop__defs--yaml": HEAD + CONNECTIONS + ORDERS, "erp__defs--yaml": erp}
    problem = refusal(**both)
    assert "transfer 'orders' is also in" in problem and "prefix" in problem
    both["erp__defs--yaml"] += "  prefix: erp\n"
    with project(**both) as found:
        repository = found.get_repository_def()
    names = {sensor.name for sensor in repository.sensor_defs}
    assert {"shop_new_ranges", "erp_new_ranges", "erp_failed_ranges", "erp_reaper"} <= names
    ours = dg.AssetKey(["erp", "dw", "warehouse", "orders"])
    node = repository.asset_graph.get(ours)
    assert node.partitions_def == dg.DynamicPartitionsDefinition(name="erp_orders_ranges")
    (middle,) = node.parent_keys
    source = dg.AssetKey(["erp", "postgres", "shop", "orders"])
    assert repository.asset_graph.get(middle).parent_keys == {source}
    assert {one.pool for one in _ops(repository)} == {"orders", "erp_orders"}


def _ops(repository: dg.RepositoryDefinition) -> list[dg.OpDefinition]:
    return [
        op for op in repository.get_job(ASSET_JOB).all_node_defs if isinstance(op, dg.OpDefinition)
    ]


BAD = HEAD + ORDERS + "      rangs: {rows: 5}\n    - transfer: other\n      source: no://a.b\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# first\n" + BAD, "defs.yaml:10: unknown key rangs: did you mean ranges?\n"),
        (BAD, "defs.yaml:11: source: 'no://a.b' should have the form"),
        (f"{HEAD}{ORDERS}---\n{BAD}", "defs.yaml:18: unknown key rangs"),
        (HEAD + ORDERS + "      key: x\n", "defs.yaml:9: key is given twice"),
        (HEAD + ORDERS + "      reconcile: in_flight\n", "defs.yaml:9: reconcile: in_flight is"),
        (HEAD + ORDERS + ORDERS.partition("\n")[2], "transfer 'orders' is also in"),
        (HEAD + ORDERS.replace("id", "'{{ env.ID }}'"), "write ${ID} for what a variable holds"),
        (HEAD + ORDERS + "  translation: {key: orders}\n", "the asset orders would be made twice"),
        (HEAD + "  prefix: a\n", "there are no transfers"),
        (HEAD + "  path: nowhere\n", "nowhere should be a folder of transfer files"),
        (HEAD + ORDERS + "  prefix: a b\n", "a b_orders should be letters"),
        (HEAD + ORDERS + "  upstream: {order: a}\n", "no transfer 'order'; there are orders"),
        (
            HEAD
            + ORDERS
            + "  translation: {partitions_def: {type: daily, start_date: '2026-01-01'}}",
            "is partitioned by its key ranges",
        ),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(
    text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_DW", "http://dw/warehouse")
    assert expected in refusal(**{"shop__defs--yaml": text})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"postgres": 7}, "connections: postgres: should be a URL, or fields"),
        ({"postgres": {"url": SECRET, "urk": SECRET}}, "postgres: urk: Extra inputs"),
        ({"postgres": {"url": [SECRET]}}, "postgres: url: Input should be a valid string"),
        ({"postgres": {"user": SECRET}}, "postgres: should have url, url_file or host"),
        ({"Shop": SECRET}, "connections: Shop: should be small letters"),
        ({"shop": "{{ env.UNSET }}"}, "connections: shop: say which system it is"),
        ({"shop": {"system": "oracle", "url": SECRET}}, "shop: system should be one of postgres"),
        ({"postgres": {"host": "h", "port": "{{ env.UNSET }}"}}, "port: UNSET is not set"),
        ({"postgres": "{{ nonsense }}"}, "should name variables, as {{ env.NAME }}"),
    ],
)
def test_a_connection_that_is_none_is_refused_without_its_values(
    given: dict[str, Any], expected: str
) -> None:
    with pytest.raises(tableferry.InputError) as caught:
        endpoints(given)
    assert expected in str(caught.value) and SECRET not in str(caught.value)


def test_what_the_environment_holds_is_looked_up_when_a_server_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def render(text: str) -> str:
        raise AssertionError(text)

    given = {"dw": {"system": "clickhouse", "url": "https://me:{{ env.DW_KEY }}@{{ env('DW') }}/w"}}
    monkeypatch.setenv("DW", "dw")
    (server,) = endpoints(lazily(given, render)).values()
    with pytest.raises(tableferry.InputError, match="variable DW_KEY is not set"):
        server.settings()
    monkeypatch.setenv("DW_KEY", SECRET)
    settings = server.settings()
    assert (settings.host, settings.password, settings.database) == ("dw", SECRET, "w")
    assert isinstance(given["dw"]["url"], str) and SECRET not in f"{server!r}{server.model_dump()}"
    assert EnvText("{{env.DW}}").get_value() == "dw"


def test_no_password_is_in_any_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", f"postgresql://u:{SECRET}@h/d")
    for name in ("ERP_KEY", "DW_KEY"):
        monkeypatch.setenv(name, SECRET)
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.defs_folder_path / "shop"
        path.mkdir()
        (path / "defs.yaml").write_text(HEAD + CONNECTIONS + ORDERS)
        with sandbox.build_component_tree() as tree:
            (component,) = tree.get_all_components(tableferry.TransfersComponent)
            repository = tree.build_defs().get_repository_def()
            shown = [
                repr(component),
                str(component.model_dump()),
                str(tree.to_string_representation()),
            ]
    for key in repository.asset_graph.get_all_asset_keys():
        shown.append(str(repository.asset_graph.get(key).metadata))
    for job in repository.get_all_jobs():
        shown.append(str(job.get_job_snapshot()))
    assert SECRET not in "".join(shown)
    assert "{{ env.SHOP_URL }}" in shown[0]


class NoValues(dg.ConfigurableIOManager):
    """A project's own, which takes no values of ours."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        raise AssertionError(obj)

    def load_input(self, context: dg.InputContext) -> None:
        raise AssertionError(context)


def test_a_subclass_says_more_of_an_asset_and_of_a_run() -> None:
    told: list[str] = []

    class Moves(tableferry.TransfersComponent):
        def get_asset_spec(
            self, transfer: tableferry.Transfer, hop: tableferry.HopSpec
        ) -> dg.AssetSpec:
            spec = super().get_asset_spec(transfer, hop)
            return spec.replace_attributes(key=[transfer.transfer, hop.to.connection])

        def get_upstream_key(self, transfer: tableferry.Transfer) -> dg.AssetKey:
            return dg.AssetKey(["made", transfer.source.name])

        def execute(
            self,
            context: dg.AssetExecutionContext,
            transfer: tableferry.Transfer,
            servers: tableferry.Servers,
        ) -> Any:
            told.append(
                f"{asset_key(transfer.hops[0].to).to_user_string()} {sorted(servers.endpoints)}"
            )

    orders = {
        "transfer": "orders",
        "source": "shop://public.orders",
        "hops": ["clickhouse://warehouse.orders"],
        "key": "id",
    }
    shop = tableferry.PostgresResource(url=dg.EnvVar("SHOP_URL"))
    found = component_defs(
        component=Moves(transfers=[orders], connections={"shop": shop}),
        resources={"io_manager": NoValues()},
    )
    graph = found.resolve_asset_graph()
    target = dg.AssetKey(["orders", "clickhouse"])
    assert graph.get(target).parent_keys == {dg.AssetKey(["made", "orders"])}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("orders_ranges", ["..5"])
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        found.resolve_job_def(ASSET_JOB).execute_in_process(
            instance=instance, partition_key="..5", run_config=quiet
        )
    assert told == ["orders/clickhouse ['clickhouse', 'shop']"]
    with pytest.raises(tableferry.InputError, match=r"transfers\.0 \(orders\): key: is required"):
        component_defs(
            component=Moves(transfers=[{**orders, "key": ""}], connections={"shop": shop})
        )


def test_the_guides_component_loads() -> None:
    found = {block.options.get("title"): block.text for block in blocks("in-your-project.md")}
    texts = {
        "moves__defs--yaml": found["src/shop/defs/moves/defs.yaml"],
        "revenue--py": found["src/shop/defs/revenue.py"],
    }
    with project(**texts) as loaded:
        graph = loaded.resolve_asset_graph()
    target = dg.AssetKey(["clickhouse", "warehouse", "orders"])
    assert graph.get(dg.AssetKey("revenue")).parent_keys == {target}
    assert graph.get(target).tags["moved_by"] == "tableferry"


@pytest.mark.parametrize("form", ["yaml", "python"])
def test_a_scaffold_without_flags_is_an_example_that_loads(form: Any) -> None:
    with create_defs_folder_sandbox() as sandbox:
        made = sandbox.scaffold_component(
            tableferry.TransfersComponent, "more/my shop", scaffold_format=form
        )
        assert [one.name for one in made.iterdir()] == [
            "defs.yaml" if form == "yaml" else "component.py"
        ]
        if form == "yaml":
            text = (made / "defs.yaml").read_text()
            assert "{{ env.TABLEFERRY_POSTGRES_URL }}" in text
            uncommented = "\n".join(
                line.replace("# ", "", 1) if "# " in line and ": " in line else line
                for line in text.splitlines()
                if not line.strip().startswith("# ") or ": " in line
            )
            assert "prefix: berlin" in uncommented
        with sandbox.build_all_defs() as found:
            repository = found.get_repository_def()
    assert "transfer_my_shop" in {op.name for op in _ops(repository)}
    assert repository.has_sensor_def("more_my_shop_first_ranges")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"from": "postgres", "tables": ["*"]}, "--to should be given, too"),
        ({"views": True}, "--from and --tables and --to should be given, too"),
        (
            {"from": "postgres", "tables": ["*"], "to": ["clickhouse://w.{table}"]},
            "TABLEFERRY_POSTGRES_URL is not set; postgres:// needs it",
        ),
        ({"from": "postgres", "tables": ["*"], "to": ["w.{table}"]}, "should have the form"),
        ({"from": "nowhere", "tables": ["*"], "to": ["clickhouse://w.t"]}, "neither a system"),
    ],
)
def test_bad_flags_of_a_scaffold_leave_nothing(
    given: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    target = tmp_path / "defs" / "more" / "shop"
    target.mkdir(parents=True)
    request = dg.ScaffoldRequest(
        type_name="tableferry.TransfersComponent",
        target_path=target,
        scaffold_format="yaml",
        project_root=tmp_path,
        params=ScaffoldParams.model_validate(given),
    )
    with pytest.raises(click.ClickException, match=expected):
        TransfersScaffolder().scaffold(request)
    assert [*(tmp_path / "defs").iterdir()] == []


OP = """\
  op:
    tags: {dagster/concurrency_key: erp, team: shop}
    pool: erp
    backfill_policy: {type: multi_run, max_partitions_per_run: 7}
"""


def test_what_is_said_of_the_op_is_what_its_op_has() -> None:
    def op_of(definitions: dg.Definitions) -> tuple[dg.OpDefinition, dg.BackfillPolicy | None]:
        (assets,) = {
            id(item): item
            for item in definitions.get_repository_def().assets_defs_by_key.values()
            if item.is_executable
        }.values()
        assert isinstance(assets.op, dg.OpDefinition)
        return assets.op, assets.backfill_policy

    with project(**{"shop__defs--yaml": HEAD + ORDERS + CONNECTIONS + OP}) as found:
        op, policy = op_of(found)
        assert (op.tags["dagster/concurrency_key"], op.tags["team"], op.pool) == (
            "erp",
            "shop",
            "erp",
        )
        assert policy == dg.BackfillPolicy.multi_run(7)
        usual = op.name
    with project(**{"shop__defs--yaml": HEAD + ORDERS + CONNECTIONS}) as found:
        op, _ = op_of(found)
        assert (op.name, op.pool) == (usual, "orders")
    named = HEAD + ORDERS + CONNECTIONS + "  op: {name: load_orders}\n"
    with project(**{"shop__defs--yaml": named}) as found:
        assert op_of(found)[0].name == "load_orders"
    another = ORDERS.replace("orders", "items").partition("transfers:\n")[2]
    several = HEAD + ORDERS + another + CONNECTIONS + "  op: {name: load_orders}\n"
    assert "op: name: 2 transfers" in refusal(**{"shop__defs--yaml": several})


class TestTranslation(test_cases.TestTranslation):
    """Dagster's own cases of what a translation can say of an asset."""

    # which Dagster's own case has Dagster say
    @pytest.mark.filterwarnings("ignore:Accessing `{{automation_condition:DeprecationWarning")
    def test_it_says_what_the_asset_is(
        self,
        attributes: dict[str, Any],
        assertion: Callable[[dg.AssetSpec], bool],
        key_modifier: Callable[[dg.AssetKey], dg.AssetKey] | None,
    ) -> None:
        text = f"{HEAD}{CONNECTIONS}{ORDERS}  translation: {json.dumps(attributes)}\n"
        if "partitions_def" in attributes:
            assert "is partitioned by its key ranges" in refusal(**{"shop__defs--yaml": text})
            return
        key = dg.AssetKey(["dw", "warehouse", "orders"])
        with project(**{"shop__defs--yaml": text}) as found:
            graph = found.get_repository_def().asset_graph
        if attributes == {"deps": ["nonexistent"]}:
            assert graph.get(key).parent_keys == {dg.AssetKey("nonexistent")}
        else:
            spec = graph.get(key_modifier(key) if key_modifier else key).to_asset_spec()
            assert assertion(spec), spec


class TestOpCustomization(test_cases.TestOpCustomization):
    """Dagster's own cases of what can be said of an op."""

    def test_it_says_what_the_op_is(
        self, attributes: dict[str, Any], assertion: Callable[[dg.AssetsDefinition], bool]
    ) -> None:
        text = f"{HEAD}{CONNECTIONS}{ORDERS}  op: {json.dumps(attributes)}\n"
        with project(**{"shop__defs--yaml": text}) as found:
            key = dg.AssetKey(["dw", "warehouse", "orders"])
            assets = found.get_repository_def().assets_defs_by_key[key]
        assert assertion(assets if "backfill_policy" in attributes else assets.op)


GOOD = {
    "transfer": "orders",
    "source": "postgres://shop.orders",
    "hops": ["sqlserver://dbo.orders", {"to": "{{ context.lake }}", "wire": "${WIRE}"}],
    "key": "id",
    "ranges": "{{ context.ranges }}",
    "columns": {"note": {"type": "text", "low_cardinality": "{{ context.low }}"}},
}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ""),
        ({"ranges": {"rows": "many"}}, "is not of type 'integer'"),
        ({"keyy": "id"}, "'keyy' was unexpected"),
        ({"key": None}, "None is not"),
        ({"columns": {"note": {"tipe": "text"}}}, "'tipe' was unexpected"),
    ],
)
def test_dg_and_editors_know_the_keys_of_a_transfer(more: dict[str, Any], expected: str) -> None:
    model = tableferry.TransfersComponent.get_model_cls()
    assert model is not None
    listed, _ = model.model_json_schema()["properties"]["transfers"]["anyOf"]
    described, anything = listed["items"]["anyOf"]
    assert anything == {"type": "object"}, "the loader names what is wrong, by line"
    errors = jsonschema.Draft202012Validator(described).iter_errors({**GOOD, **more})
    messages = " ".join(_messages(errors))
    assert expected in messages and bool(messages) is bool(expected), messages


def _messages(errors: Iterable[jsonschema.ValidationError]) -> Iterator[str]:
    for error in errors:
        yield error.message
        yield from _messages(error.context or ())


def test_dg_shows_who_owns_the_component_and_what_it_is_for() -> None:
    key = EnvRegistryKey("tableferry", "TransfersComponent")
    shown = get_package_entry_snap(key, tableferry.TransfersComponent)
    assert shown.owners == ["team:tableferry"] and "replication" in shown.tags
    assert shown.summary and shown.summary.startswith("Move tables between PostgreSQL")


def test_the_op_of_a_transfer_that_only_compares_takes_what_fits() -> None:
    watching = ORDERS.replace("      schedule", "      write: none\n      check_schedule")
    watching = watching.replace(
        '["sqlserver://dbo.orders", "dw://warehouse.orders"]', '["dw://warehouse.orders"]'
    )
    with project(**{"shop__defs--yaml": HEAD + watching + CONNECTIONS + OP}) as found:
        checks = found.get_repository_def().asset_checks_defs_by_key.values()
        assert {item.op.pool for item in checks if item.op.tags.get("team") == "shop"} == {"erp"}
