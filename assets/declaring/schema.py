"""The JSON Schema of transfer files and their defaults, for editors, made from the models."""

from __future__ import annotations

from typing import Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.rules import CHECKS
from tableferry.assets.declaring.transfer_files import IDENTIFYING
from tableferry.resources.contract.source import source_of
from tableferry.resources.registry import systems

DIALECT = "https://json-schema.org/draft/2020-12/schema"

VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-.*)?\}"}
"""An environment variable in place of a value."""

TEMPLATE = r"\{\{"
"""What a template of Dagster's begins with."""

COLUMN = {"$ref": "#/$defs/ColumnSpec"}


def transfer_schema(*, defaults: bool = False) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a transfer file.

    Args:
        defaults: return that of `defaults.yaml` instead, in which nothing is required.
    """
    schema = _with_text(_transfer_schema(defaults), VARIABLE, ("integer", "boolean"))
    return {"$schema": DIALECT, **schema}


def _transfer_schema(defaults: bool) -> dict[str, Any]:
    """Return the schema without variables in the places of values."""
    schema = Transfer.model_json_schema()
    fields = schema["properties"]
    del fields["only"]  # the result of `columns` as a list
    listed = {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": COLUMN}]}
    columns = fields["columns"]
    columns["anyOf"] = [
        {"type": columns.pop("type"), "additionalProperties": columns.pop("additionalProperties")},
        {"type": "array", "items": listed},
    ]
    fields["checks"]["propertyNames"] = {"enum": sorted(CHECKS)}
    # neither files nor tables that are cut by where their rows are stored need a key
    keyed = sorted(each.name for each in systems() if each.source and not source_of(each).file_key)
    schema["if"] = {
        "properties": {
            "source": {"pattern": f"^({'|'.join(keyed)})://"},
            "ranges": {"not": {"required": ["by"]}},
        }
    }
    schema["then"] = {"required": ["key"]}
    title = "A transfer of Tableferry"
    if defaults:
        title = "What the transfers of a folder have in common"
        for name in ("required", "if", "then"):
            del schema[name]
        for name in IDENTIFYING:
            del fields[name]
    parts = {"title": title, "description": "See docs/reference.md for each key."}
    return {**schema, **parts}


def embedded_schema() -> dict[str, Any]:
    """Return the JSON Schema of a transfer that is a part of a component's defs.yaml.

    Dagster's templates may stand for any value. The schema refers to nothing, as a reference would
    lead into the document around it.
    """
    text = {"type": "string", "pattern": f"{VARIABLE['pattern']}|{TEMPLATE}"}
    types = ("integer", "boolean", "array", "object")
    schema = {
        name: _with_text(value, text, types) for name, value in _transfer_schema(False).items()
    }
    return _inlined(schema, schema.pop("$defs"))


def _inlined(schema: Any, parts: dict[str, Any]) -> Any:
    """Put the parts that a schema refers to in the places of the references."""
    if isinstance(schema, list):
        return [_inlined(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: _inlined(value, parts) for name, value in schema.items()}
    if reference := result.pop("$ref", None):
        return {**_inlined(parts[reference.rpartition("/")[2]], parts), **result}
    return result


def tables_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file that declares many tables."""
    schema = transfer_schema(defaults=True)
    single = schema["properties"]
    texts = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    hops = transfer_schema()["properties"]["hops"]
    own = {
        "tables": {**texts, "description": "Patterns: connection://schema.table, with * and ?."},
        "exclude": {**texts, "description": "Patterns of tables to leave out."},
        "hops": {**hops, "description": "Targets, with {schema} and {table}."},
        "prefix": {"type": "string", "description": "Goes before names that would clash."},
        "overrides": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {**single, "hops": hops},
                "additionalProperties": False,
            },
            "description": "What is different for single tables, by table or schema.table.",
        },
    }
    return {
        **schema,
        "title": "Many transfers of Tableferry",
        "properties": {**single, **own},
        "required": ["tables", "hops"],
    }


def _with_text(schema: Any, text: dict[str, Any], types: tuple[str, ...]) -> Any:
    """Let a text stand for the schema's choices, and for its values of some types.

    Args:
        schema: the schema.
        text: describes the text.
        types: of values that are no texts.
    """
    if isinstance(schema, list):
        return [_with_text(item, text, types) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        name: value if name in ("default", "propertyNames") else _with_text(value, text, types)
        for name, value in schema.items()
    }
    has_pattern = "pattern" in result and "type" in result
    if {"enum", "const"} & result.keys() or has_pattern or result.get("type") in types:
        names = [name for name in ("title", "description", "default") if name in result]
        annotations = {name: result.pop(name) for name in names}
        return {"anyOf": [result, text], **annotations}
    return result
