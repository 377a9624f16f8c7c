"""`dg scaffold defs tableferry.TransfersComponent`: writes a component from a source's catalog."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from tableferry.assets.declaring.dagster_rules import op_name
from tableferry.assets.planning.servers import Servers
from tableferry.pipelines.onboarding.init import Wish, init
from tableferry.pipelines.onboarding.proposal import Arrangement, identifier
from tableferry.pipelines.settings import servers
from tableferry.resources.connecting.names import names_file, set_variable, system_of, url_variable
from tableferry.resources.errors import TableferryError
from tableferry.resources.registry import is_system, system

FOLDER = "transfers"

EXAMPLE = """\
  # Each with the keys of a transfer file; or `path: transfers`, a folder of such files.
  transfers:
    - transfer: {name}
      source: postgres://public.{name}
      hops:
        - clickhouse://warehouse.{name}
      # The column that divides the ranges.
      key: id
      # ranges: {{rows: 250000}}
      # schedule: "0 2 * * *"
"""

OPTIONS = """\
  # Attributes of every target's asset; templates may use `transfer`, `hop` and `table`.
  # translation:
  #   group_name: shop
  #   owners: ["team:data"]
  #   automation_condition: "{{ dg.AutomationCondition.eager() }}"
  # The asset of this project that creates a transfer's source table.
  # upstream: {orders: raw/orders}
  # Source tables as assets, too, which the graph draws.
  # sources: true
  # A prefix for the names of all transfers and the keys of all assets.
  # prefix: berlin
"""

PYTHON = """\
import dagster as dg

import tableferry


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> tableferry.TransfersComponent:
    return tableferry.TransfersComponent(
        connections={{
{connections}        }},
{transfers}    )
"""

PYTHON_EXAMPLE = """\
        transfers=[
            {{
                "transfer": "{name}",
                "source": "postgres://public.{name}",
                "hops": ["clickhouse://warehouse.{name}"],
                "key": "id",
            }}
        ],
"""


class ScaffoldParams(BaseModel):
    """The flags of the command, as those of `ferry init`."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    source: str | None = Field(default=None, alias="from")
    """Connection of the source, e.g. postgres."""
    tables: list[str] = []
    """Tables by schema.table, as 'shop.*'; without a dot, by name."""
    exclude: list[str] = []
    """Tables to leave out."""
    to: list[str] = []
    """Targets, as 'clickhouse://warehouse.{table}', in order of the hops."""
    chain: bool = False
    """With several targets: each is read for the next."""
    each: bool = False
    """With several targets: a transfer per table and target."""
    views: bool = False
    """Include views."""


class TransfersScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes defs.yaml, and a commented transfer file for each selected table.

    Without flags, it writes an example.
    """

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        """Return the model of the command's flags."""
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        """Write all files, or none.

        Raises:
            ClickException: required flags are missing, or a server does not answer.
        """
        target, root = request.target_path, request.project_root
        folder = target.parent if request.append else target
        shown = folder.relative_to(root) if root and folder.is_relative_to(root) else folder
        with TemporaryDirectory() as scratch:
            output = Path(scratch) / FOLDER
            try:
                connections = _write_transfers(request.params, output, shown / FOLDER)
            except (TableferryError, click.ClickException) as error:
                _remove_empty(folder, root)
                raise click.ClickException(str(error)) from None
            if connections:
                shutil.copytree(output, folder / FOLDER)
        example = identifier(folder.name)
        try:
            op_name(example)
        except ValueError:
            example += "_table"
        if request.scaffold_format == "python":
            (folder / "component.py").write_text(_python(connections, example), encoding="utf-8")
            return
        text = _yaml(request.type_name, connections, example)
        file = target if request.append else folder / "defs.yaml"
        with file.open("a" if request.append else "w", encoding="utf-8") as out:
            out.write(f"---\n{text}" if request.append else text)


def _write_transfers(params: ScaffoldParams, output: Path, shown: Path) -> list[str]:
    """Write transfer files to a folder, which is shown as another; return their connections."""
    required = {"--from": params.source, "--tables": params.tables, "--to": params.to}
    if not any([*required.values(), params.exclude, params.views]):
        return []
    if missing := [flag for flag, value in required.items() if not value]:
        raise click.ClickException(f"{' and '.join(missing)} should be given, too")
    source = str(params.source)
    asked = params.model_dump(include={"tables", "to", "exclude", "views"})
    wish = Wish(source, arrangement=_arrangement(params), **asked)
    result = init(Servers(servers()), wish, output)
    if not any(table.written for table in result.declared):
        raise click.ClickException("\n".join(["there is nothing to move", *result.lines()]))
    for line in result.lines():
        click.echo(line.replace(str(output), str(shown)))
    return sorted({source, *(text.partition("://")[0].lower() for text in params.to)})


def _arrangement(params: ScaffoldParams) -> Arrangement | None:
    if params.chain and params.each:
        raise click.ClickException("--chain and --each are two ways; give one of them")
    return "each" if params.each else "chain" if params.chain else None


def _remove_empty(folder: Path, root: Path | None) -> None:
    """Remove the component's folder and its parents below `defs`, as far as they are empty."""
    for path in (folder, *folder.parents):
        if path == root or path.name == "defs" or not path.is_dir() or any(path.iterdir()):
            return
        path.rmdir()


def _connections(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the fields of each connection as templates; by default of those in the example."""
    connections: dict[str, dict[str, str]] = {}
    for name in names or ("postgres", "clickhouse"):
        variable = set_variable(name)
        if variable is None and is_system(name) and system(name).by_path:
            continue  # a folder needs no connection
        variable = variable or url_variable(name)
        field = "url_file" if names_file(variable) else "url"
        fields = {} if is_system(name) else {"system": system_of(name).name}
        connections[name] = {**fields, field: f"{{{{ env.{variable} }}}}"}
    return connections


def _yaml(component_type: str, names: Sequence[str], example: str) -> str:
    transfers = f"  path: {FOLDER}\n" if names else EXAMPLE.format(name=example)
    lines = []
    for connection, fields in _connections(names).items():
        pairs = ", ".join(f'{field}: "{value}"' for field, value in fields.items())
        value = f'"{fields["url"]}"' if [*fields] == ["url"] else f"{{{pairs}}}"
        lines.append(f"    {connection}: {value}\n")
    return (
        f"type: {component_type}\n\nattributes:\n"
        "  # The servers; looked up when one is first used.\n"
        f"  connections:\n{''.join(lines)}{transfers}{OPTIONS}"
    )


def _python(names: Sequence[str], example: str) -> str:
    lines = [
        f"            {connection!r}: {fields!r},\n".replace("'", '"')
        for connection, fields in _connections(names).items()
    ]
    transfers = f'        path="{FOLDER}",\n' if names else PYTHON_EXAMPLE.format(name=example)
    return PYTHON.format(connections="".join(lines), transfers=transfers)
