"""The rooms import one way only: pipelines -> sensors -> assets -> checks -> resources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest

from tableferry.resources.contract.fields import Kind
from tableferry.resources.contract.target_options import WriteMode
from tableferry.resources.registry import system
from tests.sources import imported, imports

ROOT = Path(__file__).parent.parent
ROOMS = ["pipelines", "sensors", "assets", "checks", "resources"]
SYSTEMS = ("postgres", "sqlserver", "clickhouse", "files")
LOCAL = "tableferry_local"
TEXTS = {
    path: path.read_text(encoding="utf-8")
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
}
"""The files of the rooms."""
TREES = {path: ast.parse(text) for path, text in TEXTS.items()}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def files_with(pattern: str) -> list[str]:
    return [name_of(path) for path, text in TEXTS.items() if re.search(pattern, text)]


def test_rooms_import_one_way() -> None:
    for path in TEXTS:
        above = ROOMS[: ROOMS.index(path.relative_to(ROOT).parts[0])]
        forbidden = {*(f"tableferry.{room}" for room in above), LOCAL, "tableferry_bench"}
        assert not imported(path) & forbidden, path


def test_the_local_stack_imports_nothing_of_the_product() -> None:
    for path in (ROOT / "local" / LOCAL).rglob("*.py"):
        assert not [n for n in imported(path) if re.match(r"tableferry(_bench|\.|$)", n)], path


def test_resources_use_no_assets_of_dagster() -> None:
    assert not [name for name in files_with("AssetKey|AssetSpec") if name.startswith("resources/")]


NAMED = re.compile(r"""["'](postgres|sqlserver|clickhouse)["']""")
MOST_NAMED = 10


def test_few_files_outside_its_folder_name_a_system() -> None:
    named = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path, text in TEXTS.items()
        if path.parent.name not in SYSTEMS[:3]
        for number, line in enumerate(text.splitlines(), start=1)
        if NAMED.search(line)
    ]
    assert len(named) <= MOST_NAMED, "\n".join(named)


MODES_DEFINED = ROOT / "resources/contract/target_options.py"
MODE = re.compile(rf"""WriteMode|["'](?:{"|".join(WriteMode)})["']""")
MODES_NAMED = {
    "assets/declaring/manifest.py": "the default",
    "assets/declaring/rules.py": "the default",
    "assets/log/states.py": "a state of the same name",
    "assets/planning/intent.py": "the modes by which targets are recreated, and repaired",
    "resources/files/system.py": "the only mode of the system",
    "pipelines/onboarding/refresh.py": "the mode of tables without a key",
    "pipelines/command/copying.py": "the mode of --append",
}


def test_write_modes_are_known_by_their_properties() -> None:
    named: dict[str, list[int]] = {}
    # `none` is a word of other settings, too
    modes = {*WriteMode} - {WriteMode.NONE}
    for path, text in TEXTS.items():
        if path == MODES_DEFINED or not MODE.search(text):
            continue
        nodes = list(ast.walk(TREES[path]))
        # errors="replace" is an argument of decode()
        decoding = [n.value for n in nodes if isinstance(n, ast.keyword) and n.arg == "errors"]
        for node in nodes:
            constant = isinstance(node, ast.Constant) and node.value in modes
            member = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "WriteMode"
            if member or (constant and node not in decoding):
                named.setdefault(name_of(path), []).append(node.lineno)
            if isinstance(node, ast.Compare):
                assert "WriteMode" not in ast.unparse(node), f"{path}:{node.lineno}"
    assert named.keys() == MODES_NAMED.keys(), named


LEVELS_NAMED = {
    "checks/levels.py": "the levels",
    "pipelines/command/comparing.py": "the level of --sample",
}


REASONS_NAMED = {
    "assets/log/records.py": "what has changed between two data versions",
    "assets/log/states.py": "the reasons",
    "assets/planning/planner.py": "ranges that were never moved",
    "assets/planning/rows/actions.py": "the action that each reason asks for",
    "assets/planning/rows/decision.py": "a range alone",
    "assets/planning/rows/decisions.py": "the ranges of a hop",
    "assets/planning/rows/deltas.py": "a full check that is due",
    "assets/running/actions.py": "why a range moves that an action has found to differ",
    "assets/running/range_attempt.py": "who has written the rows",
}
"""The modules that name the reason of a range; others do what its action is."""


