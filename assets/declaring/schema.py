"""The JSON Schema of transfer files and their defaults, out of the models, for editors."""

from __future__ import annotations

from typing import Any

from tableferry.assets.declaring.manifest import CHECKS, Transfer
from tableferry.assets.declaring.transfer_files import NEVER_USUAL
from tableferry.resources.contract.source import source_of
from tableferry.resources.registry import systems

DIALECT = "https://json-schema.org/draft/2020-12/schema"

VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-.*)?\}"}
"""A value of the environment in the place of another."""

COLUMN = {"$ref": "#/$defs/ColumnSpec"}


def transfer_schema(*, defaults: bool = False) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a transfer file.

    Args:
        defaults: that of `defaults.yaml` instead, in which nothing is required.
    """
    schema = Transfer.model_json_schema()
    fields = schema["properties"]
    del fields["only"]  # what `columns` as a list amounts to
    listed = {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": COLUMN}]}
    columns = fields["columns"]
    columns["anyOf"] = [
        {"type": columns.pop("type"), "additionalProperties": columns.pop("additionalProperties")},
        {"type": "array", "items": listed},
    ]
    fields["checks"]["propertyNames"] = {"enum": sorted(CHECKS)}
    # what comes in files of its own needs no key, nor what is cut by where its rows are stored
    schema["if"] = {
        "properties": {
            "source": {"pattern": f"^({_keyed()})://"},
            "ranges": {"not": {"required": ["by"]}},
        }
    }
    schema["then"] = {"required": ["key"]}
    title = "A transfer of Tableferry"
    if defaults:
        title = "What the transfers of a folder have in common"
        for name in ("required", "if", "then"):
            del schema[name]
        for name in NEVER_USUAL:
            del fields[name]
    parts = {"title": title, "description": "See docs/reference.md for each key."}
    return {"$schema": DIALECT, **_with_variables({**schema, **parts})}


def _keyed() -> str:
    found = [one.name for one in systems() if one.source is not None and not source_of(one).own_key]
    return "|".join(sorted(found))


def _with_variables(schema: Any) -> Any:
    """A schema whose numbers, booleans and choices may be variables of the environment, too."""
    if isinstance(schema, list):
        return [_with_variables(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: value if name in ("default", "propertyNames") else _with_variables(value)
        for name, value in schema.items()
    }
    if "enum" in found or "const" in found or found.get("type") in ("integer", "boolean"):
        about = {
            name: found.pop(name) for name in ("title", "description", "default") if name in found
        }
        return {"anyOf": [found, VARIABLE], **about}
    return found
