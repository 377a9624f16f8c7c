"""The component by this distribution's name, in a project."""

from importlib.metadata import entry_points, version

import dagster as dg
import dagster_tableferry
from dagster.components.list import list_plugins
from dagster.components.testing import create_defs_folder_sandbox
from dagster_shared.libraries import DagsterLibraryRegistry


def test_the_library_is_registered() -> None:
    assert DagsterLibraryRegistry.get()["dagster-tableferry"] == version("dagster-tableferry")


def test_dg_finds_the_component() -> None:
    (entry,) = entry_points(group="dagster_dg_cli.registry_modules", name="dagster_tableferry")
    assert entry.load() is dagster_tableferry
    manifest = list_plugins(entry_points=True, extra_modules=[])
    names = {item.key.to_typename() for item in manifest.objects}
    assert "dagster_tableferry.TransfersComponent" in names


def test_a_scaffolded_component_loads() -> None:
    component = dagster_tableferry.TransfersComponent
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(component, "moves")
        file = folder / "defs.yaml"
        text = file.read_text()
        file.write_text(text.replace("tableferry.Trans", "dagster_tableferry.Trans", 1))
        with sandbox.build_all_defs() as definitions:
            keys = definitions.resolve_asset_graph().get_all_asset_keys()
    assert dg.AssetKey(["clickhouse", "warehouse", "moves"]) in keys
