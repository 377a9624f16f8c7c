"""The Dagster component for transfers in any project."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from re import ASCII
from re import sub as substituted
from typing import Annotated, Any

import dagster as dg
from dagster.components.resolved.core_models import OpSpec
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import Field, PrivateAttr

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import op_name
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.sections import HopSpec
from tableferry.assets.declaring.yaml_lines import YamlFile
from tableferry.assets.planning.servers import Servers, connections_of
from tableferry.assets.transfer import (
    Origin,
    move_ranges,
    partitions_of,
    target_asset,
    transfer_assets,
)
from tableferry.pipelines.certifying.evidence import of_dagster
from tableferry.pipelines.component.connections import (
    TransferItem,
    TransferSchema,
    declared_transfers,
    endpoints,
    lazily,
    listed_transfers,
)
from tableferry.pipelines.component.scaffolder import TransfersScaffolder
from tableferry.pipelines.definitions import transfer_definitions
from tableferry.pipelines.settings import server
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef
from tableferry.resources.words import those_there
from tableferry.sensors.alerts import alert_sensors
from tableferry.sensors.reaper import reaper_sensor
from tableferry.sensors.sending import require_valid_variables


@dataclass(frozen=True)
class HopOfTransfer:
    """The data of a translation: a hop and its transfer."""

    transfer: Transfer
    hop: HopSpec


def _connections(context: dg.ResolutionContext, value: Any) -> Any:
    return lazily(value, lambda text: context.resolve_value(text, as_type=object))


GUIDE = "https://github.com/tableferry/tableferry/blob/main/docs/in-your-project.md"

TRANSLATED = TranslationFnResolver[HopOfTransfer](
    lambda data: {"transfer": data.transfer, "hop": data.hop, "table": data.hop.to}
)


@dg.scaffold_with(TransfersScaffolder)
class TransfersComponent(dg.Component, dg.Model, dg.Resolvable):
    """Move tables between PostgreSQL, SQL Server and ClickHouse, key range by key range.

    Each target of a transfer is an asset, partitioned by key ranges, with checks that compare every
    range with its source. To create one, use

    ``dg scaffold defs tableferry.TransfersComponent shop``

    and see https://github.com/tableferry/tableferry/blob/main/docs/in-your-project.md. Loading the
    definitions queries no server, so there is no state to refresh: columns are read when a run is
    planned, and ranges are dynamic partitions, which a sensor or the first run adds.

    Subclasses may override `get_asset_spec`, `get_upstream_key` and `execute`.
    """

    transfers: Annotated[
        Sequence[TransferItem],
        dg.Resolver(
            listed_transfers,
            model_field_type=list[Annotated[dict[str, Any], TransferSchema()]],
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
            description="A folder of transfer files, relative to defs.yaml.",
            examples=["transfers"],
        ),
    ] = None
    connections: Annotated[
        Mapping[str, Any],
        dg.Resolver(
            _connections,
            model_field_type=dict[str, Any],
            description="Servers by the names that tables begin with: a URL, or url, url_file, "
            "host, port, user, password, database, and `system` if the name does not tell it. "
            "Other servers are taken from the environment, e.g. TABLEFERRY_POSTGRES_URL.",
            examples=[{"postgres": "{{ env.TABLEFERRY_POSTGRES_URL }}"}],
            inject_before_resolve=False,
        ),
    ] = Field(default_factory=dict)
    prefix: Annotated[
        str | None,
        dg.Resolver.default(
            description="A prefix for the names of transfers and the asset keys of tables, for "
            "components with the same tables on other servers.",
            examples=["berlin"],
        ),
    ] = None
    upstream: Annotated[
        Mapping[str, str],
        dg.Resolver.default(
            model_field_type=dict[str, str],
            description="The asset of the project that creates each transfer's source table.",
            examples=[{"orders": "raw/orders"}],
        ),
    ] = Field(default_factory=dict)
    sources: Annotated[
        bool,
        dg.Resolver.default(
            description="Whether the source tables are assets, too, which Dagster's graph draws; "
            "not those that `upstream` names. No other asset of the project may be one of them.",
            examples=[True],
        ),
    ] = False
    translation: Annotated[TranslationFn[HopOfTransfer] | None, TRANSLATED] = None
    op: Annotated[
        OpSpec | None,
        dg.Resolver.default(
            description="What is otherwise of each transfer's op: tags, pool (by default the "
            "transfer's name), backfill_policy, description, and of a single transfer the name.",
            examples=[{"tags": {"dagster/concurrency_key": "erp"}, "pool": "erp"}],
        ),
    ] = None

    _claims: dict[str, str] = PrivateAttr(default_factory=dict)
    """The names and assets that no other component may have, each with this component's folder."""

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return what `dg` shows of the component beside its schema."""
        return dg.ComponentTypeSpec(
            owners=["team:tableferry"],
            tags=["elt", "replication", "data-quality"],
            metadata={"documentation": GUIDE},
        )

    def get_asset_spec(self, transfer: Transfer, hop: HopSpec) -> dg.AssetSpec:
        """Return the asset of a hop's target; subclasses may override this.

        Everything may be changed except the partitions, which are the transfer's key ranges.

        Args:
            transfer: the transfer, with the asset keys that earlier hops were given.
            hop: one of its hops.
        """
        spec = target_asset(transfer, hop)
        if self.translation is None:
            return spec
        return self.translation(spec, HopOfTransfer(transfer, hop))

    def get_upstream_key(self, transfer: Transfer) -> dg.AssetKey | None:
        """Return the asset that creates a transfer's source table; subclasses may override this.

        None stands for the key made of connection, schema and table.
        """
        key = self.upstream.get(transfer.transfer)
        return None if key is None else dg.AssetKey.from_user_string(key)

    def execute(
        self, context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers
    ) -> Iterable[Any]:
        """Move a run's ranges of a transfer; subclasses may override this.

        Args:
            context: the run's context, with the selected ranges and hops.
            transfer: the declaration.
            servers: the servers of its tables.

        Returns:
            Further events for the op to yield; each range is recorded as it commits.

        Raises:
            Failure: a range or a check has failed, or the run could not begin.
        """
        move_ranges(context, transfer, servers)
        return ()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets, checks, schedules and sensors of the transfers.

        Raises:
            InputError: a declaration is invalid; names its file, line, transfer and field.
        """
        servers = endpoints(self.connections)
        systems = {name: endpoint.system_name for name, endpoint in servers.items()}
        declared = declared_transfers(self.transfers, _folder(context), self.path, systems)
        if unknown := [name for name in self.upstream if name not in declared.transfers]:
            raise InputError(
                f"upstream: there is no transfer {unknown[0]!r}; "
                f"{those_there(unknown[0], declared.transfers, 'transfer')}"
            )
        needed = {
            connection
            for transfer in declared.transfers.values()
            for connection in connections_of(transfer)
        }
        from_environment = {name: server(name) for name in sorted(needed - set(servers))}
        bound = Servers({**from_environment, **servers})
        require_valid_variables(sends=True)
        resolved = [
            self._resolve_names(transfer, declared.files.get(name))
            for name, transfer in declared.transfers.items()
        ]
        transfers = {transfer.transfer: transfer for transfer, _ in resolved}
        self._require_unique(context, transfers.values())
        op = self._of_op(len(transfers))
        assets = {
            item.transfer: transfer_assets(
                item, bound=bound, specs=specs, body=self._body(item), op=op | of_dagster(item)
            )
            for item, specs in resolved
        }
        origins = {
            item.transfer: Origin(declared.files[name])
            for name, (item, _) in zip(declared.transfers, resolved, strict=True)
            if name in declared.files
        }
        sources = [
            item.transfer
            for before, (item, _) in zip(declared.transfers.values(), resolved, strict=True)
            if self.sources and self.get_upstream_key(before) is None
        ]
        prefix = _sensor_prefix(context)
        definitions = transfer_definitions(
            transfers,
            assets,
            origins=origins,
            bound=bound,
            sources=sources,
            prefix=prefix,
            specs={item.transfer: specs for item, specs in resolved},
        )
        sensors = [
            reaper_sensor(f"{prefix}reaper"),
            *alert_sensors(prefix, transfers.values(), bound),
        ]
        return dg.Definitions.merge(definitions, dg.Definitions(sensors=sensors))

    def _require_unique(
        self, context: dg.ComponentLoadContext, transfers: Iterable[Transfer]
    ) -> None:
        """Refuse names and assets that another component of the project has."""
        claims = [
            claim
            for transfer in transfers
            for claim in (
                f"transfer {transfer.transfer!r}",
                *(f"the asset {asset_key(hop.to).to_user_string()}" for hop in transfer.hops),
            )
        ]
        self._claims = dict.fromkeys(claims, str(_folder(context)))
        if repeated := [claim for claim in self._claims if claims.count(claim) > 1]:
            raise InputError(
                f"{_folder(context)}: {repeated[0]} would be made twice: each hop needs a key of "
                'its own, as `key: "{{ transfer.transfer }}/{{ hop.to.system }}"`'
            )
        path = context.component_path
        if path.file_path == context.defs_module_path and path.instance_key is None:
            return  # a test's component, which is in no project
        for other in context.component_tree.get_all_components(TransfersComponent):
            if other is self:
                continue
            if shared := [claim for claim in self._claims if claim in other._claims]:
                raise InputError(
                    f"{self._claims[shared[0]]}: {shared[0]} is also in "
                    f"{other._claims[shared[0]]}: give one of the two components a prefix"
                )

    def _of_op(self, transfers: int) -> dict[str, Any]:
        """What is declared of the op of each of so many transfers, for `transfer_assets`."""
        if self.op is None:
            return {}
        if self.op.name and transfers > 1:
            raise InputError(
                f"op: name: {transfers} transfers have an op each, with the transfer's name: leave "
                "it out"
            )
        declared = {
            "name": self.op.name,
            "description": self.op.description,
            "op_tags": self.op.tags,
            "pool": self.op.pool,
            "backfill_policy": self.op.backfill_policy,
        }
        return {name: value for name, value in declared.items() if value is not None}

    def _body(self, transfer: Transfer) -> Any:
        def body(context: dg.AssetExecutionContext, servers: Servers) -> Iterator[Any]:
            yield from self.execute(context, transfer, servers) or ()

        return body

    def _resolve_names(
        self, declared: Transfer, file: YamlFile | None
    ) -> tuple[Transfer, list[dg.AssetSpec]]:
        """Return a transfer with the names and keys that this project gives it, and its assets."""
        upstream = self.get_upstream_key(declared)
        source = self._prefixed(declared.source)
        if upstream is not None:
            source = replace(source, asset=tuple(upstream.path))
        hops = [hop.model_copy(update={"to": self._prefixed(hop.to)}) for hop in declared.hops]
        name = self._prefixed_name(declared.transfer)
        transfer = declared.model_copy(update={"transfer": name, "source": source, "hops": hops})
        specs: list[dg.AssetSpec] = []
        for index, hop in enumerate(hops):
            spec = self.get_asset_spec(transfer, hop)
            if spec.partitions_def not in (None, partitions_of(transfer)):
                raise InputError(
                    f"{declared.transfer}: the asset {spec.key.to_user_string()} is partitioned "
                    "by its key ranges, and by nothing else: leave partitions_def out"
                )
            spec = spec.replace_attributes(partitions_def=partitions_of(transfer))
            references = Origin(file).metadata("hops", index) if file else {}
            specs.append(spec.merge_attributes(metadata=references))
            to = replace(hop.to, asset=tuple(spec.key.path))
            hops = [*hops[:index], hop.model_copy(update={"to": to}), *hops[index + 1 :]]
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


def _folder(context: dg.ComponentLoadContext) -> Path:
    return context.path.parent if context.path.is_file() else context.path


def _sensor_prefix(context: dg.ComponentLoadContext) -> str:
    """Return the prefix of the component's sensors: its path below the project's `defs`."""
    path = context.component_path
    parts: list[str] = []
    if path.file_path.is_relative_to(context.defs_module_path):
        parts += path.file_path.relative_to(context.defs_module_path).parts
    # leave out the defaults: the first component of a defs.yaml, load() of a component.py
    if parts and parts[-1].endswith(".py"):
        parts[-1:] = [] if parts[-1] == "component.py" else [parts[-1].removesuffix(".py")]
    if path.instance_key not in (None, 0, "load"):
        parts.append(str(path.instance_key))
    return "".join(f"{substituted(r'[^A-Za-z0-9]+', '_', part, flags=ASCII)}_" for part in parts)
