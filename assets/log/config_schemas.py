"""Config schemas, remembered: Dagster infers a resource's anew with each object of its class.

A run makes more than twenty of them: that was a twentieth of the cost of a small one.
"""

from __future__ import annotations

import functools
from collections.abc import Set
from typing import Any

import dagster as dg
from dagster._config.pythonic_config import resource
from dagster._config.pythonic_config.config import infer_schema_from_config_class


@functools.cache
def remember() -> None:
    """Let the resources of this process share the schema of their class."""
    setattr(resource, "infer_schema_from_config_class", _schema_of)  # noqa: B010


@functools.cache
def inferred(class_: Any, omitted: frozenset[str]) -> dg.Field:
    """The schema of a class of resources, without the fields that are resources themselves."""
    return infer_schema_from_config_class(class_, fields_to_omit=set(omitted))


def _schema_of(
    model_cls: Any, *, fields_to_omit: Set[str] | None = None, **options: Any
) -> dg.Field:
    omitted = set(fields_to_omit or ())
    if options:
        return infer_schema_from_config_class(model_cls, fields_to_omit=omitted, **options)
    return inferred(model_cls, frozenset(omitted))
