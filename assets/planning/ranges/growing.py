"""Tells of many transfers at once whose sources may have keys for new ranges, by few queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.ranges.boundaries import KeyStatistics, most_rows
from tableferry.assets.planning.ranges.cutting import extend_ranges
from tableferry.assets.planning.servers import Servers
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.catalog import ask_together
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.table_sql import filtered, predicate, qualified
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError
from tableferry.resources.keys.cover import lacking, to_number
from tableferry.resources.keys.range import NULL_NAME, WHOLE_NAME, KeyRange, parse_range
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column


def not_growing(
    transfers: Collection[Transfer],
    servers: Mapping[str, Servers],
    ranges: Mapping[str, Sequence[str]],
    empty: Collection[str] = (),
) -> dict[str, ConnectionFailed | None]:
    """Return the transfers whose sources certainly have no keys for which ranges are missing.

    Those whose server does not answer are returned with the error. The others may have such keys,
    or cannot be told together with others: `plan_transfer` finds out.

    Args:
        transfers: the transfers.
        servers: the servers of each transfer, by its name.
        ranges: the names of the known ranges of each transfer.
        empty: the transfers of one range that was empty: any key counts as a new one.
    """
    by_server: dict[tuple[str, str, bool], list[Transfer]] = {}
    for transfer in transfers:
        if ranges.get(transfer.transfer):
            server = transfer.source.connection, transfer.row_security, transfer.by_place
            by_server.setdefault(server, []).append(transfer)
    answers: dict[str, ConnectionFailed | None] = {}
    for (*_, by_place), here in by_server.items():
        endpoint = servers[here[0].transfer].endpoint(here[0].source)
        without = _without_new_blocks if by_place else partial(_without_new_keys, empty=empty)
        try:
            answers |= dict.fromkeys(without(endpoint, here, ranges))
        except ConnectionFailed as error:
            answers |= dict.fromkeys((transfer.transfer for transfer in here), error)
        except TableferryError:
            # each says for itself what it is about
            continue
    return answers


def has_more_rows(transfer: Transfer, key: Column, servers: Servers, most: int) -> bool:
    """Whether a source has more rows with a key than `most`; it reads at most one more."""
    system = transfer.source.system
    rows = predicate(key, KeyRange(key_kind(key, system)[0]), system)
    query = _more_than(most, transfer.source, filtered(rows, transfer.where))
    return bool(servers.endpoint(transfer.source).query(f"SELECT {query}"))


def _without_new_keys(
    endpoint: Endpoint,
    transfers: Sequence[Transfer],
    ranges: Mapping[str, Sequence[str]],
    empty: Collection[str],
) -> set[str]:
    source = source_of(endpoint.system)
    if source.file_key is not None:
        return set()
    columns = source.columns_of(endpoint, list({transfer.source for transfer in transfers}))
    names: set[str] = set()
    queries: dict[str, str] = {}
    for transfer in transfers:
        of_table = columns.get(transfer.source, ())
        key = next((column for column in of_table if column.name == transfer.key), None)
        known = ranges[transfer.transfer]
        if key is None or (key.nullable and NULL_NAME not in known):
            continue
        try:
            if lacking(known, (), of_files=False):
                continue
            if transfer.ranges.bounds is not None:
                names |= {transfer.transfer} if _covered(transfer, key, known) else set()
            elif (query := _new_rows(transfer, key, known, transfer.transfer in empty)) is None:
                names.add(transfer.transfer)
            else:
                queries[transfer.transfer] = query
        except InputError:
            # what is no range of this key is for `plan_transfer` to refuse
            continue
    grown = ask_together(endpoint, queries)
    return names | (queries.keys() - grown.keys())


def _covered(transfer: Transfer, key: Column, known: Sequence[str]) -> bool:
    """Whether the known ranges are those of declared bounds, which no new keys change."""
    kind, digits = key_kind(key, transfer.source.system)
    existing = [KeyRange.parse(name, kind, digits) for name in known]
    spec = transfer.ranges.model_dump(exclude_none=True)
    nothing = KeyStatistics(0, nullable=key.nullable)
    growth = extend_ranges(existing, nothing, spec, kind, digits)
    return not (growth.add or growth.retire)


def _new_rows(transfer: Transfer, key: Column, known: Sequence[str], empty: bool) -> str | None:
    """Write what follows SELECT in a query with a row if there are keys for new ranges.

    None if no key leads to one: texts are cut only by a number of rows.
    """
    system = transfer.source.system
    kind, digits = key_kind(key, system)
    if kind == "text" and transfer.ranges.rows is None and not empty:
        return None
    filling = kind == "text" or WHOLE_NAME in known
    most = most_rows(transfer.ranges.rows or 0) if filling and not empty else 0
    known_ranges = (KeyRange.parse(name, kind, digits) for name in reversed(known))
    top = next(range_ for range_ in known_ranges if not range_.null and range_.upper is None)
    rows = filtered(predicate(key, top, system), transfer.where)
    return _more_than(most, transfer.source, rows)


def _more_than(most: int, table: TableRef, condition: str) -> str:
    dialect = table.system.dialect
    first, last = dialect.limited(most + 1)
    rows = f"SELECT {first}1 AS ferry__x FROM {qualified(table)} WHERE {condition}{last}"
    if not most:
        return f"ferry__x FROM ({rows}) AS ferry__r"
    counted = f"(SELECT {dialect.count} AS ferry__n FROM ({rows}) AS ferry__r) AS ferry__c"
    return f"ferry__n FROM {counted} WHERE ferry__n > {most}"


def _without_new_blocks(
    endpoint: Endpoint, transfers: Sequence[Transfer], ranges: Mapping[str, Sequence[str]]
) -> set[str]:
    source = source_of(endpoint.system)
    if source.place is None:
        return set()
    kind, digits = key_kind(source.place.column, endpoint.system)
    blocks = source.blocks_of(endpoint, list({transfer.source for transfer in transfers}))
    names = set()
    for transfer in transfers:
        known = ranges[transfer.transfer]
        if lacking(known, (), of_files=False):
            continue
        read = [parse_range(name, kind, digits) for name in reversed(known)]
        top = next((range_ for range_ in read if range_ and range_.upper is None), None)
        held = blocks.get(transfer.source)
        if top is not None and held is not None:
            end = held * source.place.per_block
            names |= {transfer.transfer} if end <= to_number(top.lower or 0) else set()
    return names
