"""The one type map: what each column becomes, how it is selected, converted and guarded."""

from resources.types.conversion import conform, schema
from resources.types.planner import ColumnOverride, compatible, is_target_type, plan_copy
from resources.types.querytext import refused_in_query
from resources.types.scan import decimal_types

__all__ = [
    "ColumnOverride",
    "compatible",
    "conform",
    "decimal_types",
    "is_target_type",
    "plan_copy",
    "refused_in_query",
    "schema",
]