def test_few_modules_name_the_reasons_of_ranges() -> None:
    assert {*files_with(r"\bReason\.[A-Z]")} | {"assets/log/states.py"} == REASONS_NAMED.keys()


def test_one_function_makes_plans_and_what_a_run_is_asked_stays_beside_the_declaration() -> None:
    assert files_with(r"\bTransferPlan\(") == ["assets/planning/transfer_plan.py"]
    declared = [name for name in files_with(r"\bPrivateAttr\b") if "declaring" in name]
    assert declared == ["assets/declaring/sections.py"], "a declaration hides nothing"


def test_check_levels_are_known_by_their_properties() -> None:
    """The names `count` and `checksum` have other meanings, too."""
    named = files_with(r"""["'](sample_hash|full_hash)["']""")
    assert {*named} == LEVELS_NAMED.keys()


COMMON = {"system", "server", "resource", "dialect", "types", "digest", "errors"}


@pytest.mark.parametrize("name", SYSTEMS[:3])
def test_the_folders_of_systems_have_the_same_files(name: str) -> None:
    files = {path.stem for path in (ROOT / "resources" / name).glob("*.py")}
    assert files >= COMMON
    assert ("source" in files) is (system(name).source is not None)
    assert ("target" in files) is (system(name).loader is not None)


def test_no_module_outside_its_folder_imports_a_system() -> None:
    folder = re.compile(rf"tableferry\.resources\.({'|'.join(SYSTEMS)})\b")
    for path in TEXTS:
        froms = [node for node, _ in imports(path) if isinstance(node, ast.ImportFrom)]
        modules = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        if path.parent.name not in SYSTEMS:
            assert not [*filter(folder.match, modules)], path


def test_the_digest_names_no_type_of_a_system() -> None:
    constants = [system(name).digest.CONSTANTS.values() for name in SYSTEMS]
    declared = {type_.partition("(")[0] for values in constants for type_, _ in values}
    types = declared - set(get_args(Kind))
    assert {"real", "Float32", "String", "bigint"} <= types
    for path in (ROOT / "resources/digest").glob("*.py"):
        assert not texts_in(path) & types, path


def texts_in(path: Path) -> set[str]:
    nodes = ast.walk(TREES[path])
    return {str(node.value) for node in nodes if isinstance(node, ast.Constant)}


def test_one_module_has_all_private_names_of_dagster() -> None:
    """A name of it that nothing uses goes."""
    home = ROOT / "assets/log/dagster_internals.py"
    assert files_with(r"\bdagster(_\w+)?\._") == [name_of(home)]
    used = {
        alias.name
        for path in TEXTS
        for node, _ in imports(path)
        if isinstance(node, ast.ImportFrom) and node.module == "tableferry.assets.log." + home.stem
        for alias in node.names
    }
    named = re.findall(r'^    "(\w+)",$', TEXTS[home], re.M)
    assert used == {*named} and len(named) <= MOST_PRIVATE_NAMES


MOST_PRIVATE_NAMES = 19


def test_only_the_log_writes_and_reads_events() -> None:
    events = r"\.log_event\(|fetch_materializations|fetch_observations"
    assert folders_with(events) == {"assets/log"}


def folders_with(pattern: str) -> set[str]:
    return {str(Path(name).parent) for name in files_with(pattern)}


QUERIED = {
    "assets/log/attention.py": "which transfers a sensor should look at",
    "assets/log/grouping.py": "the commit that was stored last",
    "assets/log/history.py": "the runs of a transfer",
    "assets/log/ledger.py": "tags and newest events of one target",
    "assets/log/ranges.py": "the newest events of ranges",
    "assets/log/retention.py": "forgets the verdicts of runs that are deleted",
    "assets/log/runs.py": "the newest runs of targets",
    "assets/log/check_records.py": "which verdicts stand",
    "assets/log/written_columns.py": "which table a run created",
}
"""The modules that query Dagster's tables of events, each for something of its own."""


