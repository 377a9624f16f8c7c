"""The rooms import one way only: pipelines -> sensors -> assets -> checks -> resources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest

from tableferry.resources.contract.fields import Kind
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.registry import system
from tests.sources import imported, imports

ROOT = Path(__file__).parent.parent
ROOMS = ["pipelines", "sensors", "assets", "checks", "resources"]
LOCAL = "tableferry_local"
MODULES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
FILES = set(MODULES)
LOCAL_MODULES = sorted((ROOT / "local" / LOCAL).rglob("*.py"))


def test_imports_go_one_way() -> None:
    for path in MODULES:
        room = path.relative_to(ROOT).parts[0]
        above = imported(path) & {f"tableferry.{name}" for name in ROOMS[: ROOMS.index(room)]}
        assert not above, f"{path} imports from above: {above}"
        plugins = imported(path) & {LOCAL, "tableferry_bench"}
        assert not plugins, f"{path} imports a plugin: {plugins}"


def test_the_local_stack_stands_alone() -> None:
    for path in LOCAL_MODULES:
        product = {name for name in imported(path) if re.match(r"tableferry(_bench|\.|$)", name)}
        assert not product, f"{path} imports {product}"


def test_resources_know_no_assets_of_dagster() -> None:
    for path in sorted((ROOT / "resources").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "AssetKey" not in text and "AssetSpec" not in text, path


NAMED = re.compile(r"""["'](postgres|sqlserver|clickhouse)["']""")
MOST_NAMED = 10


def test_systems_are_named_in_their_own_folders_only() -> None:
    named = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.parent.name not in ("postgres", "sqlserver", "clickhouse")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if NAMED.search(line)
    ]
    assert len(named) <= MOST_NAMED, "\n".join(named)


MODES_DEFINED = ROOT / "resources/contract/write_modes.py"
MODE = re.compile(rf"""WriteMode|["'](?:{"|".join(WriteMode)})["']""")
MODES_NAMED = {
    "assets/declaring/manifest.py": "the default",
    "assets/log/records.py": "a state that is called so",
    "resources/files/system.py": "the one that the system has",
    "resources/contract/target.py": "the default",
}


def test_nobody_asks_for_a_write_mode_by_its_name() -> None:
    named: dict[str, list[int]] = {}
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if path == MODES_DEFINED or not MODE.search(text):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        # errors="replace", of decoding
        decoding = [n.value for n in nodes if isinstance(n, ast.keyword) and n.arg == "errors"]
        for node in nodes:
            name = isinstance(node, ast.Constant) and node.value in set(WriteMode)
            member = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "WriteMode"
            if member or (name and node not in decoding):
                named.setdefault(str(path.relative_to(ROOT)), []).append(node.lineno)
            if isinstance(node, ast.Compare):
                assert "WriteMode" not in ast.unparse(node), f"{path}:{node.lineno}"
    assert named.keys() == MODES_NAMED.keys(), named


SAME = {"system", "server", "resource", "dialect", "types", "digest", "errors"}


@pytest.mark.parametrize("name", ["postgres", "sqlserver", "clickhouse"])
def test_the_folders_of_systems_have_the_same_files(name: str) -> None:
    files = {path.stem for path in (ROOT / "resources" / name).glob("*.py")}
    own = system(name)
    assert files >= SAME
    assert ("source" in files) is (own.source is not None)
    assert ("target" in files) is (own.loader is not None)


SERVES_ONE = ("postgres", "sqlserver", "clickhouse", "files")
OF_ONE = re.compile(rf"tableferry\.resources\.({'|'.join(SERVES_ONE)})\b")


def test_what_serves_all_systems_imports_none() -> None:
    for path in MODULES:
        if path.parent.name in SERVES_ONE:
            continue
        froms = [node for node, _ in imports(path) if isinstance(node, ast.ImportFrom)]
        modules = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        named = {name for name in modules if OF_ONE.match(name)}
        assert not named, f"{path} imports {named}"


