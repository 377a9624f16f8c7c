"""What a command imports in a process of its own, and when it asks Dagster: it starts fast."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from tableferry.pipelines import event_log
from tableferry.pipelines.cli import main

TRANSFER = """transfer: {name}
source: postgres://public.orders
hops: ["clickhouse://warehouse.{name}"]
key: id
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one transfer; its servers cannot be reached."""
    folder = tmp_path / "transfers"
    folder.mkdir()
    (folder / "orders.yaml").write_text(TRANSFER.format(name="orders"))
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(folder))
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    for name, url in (
        ("POSTGRES", "postgresql://"),
        ("SQLSERVER", "mssql://"),
        ("CLICKHOUSE", "http://"),
    ):
        monkeypatch.setenv(f"TABLEFERRY_{name}_URL", f"{url}u:p@127.0.0.1:1/db")
    return folder


DRIVERS = {"clickhouse_connect", "mssql_python", "mssql_py_core"}
NEVER = {"great_expectations", "pandas", "dagster_graphql", "dagster_webserver"}
NOT_IMPORTED = {
    "--help": {*NEVER, *DRIVERS, "dagster", "pydantic", "pyarrow", "polars", "psycopg", "rich"},
    "validate": {*NEVER, *DRIVERS, "polars", "jinja2"},
    "status orders": {*NEVER, *DRIVERS, "polars", "jinja2"},
}
"""By command, what takes long to import and is not for it."""


COMMANDS = """
import json, os, sys
from tableferry.pipelines.cli import main
home = os.environ["DAGSTER_HOME"]
for command, modules in json.loads(sys.argv[1]).items():
    os.environ["DAGSTER_HOME"] = home + command.split()[0]
    try:
        main(command.split())
    except SystemExit:
        print(f"unneeded by {command}:", sorted(set(modules) & sys.modules.keys()))
"""


@functools.cache
def said_by_commands() -> tuple[list[str], str]:
    """What a new process says that runs them one by one: none may bring what the next must not."""
    modules = json.dumps({command: sorted(names) for command, names in NOT_IMPORTED.items()})
    found = subprocess.run(
        [sys.executable, "-c", COMMANDS, modules], check=False, capture_output=True, text=True
    )
    return found.stdout.splitlines(), found.stderr


@pytest.mark.parametrize("command", NOT_IMPORTED)
def test_a_command_imports_nothing_that_it_does_not_need(command: str) -> None:
    lines, errors = said_by_commands()
    assert "Traceback" not in errors
    assert f"unneeded by {command}: []" in lines, lines


STATUS = """
import os, sys
class Asked:
    def find_spec(name, *_):
        if name == "dagster":
            os.write(1, b"asks Dagster")  # past what click has put in the place of stdout
            os._exit(0)
sys.meta_path.insert(0, Asked)
from click.testing import CliRunner
from tableferry.pipelines.cli import main
found = CliRunner().invoke(main, ["status", "orders", "--json"])
assert found.exception is None, found.output
print(found.stdout)
print("sqlalchemy" in sys.modules, file=sys.stderr)
"""


def status_of_a_new_process() -> str:
    """What it prints; it ends when it begins to import Dagster."""
    found = subprocess.run(
        [sys.executable, "-c", STATUS], check=True, capture_output=True, text=True
    )
    assert "True" not in found.stderr
    return found.stdout.strip()


def test_status_reads_the_event_log_without_dagster(folder: Path) -> None:
    with event_log.open_to_record() as instance:
        instance.add_dynamic_partitions("orders_ranges", ["a"])
        usual = CliRunner().invoke(main, ["status", "orders", "--json"]).stdout.strip()
        assert status_of_a_new_process() == usual
        assert len(json.loads(usual)["ranges"]) == 1
        run = instance.create_run_for_job(dg.JobDefinition(graph_def=dg.GraphDefinition("job")))
        assert status_of_a_new_process() == "asks Dagster", "the run may be dead"
        instance.report_run_canceled(run)
        assert status_of_a_new_process() == usual
    (folder / "bad.yaml").write_text(TRANSFER.format(name="bad") + "owners: [bob]\n")
    assert status_of_a_new_process() == "asks Dagster", "whether it takes such an owner"
