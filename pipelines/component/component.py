"""Transfers as a component of any Dagster project."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from re import ASCII
from re import sub as substituted
from typing import Annotated, Any

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import Field, PrivateAttr, ValidationError

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import op_name
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.sections import CONNECTIONS, HopSpec
from tableferry.assets.declaring.transfer_files import (
    TransferFolder,
    load_transfers,
    transfers_in,
)
from tableferry.assets.declaring.yaml_lines import Unreadable, YamlFile
from tableferry.assets.planning.resolve import Servers, connections_of
from tableferry.assets.transfer import (
    Origin,
    move_ranges,
    partitions_of,
    target_asset,
    transfer_assets,
)
from tableferry.pipelines.component.connections import (
    endpoints,
    env_names,
    lazily,
    systems_of,
    templates_in,
)
from tableferry.pipelines.component.scaffolder import TransfersScaffolder
from tableferry.pipelines.definitions import transfer_definitions
from tableferry.pipelines.settings import server
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef
from tableferry.sensors.alerts import alert_sensors
from tableferry.sensors.first_ranges import first_ranges_sensor
from tableferry.sensors.reaper import reaper_sensor


@dataclass(frozen=True)
class HopOfTransfer:
    """What a translation is asked about."""

    transfer: Transfer
    hop: HopSpec


def _connections(context: dg.ResolutionContext, given: Any) -> Any:
    return lazily(given, lambda text: context.resolve_value(text, as_type=object))


def _transfers(context: dg.ResolutionContext, given: Any) -> Any:
    """The list with its lines where it stands in a file; what Python code gave otherwise.

    What is wrong with it is an item: an error that is raised here would be shown with a traceback.
    """
    tree = context.source_position_tree

    def render(text: str) -> Any:
        if named := env_names(text):
            # as the transfer files have it, where a secret is refused
            raise InputError(f"transfers: {text}: write ${{{named[0]}}} for what a variable holds")
        return context.resolve_value(text, as_type=object)

    try:
        if tree is None or not Path(tree.position.filename).is_file():
            return [templates_in(one, render) for one in given]
        path, start = Path(tree.position.filename), tree.position.start.line
        parts = YamlFile.listed(path, start, ("attributes", "transfers"))
        return [replace(part, data=templates_in(part.data, render)) for part in parts]
    except (Unreadable, InputError) as error:
        return [error]


TRANSLATED = TranslationFnResolver[HopOfTransfer](
    lambda data: {"transfer": data.transfer, "hop": data.hop, "table": data.hop.to}
)


@dg.scaffold_with(TransfersScaffolder)
class TransfersComponent(dg.Component, dg.Model, dg.Resolvable):
    """Move tables between PostgreSQL, SQL Server and ClickHouse, key range by key range.

    Each target of a transfer is an asset, partitioned by key ranges, with checks that compare every
    range with its source. Write it by

    ``dg scaffold defs tableferry.TransfersComponent shop``

    and see https://github.com/tableferry/tableferry/blob/main/docs/in-your-project.md. No server is
    asked when the definitions load, so that there is no state to refresh: columns are read when a
    run plans, and ranges are dynamic partitions, which a sensor or the first run adds.

    A subclass may override `get_asset_spec`, `get_upstream_key` and `execute`.
    """

    transfers: Annotated[
        Sequence[Any],
        dg.Resolver(
            _transfers,
            model_field_type=list[dict[str, Any]],
            description="Transfers, each with the keys of a transfer file.",
            examples=[
                [
                    {
                        "transfer": "orders",
                        "source": "postgres://shop.orders",
                        "hops": ["clickhouse://warehouse.orders"],
                        "key": "id",
                    }
                ]
            ],
        ),
    ] = ()
    path: Annotated[
        str | None,
        dg.Resolver.default(
            description="A folder of transfer files, from where defs.yaml is.",
            examples=["transfers"],
        ),
    ] = None
    connections: Annotated[
        Mapping[str, Any],
        dg.Resolver(
            _connections,
            model_field_type=dict[str, Any],
            description="Servers by the names that tables begin with: a URL, or url, url_file, "
            "host, port, user, password, database, and `system` where the name does not say it. "
            "What is not named here is taken from the environment, as TABLEFERRY_POSTGRES_URL.",
            examples=[{"postgres": "{{ env.TABLEFERRY_POSTGRES_URL }}"}],
            inject_before_resolve=False,
        ),
    ] = Field(default_factory=dict)
    prefix: Annotated[
        str | None,
        dg.Resolver.default(
            description="Stands before the names of the transfers and the keys of the tables' "
            "assets, where another component has the same ones on other servers.",
            examples=["berlin"],
        ),
    ] = None
    upstream: Annotated[
        Mapping[str, str],
        dg.Resolver.default(
            model_field_type=dict[str, str],
            description="By transfer, the asset of the project that makes its source table.",
            examples=[{"orders": "raw/orders"}],
        ),
    ] = Field(default_factory=dict)
    translation: Annotated[TranslationFn[HopOfTransfer] | None, TRANSLATED] = None

    _claims: dict[str, str] = PrivateAttr(default_factory=dict)
    """What no other component may have, once its definitions are built; and where it is."""

    def get_asset_spec(self, transfer: Transfer, hop: HopSpec) -> dg.AssetSpec:
        """The asset of a hop's target, for a subclass to override.

        All of it may be changed but the partitions, which are the transfer's key ranges.

        Args:
            transfer: as it is declared; with the keys that the hops before this one were given.
            hop: one of its hops.
        """
        spec = target_asset(transfer, hop)
        if self.translation is None:
            return spec
        return self.translation(spec, HopOfTransfer(transfer, hop))

    def get_upstream_key(self, transfer: Transfer) -> dg.AssetKey | None:
        """The asset that makes a transfer's source table, for a subclass to override.

        None means that the table has the asset key of its name: connection, schema, table.
        """
        named = self.upstream.get(transfer.transfer)
        return None if named is None else dg.AssetKey.from_user_string(named)

    def execute(
        self, context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers
    ) -> Iterable[Any]:
        """Move a run's ranges of a transfer, for a subclass to override.

        Args:
            context: of the run; it says which ranges and hops are selected.
            transfer: the declaration.
            servers: where its tables are.

        Returns:
            What the op yields besides; nothing, because each range is recorded as it commits.

        Raises:
            Failure: a range or a check has failed, or the run could not begin.
        """
        move_ranges(context, transfer, servers)
        return ()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The assets, checks, jobs, schedules and sensors of the transfers.

        Raises:
            InputError: names the file, line, transfer and field that are wrong.
        """
        servers = endpoints(self.connections)
        declared = self._declared(context, systems_of(servers))
        bound = Servers({**_of_environment(declared.transfers.values(), servers), **servers})
        named = [
            self._named(one, declared.files.get(name)) for name, one in declared.transfers.items()
        ]
        transfers = {transfer.transfer: transfer for transfer, _ in named}
        self._require_own_names(context, transfers.values())
        assets = {
            one.transfer: transfer_assets(one, bound=bound, specs=specs, body=self._body(one))
            for one, specs in named
        }
        found = transfer_definitions(transfers, assets, bound=bound, sources=False)
        name = _name(context)
        around = [
            first_ranges_sensor(transfers, f"{name}first_ranges", bound),
            reaper_sensor(f"{name}reaper"),
            *alert_sensors(name, transfers.values(), bound),
        ]
        return dg.Definitions.merge(found, dg.Definitions(sensors=around))

    def _require_own_names(
        self, context: dg.ComponentLoadContext, transfers: Iterable[Transfer]
    ) -> None:
        """Refuse what another component of the project is called or makes."""
        claims = [
            claim
            for one in transfers
            for claim in (
                f"transfer {one.transfer!r}",
                *(f"the asset {asset_key(hop.to).to_user_string()}" for hop in one.hops),
            )
        ]
        self._claims = dict.fromkeys(claims, str(_folder(context)))
        if twice := [one for one in self._claims if claims.count(one) > 1]:
            raise InputError(
                f"{_folder(context)}: {twice[0]} would be made twice: each hop needs a key of its "
                'own, as `key: "{{ transfer.transfer }}/{{ hop.to.system }}"`'
            )
        place = context.component_path
        if place.file_path == context.defs_module_path and place.instance_key is None:
            return  # of a test: it stands in no project
        for other in context.component_tree.get_all_components(TransfersComponent):
            both = [] if other is self else [one for one in self._claims if one in other._claims]
            if both:
                raise InputError(
                    f"{self._claims[both[0]]}: {both[0]} is also in {other._claims[both[0]]}: "
                    "give one of the two components a prefix"
                )

    def _body(self, transfer: Transfer) -> Any:
        def body(context: dg.AssetExecutionContext, servers: Servers) -> Iterator[Any]:
            yield from self.execute(context, transfer, servers) or ()

        return body

    def _declared(
        self, context: dg.ComponentLoadContext, connections: Mapping[str, str]
    ) -> TransferFolder:
        """The transfers of the folder and those of the component itself."""
        wrong = [one for one in self.transfers if isinstance(one, Unreadable | InputError)]
        if wrong:
            raise InputError("\n".join(map(str, wrong)))
        parts = [one for one in self.transfers if isinstance(one, YamlFile)]
        here = _folder(context)
        folders = [transfers_in(here, parts, connections)]
        if self.path is not None:
            if not (here / self.path).is_dir():
                raise InputError(f"path: {here / self.path} should be a folder of transfer files")
            folders.append(load_transfers(here / self.path, connections))
        if invalid := [one for folder in folders for one in folder.invalid]:
            raise InputError("\n".join(map(str, invalid)))
        of_python = [
            _transfer(number, one, connections)
            for number, one in enumerate(self.transfers)
            if not isinstance(one, YamlFile)
        ]
        of_files = [one for folder in folders for one in folder.transfers.values()]
        found = TransferFolder.of([*of_python, *of_files])
        if not found.transfers:
            raise InputError(f"{here}: there are no transfers: give transfers, or path")
        if unknown := [one for one in self.upstream if one not in found.transfers]:
            raise InputError(
                f"upstream: there is no transfer {unknown[0]!r}; "
                f"there are {', '.join(found.transfers)}"
            )
        files = {name: file for folder in folders for name, file in folder.files.items()}
        return replace(found, files=files)

    def _named(self, given: Transfer, file: YamlFile | None) -> tuple[Transfer, list[dg.AssetSpec]]:
        """A transfer with the names and keys that this project gives it, and its assets."""
        upstream = self.get_upstream_key(given)
        tables = [given.source, *(hop.to for hop in given.hops)]
        tables = [self._prefixed(table) for table in tables]
        if upstream is not None:
            tables[0] = replace(tables[0], asset=tuple(upstream.path))
        transfer = given.model_copy(
            update={
                "transfer": self._prefixed_name(given.transfer),
                "source": tables[0],
                "hops": [
                    hop.model_copy(update={"to": to})
                    for hop, to in zip(given.hops, tables[1:], strict=True)
                ],
            }
        )
        specs: list[dg.AssetSpec] = []
        for number, hop in enumerate(transfer.hops):
            spec = self.get_asset_spec(transfer, hop)
            if spec.partitions_def not in (None, partitions_of(transfer)):
                raise InputError(
                    f"{given.transfer}: the asset {spec.key.to_user_string()} is partitioned by "
                    "its key ranges, and by nothing else: leave partitions_def out"
                )
            spec = spec.replace_attributes(partitions_def=partitions_of(transfer))
            place = Origin(file).metadata("hops", number) if file else {}
            specs.append(spec.merge_attributes(metadata=place))
            hops = list(transfer.hops)
            to = replace(hop.to, asset=tuple(spec.key.path))
            hops[number] = hop.model_copy(update={"to": to})
            transfer = transfer.model_copy(update={"hops": hops})
        return transfer, specs

    def _prefixed(self, table: TableRef) -> TableRef:
        if not self.prefix:
            return table
        return replace(table, asset=(self.prefix, *asset_key(table).path))

    def _prefixed_name(self, name: str) -> str:
        if not self.prefix:
            return name
        try:
            return op_name(f"{self.prefix}_{name}")
        except ValueError as error:
            raise InputError(f"prefix: {self.prefix!r}: {self.prefix}_{name} {error}") from None


