"""The one type map: what each column becomes, how it is selected, converted and guarded."""

from resources.types.conversion import conform, schema
from resources.types.planner import ColumnOverride, compatible, plan_copy
from resources.types.querytext import refused_in_query

__all__ = ["ColumnOverride", "compatible", "conform", "plan_copy", "refused_in_query", "schema"]