def test_the_digest_names_no_type_of_a_system() -> None:
    systems = [system(name) for name in ("postgres", "sqlserver", "clickhouse", "files")]
    declared = [type_ for one in systems for type_, _ in one.digest.CONSTANTS.values()]
    own = {type_.partition("(")[0] for type_ in declared} - set(get_args(Kind))
    assert {"real", "Float32", "String", "bigint"} <= own
    for path in sorted((ROOT / "resources/digest").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert not texts & own, path


def test_the_ledger_alone_uses_what_dagster_keeps_to_itself() -> None:
    private = re.compile(r"\bdagster(_\w+)?\._")
    found = {
        str(path.relative_to(ROOT))
        for path in MODULES
        if private.search(path.read_text(encoding="utf-8"))
    }
    assert {Path(path).parent for path in found} == {Path("assets/log")}


def test_one_module_reads_the_tables_of_events() -> None:
    tables = re.compile(r"FROM (event_logs|asset_check_executions|asset_event_tags)\b")
    found = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if tables.search(path.read_text(encoding="utf-8"))
    ]
    assert found == ["assets/log/ledger.py"]


def test_the_ledger_alone_writes_events_and_reads_them() -> None:
    meaning = re.compile(r"\.log_event\(|fetch_materializations|fetch_observations")
    found = {
        str(path.relative_to(ROOT))
        for path in MODULES
        if meaning.search(path.read_text(encoding="utf-8"))
    }
    assert {Path(path).parent for path in found} == {Path("assets/log")}


REPLACED = {"resources/sqlserver/connection.py: cursor._capture_diagnostics"}
"""Names of other packages that are replaced at run time; the place says why. At most three."""


def test_few_names_of_other_packages_are_replaced_at_run_time() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name in replaced_names(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == REPLACED and len(REPLACED) <= 3


def replaced_names(tree: ast.Module) -> set[str]:
    """What is assigned to an attribute of an import, or to a private one of an object that no class
    of the file has."""
    nodes = [*ast.walk(tree)]
    foreign = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if not (getattr(node, "module", None) or alias.name).startswith("tableferry")
    }
    own = {node.attr for node in nodes if isinstance(node, ast.Attribute) and of_self(node)}
    own |= {
        node.target.id
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    found = set()
    for owner, attribute in assigned(nodes):
        root = owner
        while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
            root = root.func if isinstance(root, ast.Call) else root.value
        of_import = isinstance(root, ast.Name) and root.id in foreign
        # `_value_` and the like are for members of an Enum
        private = attribute.startswith("_") and not attribute.endswith("_") and attribute not in own
        if of_import or private:
            found.add(f"{ast.unparse(owner)}.{attribute}")
    return found


def of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def assigned(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, str]]:
    """The attributes that are assigned to, by a statement or by `setattr`: owner and name."""
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
    "resources": [
        *("postgres", "sqlserver", "clickhouse", "files", "transactional", "digest", "wires"),
        *("columns", "ranges", "connecting", "contract", "keys", "types"),
    ],
}
"""The folders of a room: each imports those behind it only."""

MOST_IN_A_CIRCLE = 4


def imports_of(path: Path, *, types: bool = True) -> set[Path]:
    """The files of the rooms that a file imports, inside of functions too.

    Args:
        path: the file.
        types: include what it imports for types only.
    """
    modules: set[str] = set()
    for node, for_types in imports(path):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif node.module and (types or not for_types):
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {FILE_OF[name] for name in modules & FILE_OF.keys()}