def test_few_modules_query_the_tables_of_events() -> None:
    tables = r"FROM (event_logs|asset_check_executions|asset_event_tags)\b"
    assert {*files_with(tables)} == QUERIED.keys()


@pytest.mark.parametrize(
    ("rule", "home"),
    [
        (r"row_number\(\) OVER \(PARTITION BY .*check_name", "check_records"),
        (r"max\(e\.id\)", "ranges"),
    ],
)
def test_one_module_says_what_stands(rule: str, home: str) -> None:
    """A sensor's survey only leaves out transfers in which nothing can have failed."""
    assert {*files_with(rule)} - {"assets/log/attention.py"} == {f"assets/log/{home}.py"}


REPLACED = {"resources/sqlserver/connection.py: cursor._capture_diagnostics"}
"""The names of other packages that are replaced at run time; a comment there says why."""


def test_few_names_of_other_packages_are_replaced_at_run_time() -> None:
    replaced = {
        f"{name_of(path)}: {name}" for path, tree in TREES.items() for name in replaced_names(tree)
    }
    assert replaced == REPLACED and len(REPLACED) <= 3


def replaced_names(tree: ast.Module) -> set[str]:
    """Find assignments to attributes of imports, and to private attributes of other objects that no
    class of the file has."""
    nodes = [*ast.walk(tree)]
    foreign = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if not (getattr(node, "module", None) or alias.name).startswith("tableferry")
    }
    defined = {node.attr for node in nodes if isinstance(node, ast.Attribute) and of_self(node)}
    defined |= {
        node.target.id
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    replaced = set()
    for owner, attribute in assigned(nodes):
        root = owner
        while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
            root = root.func if isinstance(root, ast.Call) else root.value
        of_import = isinstance(root, ast.Name) and root.id in foreign
        # names like `_value_` belong to members of an Enum
        private = attribute.startswith("_") and not attribute.endswith("_")
        if of_import or (private and attribute not in defined):
            replaced.add(f"{ast.unparse(owner)}.{attribute}")
    return replaced


def of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def assigned(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, str]]:
    """Yield owner and name of attributes assigned to by a statement or by `setattr`."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.value, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            yield node.args[0], str(getattr(node.args[1], "value", ""))


def test_the_search_for_replaced_names_finds_them() -> None:
    text = """
