"""`dg scaffold defs tableferry.TransfersComponent`: a component out of a source's catalog."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from tableferry.assets.declaring.dagster_rules import op_name
from tableferry.assets.planning.resolve import Servers
from tableferry.pipelines.onboarding.init import Result, identifier, init
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
      # The column that the ranges are cut by.
      key: id
      # ranges: {{rows: 250000}}
      # schedule: "0 2 * * *"
"""

OTHERS = """\
  # Of every target's asset; `transfer`, `hop` and `table` can be used in templates.
  # translation:
  #   group_name: shop
  #   owners: ["team:data"]
  #   automation_condition: "{{ dg.AutomationCondition.eager() }}"
  # The asset of this project that makes a transfer's source table.
  # upstream: {orders: raw/orders}
  # Before the names of all transfers and the keys of all assets.
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
    """What the catalog is asked for; the flags of `ferry init`."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    source: str | None = Field(default=None, alias="from")
    """Connection of the source, e.g. postgres."""
    tables: list[str] = []
    """Tables by schema.table, as 'shop.*'; without a dot, by name."""
    exclude: list[str] = []
    """Tables to leave out."""
    to: list[str] = []
    """Targets, as 'clickhouse://warehouse.{table}', in order of the hops."""
    views: bool = False
    """Take views, too."""


class TransfersScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes defs.yaml, and a commented transfer file for each table that is asked for.

    Without flags, it writes an example.
    """

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        """The flags of the command."""
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        """Write the files, or none of them.

        Raises:
            ClickException: the flags do not go together, or a server does not answer.
        """
        target = request.target_path
        folder = target.parent if request.append else target
        with TemporaryDirectory() as made:
            try:
                names = _transfer_files(
                    request.params, Path(made) / FOLDER, _shown(folder, request)
                )
            except (TableferryError, click.ClickException) as error:
                _leave_nothing(folder, request.project_root)
                raise click.ClickException(str(error)) from None
            if names:
                shutil.copytree(Path(made) / FOLDER, folder / FOLDER)
        of = _example_name(folder)
        if request.scaffold_format == "python":
            (folder / "component.py").write_text(_python(names, of), encoding="utf-8")
            return
        text = _yaml(request.type_name, names, of)
        file = target if request.append else folder / "defs.yaml"
        with file.open("a" if request.append else "w", encoding="utf-8") as out:
            out.write(f"---\n{text}" if request.append else text)


def _example_name(folder: Path) -> str:
    name = identifier(folder.name)
    try:
        return op_name(name)
    except ValueError:
        return f"{name}_table"


def _transfer_files(given: ScaffoldParams, output: Path, shown: Path) -> list[str]:
    """Write what is asked for into a folder; returns the connections that it needs.

    Args:
        given: the flags.
        output: the folder.
        shown: where it will be.
    """
    needed = {"--from": given.source, "--tables": given.tables, "--to": given.to}
    if not any([*needed.values(), given.exclude, given.views]):
        return []
    if missing := [flag for flag, value in needed.items() if not value]:
        raise click.ClickException(f"{' and '.join(missing)} should be given, too")
    result = init(
        Servers(servers()),
        str(given.source),
        given.tables,
        given.exclude,
        given.to,
        output,
        views=given.views,
    )
    if not any(one.written for one in result.declared):
        raise click.ClickException("\n".join(["there is nothing to move", *result.lines()]))
    _tell(result, output, shown)
    return sorted({str(given.source), *(text.partition("://")[0].lower() for text in given.to)})


def _shown(folder: Path, request: dg.ScaffoldRequest[ScaffoldParams]) -> Path:
    root = request.project_root
    return (folder.relative_to(root) if root and folder.is_relative_to(root) else folder) / FOLDER


def _tell(result: Result, output: Path, shown: Path) -> None:
    for line in result.lines():
        click.echo(line.replace(str(output), str(shown)))


def _leave_nothing(folder: Path, root: Path | None) -> None:
    """Remove the folder that was made for the component, as far as it is empty."""
    for one in (folder, *folder.parents):
        if one == root or one.name == "defs" or not one.is_dir() or any(one.iterdir()):
            return
        one.rmdir()


def _connections(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The fields of each connection, as templates."""
    found: dict[str, dict[str, str]] = {}
    for name in names or ("postgres", "clickhouse"):
        variable = set_variable(name)
        if variable is None and is_system(name) and system(name).by_path:
            continue  # folders need none
        variable = variable or url_variable(name)
        field = "url_file" if names_file(variable) else "url"
        found[name] = {"system": system_of(name).name, field: f"{{{{ env.{variable} }}}}"}
        if is_system(name):
            del found[name]["system"]
    return found


def _yaml(of_type: str, names: Sequence[str], name: str) -> str:
    transfers = f"  path: {FOLDER}\n" if names else EXAMPLE.format(name=name)
    lines = []
    for connection, fields in _connections(names).items():
        inside = ", ".join(f'{field}: "{value}"' for field, value in fields.items())
        plain = f'"{fields["url"]}"' if [*fields] == ["url"] else f"{{{inside}}}"
        lines.append(f"    {connection}: {plain}\n")
    return (
        f"type: {of_type}\n\nattributes:\n"
        "  # Where the servers are; looked up when one is first used.\n"
        f"  connections:\n{''.join(lines)}{transfers}{OTHERS}"
    )


def _python(names: Sequence[str], name: str) -> str:
    lines = [
        f"            {connection!r}: {fields!r},\n".replace("'", '"')
        for connection, fields in _connections(names).items()
    ]
    transfers = f'        path="{FOLDER}",\n' if names else PYTHON_EXAMPLE.format(name=name)
    return PYTHON.format(connections="".join(lines), transfers=transfers)