def _transfer(number: int, given: Any, connections: Mapping[str, str]) -> Transfer:
    """A transfer that Python code gave, itself or what it says."""
    if isinstance(given, Transfer):
        return given
    try:
        return Transfer.model_validate(given, context={CONNECTIONS: connections})
    except ValidationError as error:
        named = given.get("transfer") if isinstance(given, Mapping) else None
        where = f"transfers.{number}" + (f" ({named})" if named else "")
        problems = [
            f"{where}: {'.'.join(map(str, detail['loc']))}: "
            f"{detail['msg'].removeprefix('Value error, ')}"
            for detail in error.errors(include_url=False)
        ]
        raise InputError("\n".join(problems)) from None


def _of_environment(
    transfers: Iterable[Transfer], named: Mapping[str, Endpoint]
) -> dict[str, Endpoint]:
    """The servers that the environment names, of the connections that nobody else does."""
    needed = {name for transfer in transfers for name in connections_of(transfer)}
    return {name: server(name) for name in sorted(needed - set(named))}


def _folder(context: dg.ComponentLoadContext) -> Path:
    return context.path.parent if context.path.is_file() else context.path


def _name(context: dg.ComponentLoadContext) -> str:
    """What the component's own sensors begin with: where it is, below the project's `defs`."""
    place = context.component_path
    parts: list[str] = []
    if place.file_path.is_relative_to(context.defs_module_path):
        parts += place.file_path.relative_to(context.defs_module_path).parts
    # what is usual says nothing: the first of a defs.yaml, and load() of a component.py
    if parts and parts[-1].endswith(".py"):
        parts[-1:] = [] if parts[-1] == "component.py" else [parts[-1].removesuffix(".py")]
    if place.instance_key not in (None, 0, "load"):
        parts.append(str(place.instance_key))
    return "".join(f"{substituted(r'[^A-Za-z0-9]+', '_', part, flags=ASCII)}_" for part in parts)
