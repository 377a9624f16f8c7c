"""INSERT BULK: PostgreSQL's binary COPY into a table, inside of the session's transaction."""

from __future__ import annotations

from contextlib import ExitStack

from tableferry_local.sqlserver.catalog.tables import Table, object_name
from tableferry_local.sqlserver.errors import ErrorContext, SqlError, syntax_error
from tableferry_local.sqlserver.tsql.execution.state import State
from tableferry_local.sqlserver.tsql.syntax.clauses import find, matching, name_at, split, words
from tableferry_local.sqlserver.tsql.syntax.parsing import tokenize, type_text
from tableferry_local.sqlserver.types.sqltype import ResultColumn
from tableferry_local.sqlserver.types.typerules import parse_type


class BulkInsert:
    """A bulk load that has begun. Ends with `finish` or `abort`."""

    def __init__(self, state: State, text: str) -> None:
        tokens = tokenize(text)
        if words(tokens, 2) != ["INSERT", "BULK"]:
            raise syntax_error("BULK")
        parts, at = name_at(tokens, 2)
        table = state.catalog.find(object_name(parts, state.database))
        if table is None:
            raise SqlError(208, 16, f"Invalid object name '{'.'.join(parts)}'.")
        options: set[str] = set()
        columns = list(table.columns)
        if words(tokens[at:], 1) == ["("]:
            end = matching(tokens, at)
            columns = [_column(table, part) for part in split(tokens[at + 1 : end])]
            at = end + 1
        if words(tokens[at:], 2) == ["WITH", "("]:
            end = matching(tokens, at + 1)
            options = {words(part, 1)[0] for part in split(tokens[at + 2 : end]) if part}
        self.table, self.state, self.options = table, state, options
        self.columns: list[ResultColumn] = [column.result for column in columns]
        """The target's columns in the order of the statement, as declared in the table."""
        stored = [
            column
            for column in columns
            if column.computed is None and (not column.identity or "KEEP_IDENTITY" in options)
        ]
        self._stack = ExitStack()
        self._through = len(stored) != len(columns) or (
            "KEEP_NULLS" not in options and any(column.default is not None for column in columns)
        )
        self._stored, self._all = stored, columns
        self._begin()

    def _begin(self) -> None:
        state, table = self.state, self.table
        self._stack.enter_context(state.statement(ErrorContext("INSERT")))
        target = table.sql
        self._own_transaction = not state.trancount
        try:
            if self._own_transaction:
                state.link.run("BEGIN")
            names = ", ".join(column.sql for column in self._all)
            if self._through:
                # columns that are generated, or whose default replaces NULL, need a second step
                target = "pg_temp.bulk_load"
                state.link.run(
                    "DROP TABLE IF EXISTS pg_temp.bulk_load; CREATE TEMPORARY TABLE bulk_load AS "
                    f"SELECT {names} FROM {table.sql} WITH NO DATA"
                )
            state.link.copy_start(f"COPY {target} ({names}) FROM STDIN (FORMAT binary)")
        except BaseException as error:
            self._leave(error)

    def write(self, data: bytes) -> None:
        """Send a part of the rows, as PostgreSQL's binary COPY."""
        self.state.link.copy_data(data)

    def finish(self) -> int:
        """End the load.

        Returns:
            The number of rows.

        Raises:
            SqlError: a row does not fit; then none is kept.
        """
        link, table = self.state.link, self.table
        try:
            rows = link.copy_end()
            if self._through:
                names = ", ".join(column.sql for column in self._stored)
                items = ", ".join(
                    self._item(column.sql, column.attnum, column.default) for column in self._stored
                )
                link.run(
                    f"INSERT INTO {table.sql} ({names}) SELECT {items} FROM pg_temp.bulk_load; "
                    "DROP TABLE pg_temp.bulk_load"
                )
            if self._own_transaction:
                link.run("COMMIT")
        except BaseException as error:
            self._leave(error)
            raise
        self._stack.close()
        return rows

    def _item(self, name: str, attnum: int, default: str | None) -> str:
        if default is None or "KEEP_NULLS" in self.options:
            return name
        rows = self.state.link.rows(
            "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = $1 AND adnum = $2",
            [str(self.table.oid), str(attnum)],
        )
        return f"COALESCE({name}, {rows[0][0]})" if rows else name

    def abort(self) -> None:
        """Give the load up; nothing of it is kept."""
        link = self.state.link
        if self._stack is None or not link.alive:
            return
        if link.status.name == "ACTIVE":
            link.copy_end(b"the client gave up")
            try:
                self._leave(SqlError(3621, 0, "The statement has been terminated."))
            except SqlError:
                return

    def _leave(self, error: BaseException) -> None:
        """Undo the load, and raise its error as SQL Server would."""
        if (
            self._own_transaction
            and self.state.link.alive
            and self.state.link.status.name != "IDLE"
        ):
            self.state.link.run("ROLLBACK")
        if self._stack.__exit__(type(error), error, error.__traceback__):
            return
        raise error


def _column(table: Table, part):  # type: ignore[no-untyped-def]
    names, at = name_at(part, 0)
    column = table.column(names[-1])
    stop = find(part, {"COLLATE"}, at)
    if at < stop:
        parse_type(type_text(part[at:stop])[0])
    return column