import foreign.part as part
from foreign import Class, call
from tableferry.own import ours
part.name = Class.method = call.deep.name = None
setattr(Class, "other", None)
ours.name = self._x = thing.public = None
thing._private = None
"""
    assert replaced_names(ast.parse(text)) == {
        *("part.name", "Class.method", "call.deep.name", "Class.other", "thing._private")
    }


ORDER = {
    "assets": ["running", "verifying", "planning", "log", "declaring"],
    "pipelines/command": ["many", "one", "show"],
    "assets/planning": ["rows", "changes", "ranges", "columns"],
    "resources": [
        *("postgres", "sqlserver", "clickhouse", "files", "transactional", "digest", "wires"),
        *("columns", "connecting", "contract", "keys", "types"),
    ],
}
"""The folders of a room, or of a folder of it; each imports only those after it."""

MOST_IN_A_CIRCLE = 4


def imports_of(path: Path, *, types: bool = True) -> set[Path]:
    """The files of the rooms that a file imports, also inside functions.

    Args:
        path: the file.
        types: include imports for types only.
    """
    modules: set[str] = set()
    for node, for_types in imports(path):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif node.module and (types or not for_types):
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {FILE_OF[name] for name in modules & FILE_OF.keys()}


def named_modules(path: Path) -> set[Path]:
    """The files of the rooms whose names a file has in texts, for example for `import_module`."""
    names = {text.partition(":")[0] for text in texts_in(path)}
    return {FILE_OF[name] for name in names & FILE_OF.keys()}


FILE_OF = {
    ".".join(("tableferry", *path.relative_to(ROOT).with_suffix("").parts)): path for path in TEXTS
}
GRAPH = {path: imports_of(path) for path in TEXTS}
AT_RUN_TIME = {path: imports_of(path, types=False) for path in TEXTS}


def circles(graph: Mapping[Path, set[Path]]) -> list[set[str]]:
    """The largest sets of files in which each imports each, directly or not."""
    reachable = {path: reached(graph, path) for path in graph}
    sets = {
        frozenset({path, *(other for other in others if path in reachable[other])})
        for path, others in reachable.items()
        if path in others
    }
    return [{name_of(path) for path in circle} for circle in sets]


def reached(graph: Mapping[Path, set[Path]], start: Path) -> set[Path]:
    """The files that a file imports, directly or not."""
    seen: set[Path] = set()
    ahead = [*graph[start]]
    while ahead:
        path = ahead.pop()
        if path not in seen:
            seen.add(path)
            ahead += graph[path]
    return seen


def test_no_files_import_each_other_at_run_time() -> None:
    assert circles(AT_RUN_TIME) == []


def test_imports_for_types_make_at_most_one_small_circle() -> None:
    small = [circle for circle in circles(GRAPH) if len(circle) <= MOST_IN_A_CIRCLE]
    assert circles(GRAPH) == small[:1]


def test_the_search_for_circles_finds_them() -> None:
    one, two, three, four = [*TEXTS][:4]
    graph = {one: {two}, two: {one, three}, three: {four}, four: set[Path]()}
    assert circles(graph) == [{name_of(one), name_of(two)}]
    assert circles({**graph, four: {one}}) == [{name_of(path) for path in graph}]


def test_naming_a_table_imports_no_pyarrow() -> None:
    files = reached(AT_RUN_TIME, ROOT / "resources/tables.py")
    assert len(files) > 1
    assert not [path for path in files if "pyarrow" in imported(path)]


def folder_of(path: Path, room: str) -> str | None:
    """The folder of a room that contains a file; None if it is in none."""
    if not path.is_relative_to(ROOT / room):
        return None
    folder, *rest = path.relative_to(ROOT / room).parts
    return folder if rest else None


@pytest.mark.parametrize("room", ORDER)
def test_folders_import_one_way(room: str) -> None:
    order = ORDER[room]
    files = {path: folder for path in TEXTS if (folder := folder_of(path, room))}
    assert {*files.values()} == {*order}
    for path, folder in files.items():
        above = set(order[: order.index(folder)])
        wrong = {
            name_of(other)
            for other in GRAPH[path] | named_modules(path)
            if folder_of(other, room) in above
        }
        assert not wrong, f"{name_of(path)} imports {wrong}"


LOOKED_UP = {
    "assets/declaring/rules.py": "the systems that have a declared option",
    "assets/declaring/schema.py": "the same",
    "assets/declaring/sections.py": "the same",
    "assets/moved_ranges.py": "the system of recorded ranges",
    "pipelines/command/doctor.py": "all possible targets",
    "pipelines/component/connections.py": "declared connections",
    "pipelines/component/scaffolder.py": "declared connections",
    "resources/connecting/adapters.py": "the system of somebody else's resource",
    "resources/connecting/address.py": "the system of a server",
    "resources/connecting/names.py": "connections of the environment",
    "resources/connecting/retry.py": "the driver that raised an error",
    "resources/tables.py": "the system of a table",
    "resources/transactional/statements.py": "the system of statements",
}
"""The modules that look systems up by name or list them; others get them from a table or server."""


def test_few_modules_look_systems_up() -> None:
    registry = ROOT / "resources/registry.py"
    assert {name_of(path) for path in TEXTS if registry in GRAPH[path]} == LOOKED_UP.keys()


def test_no_two_test_files_have_the_same_name_on_the_servers() -> None:
    owners: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name in re.findall(r'\bown\("([^"]+)"\)', path.read_text(encoding="utf-8")):
            owners.setdefault(name, set()).add(path.name)
    assert len(owners) > 20
    assert {name: files for name, files in owners.items() if len(files) > 1} == {}
