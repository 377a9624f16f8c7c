"""All of T-SQL that is translated."""

from __future__ import annotations

from tableferry_local.sqlserver.tsql.translation.expressions import Language
from tableferry_local.sqlserver.tsql.translation.functions import call
from tableferry_local.sqlserver.tsql.translation.nodes import NODES
from tableferry_local.sqlserver.tsql.translation.queries import compile_query

TSQL = Language(NODES, call, compile_query)
