"""The code location as Dagster loads it."""

from __future__ import annotations

import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.remote_representation.external_data import RepositorySnap
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.pipelines.definitions import build, defs
from tableferry.resources.errors import InputError
from tableferry.sensors.invalid_files import GROUP, invalid_definitions


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return build()


def test_each_hop_is_an_asset_and_the_source_an_external_one(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    middle = dg.AssetKey(["sqlserver", "dbo", "flights"])
    last = dg.AssetKey(["clickhouse", "warehouse", "flights"])
    source = dg.AssetKey(["postgres", "public", "flights"])
    assert graph.get(source).is_external
    assert graph.get(middle).parent_keys == {source}
    assert graph.get(last).parent_keys == {middle}
    assert [graph.get(key).kinds for key in (source, middle, last)] == [
        {"postgres"},
        {"sqlserver"},
        {"clickhouse"},
    ], "the system that holds the table"
    assert {graph.get(key).group_name for key in (source, middle, last)} == {
        "public",
        "dbo",
        "warehouse",
    }
    assert graph.get(last).owners == ["team:data-platform"]
    assert graph.get(last).metadata["dagster/table_name"] == "warehouse.flights"
    assert isinstance(graph.get(last).partitions_def, dg.DynamicPartitionsDefinition)


def test_every_hop_has_blocking_partitioned_checks(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    for path in (["sqlserver", "dbo", "flights"], ["clickhouse", "warehouse", "flights"]):
        keys = {key for key in graph.asset_check_keys if key.asset_key == dg.AssetKey(path)}
        assert {key.name for key in keys} >= {"row_count", "checksum"}


def test_all_transfers_share_one_job_and_one_sensor_per_purpose(folder: Path) -> None:
    assert ASSET_JOB == IMPLICIT_ASSET_JOB_NAME, "what Dagster calls it"
    text = (folder / "t.yaml").read_text(encoding="utf-8")
    lines = 'schedule: "0 2 * * *"\ncheck_schedule: "0 5 * * 0"\n'

    def load(transfers: int) -> tuple[dg.RepositoryDefinition, int]:
        for number in range(transfers):
            name = f"t{number}"
            (folder / f"{name}.yaml").write_text(
                text.replace("transfer: t", f"transfer: {name}").replace(".t", f".{name}") + lines,
                encoding="utf-8",
            )
        calls = 0

        def count(_: object, event: str, __: object) -> None:
            nonlocal calls
            calls += event == "call"

        declared = load_transfers(folder)
        sys.setprofile(count)
        try:
            repository = build(declared).get_repository_def()
            RepositorySnap.from_def(repository)
        finally:
            sys.setprofile(None)
        return repository, calls

    _, fewer = load(20)
    repository, more = load(80)
    assert more < 4.4 * fewer, "four times as many take four times as long"
    assert [job.name for job in repository.get_all_jobs()] == [ASSET_JOB]
    assert sorted(sensor.name for sensor in repository.sensor_defs) == [
        *("check_alert", "failed_ranges", "failure_alert", "first_ranges"),
        *("missed_alert", "new_ranges", "reaper"),
    ]
    assert len(repository.schedule_defs) == 160, "so that each transfer has its own switch"


def test_assets_are_grouped_by_schema_unless_the_file_names_a_group(folder: Path) -> None:
    target, source = (
        dg.AssetKey(["clickhouse", "warehouse", "t"]),
        dg.AssetKey(["postgres", "public", "t"]),
    )

    def groups() -> list[str]:
        graph = build().resolve_asset_graph()
        return [str(graph.get(key).group_name) for key in (source, target)]

    assert groups() == ["public", "warehouse"]
    with (folder / "t.yaml").open("a", encoding="utf-8") as file:
        file.write("group: sales\n")
    assert groups() == ["sales", "sales"]
    (folder / "t.yaml").write_text(
        (folder / "t.yaml").read_text().replace("sales", "a-b"), encoding="utf-8"
    )
    assert "group: should be letters, digits and underscores" in str(
        load_transfers(folder).invalid[0]
    )


def test_both_schedules_of_a_file_are_schedules(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(f"{tmp_path}/t.yaml", "w", encoding="utf-8") as out:
        out.write(
            "transfer: t\nsource: postgres://public.t\nhops: ['clickhouse://warehouse.t']\n"
            'key: id\nschedule: "0 2 * * *"\ncheck_schedule: "0 5 * * 0"\n'
        )
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    found = {one.name: one.job_name for one in build().get_repository_def().schedule_defs}
    assert found == {"t_schedule": ASSET_JOB, "t_check_schedule": ASSET_JOB}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a good transfer, `t`."""
    (tmp_path / "t.yaml").write_text(
        "transfer: t\nsource: postgres://public.t\nhops: ['clickhouse://warehouse.t']\nkey: id\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    return tmp_path


def test_a_wrong_file_is_an_asset_with_a_failed_check(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = folder / "bad.yaml"
    bad.write_text("transfer: bad one\nnonsense: 1\n", encoding="utf-8")
    (folder / "bad_one.yaml").write_text("[", encoding="utf-8")
    found = defs().get_repository_def()
    assert f"{bad}:2: unknown key nonsense" in caplog.text, "in the log of the code server"
    graph = found.asset_graph
    assert dg.AssetKey(["clickhouse", "warehouse", "t"]) in graph.get_all_asset_keys()
    keys = [key for key in graph.get_all_asset_keys() if graph.get(key).group_name == GROUP]
    assert sorted(key.path for key in keys) == [[GROUP, "bad_one"], [GROUP, "bad_one_"]]
    node = graph.get(dg.AssetKey([GROUP, "bad_one"]))
    assert "line 2: unknown key nonsense" in str(node.description)
    assert "`bad.yaml` is not a valid transfer" in str(node.description)

    sensor = found.get_sensor_def("invalid_transfer_files")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    with dg.DagsterInstance.ephemeral() as instance:
        first = sensor.evaluate_tick(dg.build_sensor_context(instance, repository_def=found))
        failed = [event for event in first.asset_events if not event.passed]
        assert {event.asset_key for event in failed} == set(keys)
        assert any("unknown key nonsense" in str(event.description) for event in failed)
        again = sensor.evaluate_tick(
            dg.build_sensor_context(instance, repository_def=found, cursor=first.cursor)
        )
        assert not again.asset_events, "once"
        assert "unknown key nonsense" in str(again.skip_message)


def test_the_check_of_a_wrong_file_reads_it_again(folder: Path) -> None:
    bad = folder / "bad.yaml"
    bad.write_text("transfer: bad\nnonsense: 1\n", encoding="utf-8")
    [file] = load_transfers(folder).invalid
    [check] = invalid_definitions([file]).asset_checks or ()
    assert not check().passed
    assert "unknown key nonsense" in check().description
    bad.write_text((folder / "t.yaml").read_text().replace(".t", ".b").replace(": t", ": bad"))
    assert check().passed
    bad.unlink()
    assert check().passed


def test_without_wrong_files_there_is_nothing_of_them(folder: Path) -> None:
    found = defs().get_repository_def()
    assert not found.has_sensor_def("invalid_transfer_files")
    assert all(
        found.asset_graph.get(key).group_name != GROUP
        for key in found.asset_graph.get_all_asset_keys()
    )


def test_a_missing_folder_fails_the_code_location(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", "/nowhere")
    with pytest.raises(InputError, match="/nowhere should be a folder of transfer files"):
        defs()


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=70)
crons = st.one_of(
    words, st.lists(st.sampled_from(["*", "0", "61", "1-5", "*/7"]), max_size=6).map(" ".join)
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.one_of(words, st.from_regex(r"[a-z_]{1,9}", fullmatch=True)),
    owner=st.one_of(words, words.map("team:{}".format), words.map("a@{}.com".format)),
    tag=st.tuples(words, words),
    schedule=crons,
    description=words,
)
@example(name="context", owner="bob", tag=("a b", "c d"), schedule="every day", description="")
@example(name="t", owner="team:", tag=("dagster/kind/x", ""), schedule="0 0 30 2 *", description="")
def test_what_loads_can_be_defined(
    name: str, owner: str, tag: tuple[str, str], schedule: str, description: str
) -> None:
    """A file is refused by itself, or it is good for the code location: there is no third."""
    declared = {
        "transfer": name,
        "source": "postgres://public.t",
        "hops": ["clickhouse://warehouse.t"],
        "key": "id",
        "description": description,
        "owners": [owner],
        "tags": dict([tag]),
        "schedule": schedule,
    }
    with tempfile.TemporaryDirectory() as folder:
        for number, left_out in enumerate(("", "transfer", "owners", "tags", "schedule")):
            one = {**declared, "hops": [f"clickhouse://warehouse.t{number}"]}
            one.pop(left_out, None)
            one.setdefault("transfer", "good")
            (Path(folder) / f"{number}.yaml").write_text(
                yaml.safe_dump(one, allow_unicode=True), encoding="utf-8"
            )
            build(load_transfers(Path(folder))).get_repository_def().load_all_definitions()


def test_an_asset_refers_to_the_line_that_declares_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "two.yaml").write_text(
        "# of two hops\ntransfer: two\nsource: postgres://public.two\nkey: id\nhops:\n"
        "  - sqlserver://dbo.two\n  - to: clickhouse://warehouse.two\n",
        encoding="utf-8",
    )
    (folder / "bad.yaml").write_text("transfer: bad\nnonsense: 1\n", encoding="utf-8")
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", folder.name)
    expected = {
        "postgres/public/two": ("two.yaml", 3),
        "sqlserver/dbo/two": ("two.yaml", 6),
        "clickhouse/warehouse/two": ("two.yaml", 7),
        "invalid_transfers/bad": ("bad.yaml", 1),
    }

    def references() -> dict[str, str]:
        graph = build().resolve_asset_graph()
        found = {}
        for key in expected:
            metadata = graph.get(dg.AssetKey(key.split("/"))).metadata
            (reference,) = metadata["dagster/code_references"].code_references
            found[key] = reference.source
        return found

    assert references() == {
        key: f"{folder / name}:{line}" for key, (name, line) in expected.items()
    }, "by absolute path, whatever folder Dagster runs in"
    monkeypatch.setenv("TABLEFERRY_TRANSFERS_LINK", "https://github.com/acme/moves/blob/main/t/")
    assert references() == {
        key: f"https://github.com/acme/moves/blob/main/t/{name}#L{line}"
        for key, (name, line) in expected.items()
    }


@pytest.mark.parametrize(
    ("lines", "hours"),
    [
        ("", None),
        ('schedule: "0 2 * * *"', 25),
        ('schedule: "*/15 * * * *"', 1.25),
        ('schedule: "30 6 * * 1-5"', 73),
        ('schedule: "* 9-17 * * 1-5"', 64 + 1 / 60),
        ('schedule: "0 0 1 * *"', 31 * 24 + 1),
        ('schedule: "0 0 29 2 *"', 1461 * 24 + 1),
        ('schedule: "@weekly"', 169),
        ('schedule: "0 2 * * *"\nfreshness: none', None),
        ('schedule: "0 2 * * *"\nfreshness: 7d', 168),
        ("freshness: 36h", 36),
        ('check_schedule: "0 2 * * *"', None),
    ],
)
def test_targets_are_fresh_for_as_long_as_the_schedule_pauses(
    folder: Path, lines: str, hours: float | None
) -> None:
    with (folder / "t.yaml").open("a", encoding="utf-8") as file:
        file.write(f"{lines}\n")
    graph = build().resolve_asset_graph()
    policy = graph.get(dg.AssetKey(["clickhouse", "warehouse", "t"])).freshness_policy
    if hours is None:
        assert policy is None
    else:
        assert policy == dg.FreshnessPolicy.time_window(timedelta(hours=hours))
    assert graph.get(dg.AssetKey(["postgres", "public", "t"])).freshness_policy is None, "unknown"
