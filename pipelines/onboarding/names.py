"""Names of transfers and targets, which `ferry init` and `tables:` make from those of sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from re import ASCII, sub
from typing import Literal

from tableferry.assets.declaring.dagster_rules import op_name
from tableferry.assets.declaring.many_tables import unknown_placeholder
from tableferry.assets.declaring.transfer_files import DEFAULTS
from tableferry.resources.connecting.names import table_of
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef

Arrangement = Literal["chain", "each"]
"""Several targets are reached one from the other, or each from the source."""

OURS = "__ferry_"
"""The prefix of Tableferry's own tables."""


def arrangements(connection: str, to: Sequence[str]) -> str:
    """Describe the ways to reach several targets, each with its option."""
    names = [text.partition("://")[0].lower() for text in to]
    chain = " -> ".join([connection, *names])
    each = ", ".join(f"{connection} -> {name}" for name in names)
    return (
        f"--chain, from one to the next ({chain}: what the first target cannot hold as it is, such "
        f"as a list, reaches the others as a text), or --each, a transfer per target ({each})"
    )


def suffix_of(target: TableRef, templates: Sequence[TableRef]) -> str:
    """What tells the transfer to one of several targets of a table from the others, by its name."""
    same = sum(template.connection == target.connection for template in templates)
    return f"_{target.connection}" + (f"_{target.schema}_{target.name}" if same > 1 else "")


def template_of(text: str) -> TableRef:
    if problem := unknown_placeholder(text):
        raise InputError(f"--to {text!r}: {problem}")
    target = table_of(text)
    loader_of(target.system)
    return target


def require_distinct(
    hops: Mapping[TableRef, Sequence[TableRef]],
) -> list[tuple[TableRef, str]]:
    """Find the tables whose targets another one has but for case, each with the reason.

    Raises:
        InputError: tables have the very same target.
    """
    claimed: dict[tuple[str, ...], tuple[TableRef, TableRef]] = {}
    unfit: dict[TableRef, str] = {}
    for table, targets in hops.items():
        for target in targets:
            folded = target.system.dialect.folded
            key = (target.connection, folded(target.schema), folded(target.name))
            other, theirs = claimed.setdefault(key, (table, target))
            if other == table:
                continue
            if theirs == target:
                raise InputError(
                    f"{other} and {table} would both go to {target}; "
                    "put {table} or {schema}_{table} into its name, or exclude one of them"
                )
            unfit[table] = (
                f"{target.system} would not tell its target {target} from that of {other}; write "
                "a file for it with another target"
            )
    return list(unfit.items())


def free_name(table: TableRef, plain: str, longer: str, taken: set[str]) -> str:
    """Choose a name for the transfer of a table, and take it.

    Args:
        table: the table.
        plain: the name, if it is free.
        longer: the name otherwise, with a number if need be.
        taken: the names that are not free, folded.
    """
    longer = identifier(longer)
    for name in (identifier(plain), longer, *(f"{longer}_{number}" for number in range(2, 1000))):
        if name.casefold() not in taken and is_valid_name(name):
            taken.add(name.casefold())
            return name
    raise InputError(f"{table}: there is no name left for its transfer")


def identifier(text: str) -> str:
    """Turn a text into a valid name of a transfer."""
    name = sub(r"\W+", "_", text, flags=ASCII).strip("_") or "table"
    return f"t_{name}" if name[0].isdigit() else name


def is_valid_name(name: str) -> bool:
    if f"{name}.yaml".casefold() == DEFAULTS:
        return False
    try:
        op_name(name)
    except ValueError:
        return False
    return True
