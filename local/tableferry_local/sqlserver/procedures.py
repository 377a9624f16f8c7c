"""The procedures that clients call by RPC: prepared statements here, the others by the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import Param, ResultColumn, SqlType
from tableferry_local.sqlserver.types.typerules import parse_type
from tableferry_local.sqlserver.wire.rpc import Argument, Call
from tableferry_local.sqlserver.wire.sink import RETURN_STATUS, WireSink


class Executor(Protocol):
    """What is needed of the engine."""

    def execute(self, batch: str, params: list[Param] | None, sink: WireSink) -> None: ...

    def describe(self, batch: str, params: list[Param] | None) -> list[ResultColumn]: ...


@dataclass(frozen=True)
class Declared:
    """A parameter as declared, for example in `@P1 int, @P2 nvarchar(10) OUTPUT`."""

    name: str
    type: SqlType
    output: bool


@dataclass(frozen=True)
class Prepared:
    """A statement that a client has a handle of."""

    statement: str
    declared: list[Declared]


@dataclass
class Procedures:
    """One session's procedure calls."""

    engine: Executor
    prepared: dict[int, Prepared] = field(default_factory=dict)
    _handles: count[int] = field(default_factory=lambda: count(1))

    def call_all(self, calls: list[Call], sink: WireSink) -> None:
        """Run the calls of one request."""
        for call in calls:
            self.call(call, sink)

    def call(self, call: Call, sink: WireSink) -> None:
        """Run one call and report it, up to its DONEPROC."""
        sink.procedure = True
        name = call.name.lower().split(".")[-1].strip("[]")
        handler = getattr(self, f"_{name}", None)
        try:
            if handler is not None:
                handler(call, sink)
            else:
                self._other(call, sink)
        except SqlError as error:
            sink.error(error)
        sink.finish_procedure()

    def _sp_executesql(self, call: Call, sink: WireSink) -> None:
        statement = call.text(0, "@stmt")
        definition = call.argument(1, "@params")
        declared = declarations(definition.text or "") if definition else []
        self.engine.execute(statement, bind(declared, call.arguments[2:]), sink)

    def _sp_prepare(self, call: Call, sink: WireSink) -> None:
        prepared = Prepared(call.text(2, "@stmt"), declarations(_optional(call, 1, "@params")))
        columns = self._described(prepared)
        if columns:
            sink.columns(columns)
            sink.done(None, "SELECT")
        sink.return_value("@handle", SqlType("int"), str(self._keep(prepared)))

    def _sp_prepexec(self, call: Call, sink: WireSink) -> None:
        prepared = Prepared(call.text(2, "@stmt"), declarations(_optional(call, 1, "@params")))
        handle = self._keep(prepared)
        replaced = call.arguments[0].text
        if replaced is not None:
            self.prepared.pop(int(replaced), None)
        self.engine.execute(prepared.statement, bind(prepared.declared, call.arguments[3:]), sink)
        sink.return_value("@handle", SqlType("int"), str(handle))

    def _sp_execute(self, call: Call, sink: WireSink) -> None:
        prepared = self._find(call)
        self.engine.execute(prepared.statement, bind(prepared.declared, call.arguments[1:]), sink)

    def _sp_unprepare(self, call: Call, sink: WireSink) -> None:
        self._find(call)
        del self.prepared[int(call.text(0, "@handle"))]

    def _sp_reset_connection(self, call: Call, sink: WireSink) -> None:
        self.prepared.clear()

    def _other(self, call: Call, sink: WireSink) -> None:
        params = [Param(RETURN_STATUS, SqlType("int"), None, output=True)]
        arguments = []
        for index, argument in enumerate(call.arguments):
            label = f"{argument.name} = " if argument.name else ""
            if argument.default:
                arguments.append(f"{label}DEFAULT")
                continue
            params.append(argument.param(f"@argument_{index}"))
            arguments.append(f"{label}@argument_{index}{' OUTPUT' if argument.output else ''}")
        text = f"EXEC {RETURN_STATUS} = {call.name} {', '.join(arguments)}"
        self.engine.execute(text, params, sink)

    def _keep(self, prepared: Prepared) -> int:
        handle = next(self._handles)
        self.prepared[handle] = prepared
        return handle

    def _find(self, call: Call) -> Prepared:
        handle = call.text(0, "@handle")
        found = self.prepared.get(int(handle))
        if found is None:
            raise SqlError(
                8179, 16, f"Could not find prepared statement with handle {handle}.", state=2
            )
        return found

    def _described(self, prepared: Prepared) -> list[ResultColumn]:
        params = [Param(d.name, d.type, None, d.output) for d in prepared.declared]
        try:
            return self.engine.describe(prepared.statement, params)
        except SqlError:
            # Like the server, which reports a statement's errors when it is executed.
            return []


def _optional(call: Call, index: int, name: str) -> str:
    found = call.argument(index, name)
    return (found.text if found else None) or ""


def declarations(text: str) -> list[Declared]:
    """Read a parameter definition such as `@P1 int, @P2 decimal(10,2) OUTPUT`."""
    result = []
    for part in _split(text):
        name, _, rest = part.strip().partition(" ")
        words = rest.strip()
        output = False
        for suffix in (" output", " out", " readonly"):
            if words.lower().endswith(suffix):
                output = suffix != " readonly"
                words = words[: -len(suffix)].rstrip()
        words = words.partition("=")[0].strip()
        if words.lower().startswith("as "):
            words = words[3:].strip()
        result.append(Declared(name, parse_type(words), output))
    return result


def _split(text: str) -> list[str]:
    """Cut at the commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


def bind(declared: list[Declared], arguments: list[Argument]) -> list[Param]:
    """The values of declared parameters, given by name or in order.

    Raises:
        SqlError: 8178, a parameter is not given; 8144, one too many is.
    """
    if len(arguments) > len(declared):
        raise SqlError(8144, 16, "Procedure or function has too many arguments specified.")
    given = {argument.name.lower(): argument for argument in arguments if argument.name}
    params = []
    for index, item in enumerate(declared):
        argument = given.get(item.name.lower())
        if argument is None and index < len(arguments) and not arguments[index].name:
            argument = arguments[index]
        if argument is None:
            raise SqlError(
                8178,
                16,
                f"The parameterized query expects the parameter '{item.name}', "
                "which was not supplied.",
            )
        output = item.output and argument.output
        params.append(Param(item.name, item.type, argument.param("", item.type).value, output))
    return params
