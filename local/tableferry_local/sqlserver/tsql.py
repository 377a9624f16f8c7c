"""All of T-SQL that is translated."""

from __future__ import annotations

from tableferry_local.sqlserver.expressions import Language
from tableferry_local.sqlserver.functions import call
from tableferry_local.sqlserver.nodes import NODES
from tableferry_local.sqlserver.queries import compile_query

TSQL = Language(NODES, call, compile_query)
