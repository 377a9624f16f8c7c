"""Runs a parsed batch: control flow, variables, errors, and what each statement yields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from psycopg import pq
from sqlglot import exp

from tableferry_local.sqlserver.catalog.tables import object_name
from tableferry_local.sqlserver.errors import (
    BATCH_ABORTING,
    SCOPE_ABORTING,
    ErrorContext,
    SqlError,
    unsupported,
)
from tableferry_local.sqlserver.tsql.execution.accumulate import accumulate, builds_on_itself
from tableferry_local.sqlserver.tsql.execution.assignments import declare, run_set
from tableferry_local.sqlserver.tsql.execution.calls import run_execute
from tableferry_local.sqlserver.tsql.execution.ddl import run_ddl
from tableferry_local.sqlserver.tsql.execution.evaluation import translating
from tableferry_local.sqlserver.tsql.execution.run import Run
from tableferry_local.sqlserver.tsql.execution.state import Frame
from tableferry_local.sqlserver.tsql.syntax import batch as tree
from tableferry_local.sqlserver.tsql.syntax.batch import Block, Node, Statement
from tableferry_local.sqlserver.tsql.syntax.parsing import word
from tableferry_local.sqlserver.tsql.syntax.preparing import assigned_variables, prepare_all
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.dml import compile_change, compile_insert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.queries import compile_query
from tableferry_local.sqlserver.tsql.translation.query import Query
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import TEXT_OIDS, storage
from tableferry_local.sqlserver.types.value import texts_apart

MOST_TRANSLATIONS = 9
_OF_ROLLBACK = ("ROLLBACK", "TRAN", "TRANSACTION", "WORK", ";")


def _outdated(query: Query, chunk: pq.abc.PGresult) -> bool:
    """Whether a column that was translated as another type has texts."""
    return any(
        storage(column.type) != "text"
        and chunk.ftype(number) in TEXT_OIDS
        and any(chunk.get_value(row, number) is not None for row in range(chunk.ntuples))
        for number, column in enumerate(query.columns)
    )


class Stop(Exception):
    """An error ends the batch here (and, if `whole`, those around)."""

    def __init__(self, *, whole: bool = False) -> None:
        super().__init__()
        self.whole = whole


class Interpreter(Run):
    """Executes batches of one session into a sink."""

    def run_batch(self, text: str, frame: Frame) -> None:
        """Run a batch with its own variables."""
        outer, self.state.frame = self.state.frame, frame
        try:
            try:
                nodes = tree.parse_batch(text)
                for node in nodes:
                    prepare_all(node)
            except SqlError as error:
                # the batch does not parse: nothing of it runs
                self.sink.error(error)
                return
            self.run(nodes)
        except Stop as stop:
            if stop.whole and frame.parent is not None:
                raise
        finally:
            self.state.frame = outer

    def run(self, nodes: Sequence[Node]) -> None:
        """Run statements one after the other."""
        for node in nodes:
            self._node(node)

    def _node(self, node: Node) -> None:
        if isinstance(node, Statement):
            self._guarded(lambda: self._statement(node), node)
        elif isinstance(node, Block):
            self.run(node.body)
        else:
            if self._holds(node.condition):
                self._node(node.then)
            elif node.otherwise is not None:
                self._node(node.otherwise)

    def _guarded(self, action: Callable[[], None], node: Statement) -> None:
        state = self.state
        try:
            action()
        except SqlError as error:
            error.line = max(error.line, node.line)
            rolls_back = error.number in BATCH_ABORTING or (
                state.xact_abort and error.severity > 10
            )
            if rolls_back:
                state.abort()
            self.sink.error(error)
            if rolls_back or error.severity >= 20:
                raise Stop(whole=True) from None
            if error.number in SCOPE_ABORTING:
                raise Stop from None

    def _holds(self, condition: Statement) -> bool:
        result = [False]

        def action() -> None:
            node = condition.parsed
            with self.state.statement(ErrorContext("IF")):
                compiler = self.state.compiler()
                sql = compiler.condition(node, Scope())
                sql, values = self._once_planned(f"SELECT CASE WHEN {sql} THEN 1 END", compiler)
                rows = self.state.link.rows(sql, values, often=bool(compiler.of_catalog))
                result[0] = rows[0][0] is not None

        self._guarded(action, condition)
        return result[0]

    def _statement(self, statement: Statement) -> None:
        kind = statement.kind
        runner = getattr(self, f"_run_{kind.lower()}", None)
        if runner is None:
            raise unsupported(kind)
        runner(statement)

    # Queries and changes -----------------------------------------------------------------------

    def _run_select(self, statement: Statement) -> None:
        node = statement.parsed
        if isinstance(node, exp.Select) and node.args.get("into") is not None:
            raise unsupported("SELECT ... INTO")
        assigned = assigned_variables(node)
        if assigned is not None:
            self._select_variables(node, assigned)
            return
        with self.state.statement(ErrorContext("SELECT")):
            # another session may change a table between the translation and its rows; SQL Server
            # compiles anew, too
            if not any(self._select(node) for _ in range(MOST_TRANSLATIONS)):
                raise unsupported("a query of tables whose types change all the time")

    def _select(self, node: exp.Expr) -> bool:
        """Translate a query and run it; False if it has to be translated anew."""
        state = self.state
        compiler = state.compiler()
        query = compile_query(compiler, node, None)
        if state.fmtonly:
            self.sink.columns(query.result_columns)
            self.sink.done(0, "SELECT")
            return True
        return self._send(query, compiler)

    def _send(self, query: Query, compiler: Compiler) -> bool:
        """Run a query and hand its rows to the client, unless they are not of its types."""
        state, count, begun = self.state, 0, False
        sql = query.sql
        if state.row_limit:
            sql = f"SELECT * FROM ({sql}) AS limited LIMIT {state.row_limit}"
        sql, values = self._once_planned(sql, compiler)
        for chunk in state.link.stream(sql, values, often=bool(compiler.of_catalog)):
            if not begun:
                if _outdated(query, chunk):
                    return False
                self.sink.columns(query.result_columns)
                begun = True
            if chunk.ntuples:
                self.sink.rows(chunk)
                count += chunk.ntuples
        self.done(count, "SELECT")
        return True

    def _once_planned(self, sql: str, compiler: Compiler) -> tuple[str, list[str | None]]:
        """A statement and its parameters, with names apart if it reads the catalog alone.

        To plan one of those takes PostgreSQL ten times as long as to run it.
        """
        values = self.state.values(compiler.params)
        if not compiler.of_catalog:
            return sql, values
        sql, texts = texts_apart(sql, len(values))
        return sql, [*values, *texts]

    def _select_variables(self, node: exp.Select, names: list[str]) -> None:
        state = self.state
        if builds_on_itself(node, names):
            accumulate(state, node, names)
            self.sink.done(None, "SELECT")
            return
        with state.statement(ErrorContext("SELECT")):
            compiler = state.compiler()
            plain = node.copy()
            plain.set("expressions", [item.expression for item in plain.expressions])
            query = compile_query(compiler, plain, None)
            types = [state.variable(name).type for name in names]
            items = [
                convert(replace(value, sql=f"q.c{n + 1}", is_null=False), kind)
                for n, (value, kind) in enumerate(zip(query.columns, types, strict=True))
            ]
            listed = ", ".join(f"c{n + 1}" for n in range(len(items)))
            rows = state.link.rows(
                f"SELECT {', '.join(items)} FROM ({query.sql}) AS q({listed})",
                state.values(compiler.params),
            )
        if rows:
            for name, value in zip(names, rows[-1], strict=True):
                state.variable(name).value = value
        self.sink.done(None, "SELECT")

    def _run_insert(self, statement: Statement) -> None:
        state, insert = self.state, statement.parsed
        with state.statement(ErrorContext("INSERT")):
            name = object_name(insert.target, state.database)
            table = state.catalog.get(name, ".".join(insert.target))
            compiler = state.compiler()
            sql = compile_insert(compiler, insert, table, state.identity_insert == table.sql)
            self._change("INSERT", sql, compiler.params)

    def _run_update(self, statement: Statement) -> None:
        self._run_change("UPDATE", statement)

    def _run_delete(self, statement: Statement) -> None:
        self._run_change("DELETE", statement)

    def _run_change(self, word: str, statement: Statement) -> None:
        with self.state.statement(ErrorContext(word)):
            compiler = self.state.compiler()
            self._change(word, compile_change(compiler, statement.parsed), compiler.params)

    def _change(self, word: str, sql: str, params: list[str]) -> None:
        self.done(self.state.link.execute(sql, self.state.values(params)) or 0, word)

    # Definitions, options, variables -----------------------------------------------------------

    def _run_create(self, statement: Statement) -> None:
        run_ddl(self, statement)

    _run_alter = _run_drop = _run_truncate = _run_create

    def _run_set(self, statement: Statement) -> None:
        run_set(self, statement)

    def _run_declare(self, statement: Statement) -> None:
        declare(self.state, statement)

    def _run_use(self, statement: Statement) -> None:
        old = self.state.database
        new = self.state.set_database(statement.tokens[1].text)
        self.sink.database(new, old)
        self.sink.done(None, "USE")

    def _run_execute(self, statement: Statement) -> None:
        run_execute(self, statement.tokens)

    _run_exec = _run_call = _run_execute

    # Transactions ------------------------------------------------------------------------------

    def _run_begin(self, statement: Statement) -> None:
        self.state.begin()
        self.sink.done(None, "BEGIN TRANSACTION")

    def _run_commit(self, statement: Statement) -> None:
        with translating(self.state, "COMMIT"):
            self.state.commit()
        self.sink.done(None, "COMMIT TRANSACTION")

    def _run_rollback(self, statement: Statement) -> None:
        if any(word(token) not in _OF_ROLLBACK for token in statement.tokens):
            raise unsupported("ROLLBACK to a savepoint")
        with translating(self.state, "ROLLBACK"):
            self.state.rollback()
        self.sink.done(None, "ROLLBACK TRANSACTION")

    # Control -----------------------------------------------------------------------------------

    def _run_grant(self, statement: Statement) -> None:
        self.sink.done(None, statement.kind)

    _run_deny = _run_revoke = _run_grant