def named_modules(path: Path) -> set[Path]:
    """The files of the rooms that a file names in its texts, for `import_module` and the like."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = {text.partition(":")[0] for text in texts}
    return {FILE_OF[name] for name in names & FILE_OF.keys()}


FILE_OF = {
    ".".join(("tableferry", *path.relative_to(ROOT).with_suffix("").parts)): path
    for path in MODULES
}
GRAPH = {path: imports_of(path) for path in MODULES}


def circles(graph: Mapping[Path, set[Path]]) -> list[set[str]]:
    """The largest sets of files in which each leads to each."""
    reachable = {path: reached(graph, path) for path in graph}
    found = {
        frozenset({path, *(other for other in others if path in reachable[other])})
        for path, others in reachable.items()
        if path in others
    }
    return [{str(path.relative_to(ROOT)) for path in circle} for circle in found]


def reached(graph: Mapping[Path, set[Path]], start: Path) -> set[Path]:
    """The files that a file leads to, directly or by others."""
    seen: set[Path] = set()
    ahead = [*graph[start]]
    while ahead:
        path = ahead.pop()
        if path not in seen:
            seen.add(path)
            ahead += graph[path]
    return seen


def test_no_files_import_each_other_when_they_run() -> None:
    assert circles({path: imports_of(path, types=False) for path in MODULES}) == []


def test_types_make_one_small_circle_at_most() -> None:
    found = circles(GRAPH)
    assert len(found) <= 1, found
    assert all(len(circle) <= MOST_IN_A_CIRCLE for circle in found), found


def test_the_search_for_circles_finds_them() -> None:
    one, two, three, four = MODULES[:4]
    graph = {one: {two}, two: {one, three}, three: {four}, four: set[Path]()}
    assert circles(graph) == [{str(path.relative_to(ROOT)) for path in (one, two)}]
    assert circles({**graph, four: {one}}) == [{str(p.relative_to(ROOT)) for p in MODULES[:4]}]


def folder_of(path: Path) -> str | None:
    """The folder of a room that a file is in, if it is not in the room itself."""
    room, *rest = path.relative_to(ROOT).parts
    return rest[0] if room in ORDER and len(rest) > 1 else None


@pytest.mark.parametrize("room", ORDER)
def test_folders_import_one_way(room: str) -> None:
    order = ORDER[room]
    folders = {path.parent.name for path in (ROOT / room).glob("*/*.py")}
    assert folders == set(order)
    for path in sorted((ROOT / room).glob("*/*.py")):
        above = set(order[: order.index(path.parent.name)])
        wrong = {
            str(other.relative_to(ROOT))
            for other in (GRAPH[path] | named_modules(path)) & FILES
            if other.is_relative_to(ROOT / room) and folder_of(other) in above
        }
        assert not wrong, f"{path.relative_to(ROOT)} imports from above: {wrong}"


LOOKED_UP = {
    "assets/declaring/manifest.py": "which systems have what is declared",
    "assets/declaring/rules.py": "the same",
    "assets/declaring/schema.py": "the same",
    "assets/declaring/sections.py": "the same",
    "pipelines/command/doctor.py": "all systems that rows could go to",
    "pipelines/component/connections.py": "declared connections",
    "pipelines/component/scaffolder.py": "declared connections",
    "resources/connecting/address.py": "the system of a server",
    "resources/connecting/names.py": "connections of the environment",
    "resources/connecting/retry.py": "whose driver an error is of",
    "resources/tables.py": "the system of a table",
    "resources/transactional/statements.py": "the system of statements",
}
"""Who finds a system by its name, or lists all; others have it from a table or a server."""


def test_few_modules_look_systems_up() -> None:
    registry = ROOT / "resources/registry.py"
    found = {str(path.relative_to(ROOT)) for path in MODULES if registry in GRAPH[path]}
    assert found == LOOKED_UP.keys()


def test_no_two_test_files_have_one_name_on_the_servers() -> None:
    owners: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name in re.findall(r'\bown\("([^"]+)"\)', path.read_text(encoding="utf-8")):
            owners.setdefault(name, set()).add(path.name)
    assert len(owners) > 20
    assert {name: files for name, files in owners.items() if len(files) > 1} == {}
