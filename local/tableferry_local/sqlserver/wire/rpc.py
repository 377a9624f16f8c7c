"""Remote procedure calls: what is called, with which parameters ([MS-TDS] 2.2.6.6)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tableferry_local.sqlserver.types.sqltype import Param, SqlType
from tableferry_local.sqlserver.wire.packets import ProtocolError
from tableferry_local.sqlserver.wire.values import read_raw, text_of
from tableferry_local.sqlserver.wire.wiretypes import WireType, read_type_info

_PROCEDURES = {
    1: "sp_cursor",
    2: "sp_cursoropen",
    3: "sp_cursorprepare",
    4: "sp_cursorexecute",
    5: "sp_cursorprepexec",
    6: "sp_cursorunprepare",
    7: "sp_cursorfetch",
    8: "sp_cursoroption",
    9: "sp_cursorclose",
    10: "sp_executesql",
    11: "sp_prepare",
    12: "sp_execute",
    13: "sp_prepexec",
    14: "sp_prepexecrpc",
    15: "sp_unprepare",
}
_BY_REFERENCE, _DEFAULT = 0x01, 0x02
_NEXT_CALL = (0x80, 0xFF)


@dataclass(frozen=True)
class Argument:
    """A parameter as it came."""

    name: str
    kind: WireType
    raw: bytes | None
    output: bool = False
    default: bool = False

    @property
    def text(self) -> str | None:
        """The value as text of its own type's storage type."""
        return text_of(self.kind, self.raw)

    def param(self, name: str, target: SqlType | None = None, *, output: bool = False) -> Param:
        """As the engine wants it, converted to a declared type."""
        declared = target or self.kind.sql_type
        value = text_of(self.kind, self.raw, declared)
        return Param(name, declared, value, output or self.output)


@dataclass(frozen=True)
class Call:
    """One procedure call."""

    name: str
    arguments: list[Argument]

    def argument(self, index: int, name: str) -> Argument | None:
        """A parameter by its name, or by its place if it has none."""
        for found in self.arguments:
            if found.name.lower() == name:
                return found
        if index < len(self.arguments) and not self.arguments[index].name:
            return self.arguments[index]
        return None

    def text(self, index: int, name: str) -> str:
        """A text parameter that must be there."""
        found = self.argument(index, name)
        if found is None or found.text is None:
            raise ProtocolError(f"{self.name} needs {name}")
        return found.text


def body(payload: bytes) -> bytes:
    """A request without its ALL_HEADERS."""
    (length,) = struct.unpack_from("<I", payload)
    return payload[length:]


def read_calls(data: bytes) -> list[Call]:
    """The calls of an RPC request, without its headers."""
    calls, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<H", data, at)
        at += 2
        if length == 0xFFFF:
            (number,) = struct.unpack_from("<H", data, at)
            at += 2
            name = _PROCEDURES.get(number, f"procedure {number}")
        else:
            name = data[at : at + 2 * length].decode("utf-16-le")
            at += 2 * length
        at += 2
        arguments = []
        while at < len(data) and data[at] not in _NEXT_CALL:
            argument, at = _argument(data, at)
            arguments.append(argument)
        at += 1
        calls.append(Call(name, arguments))
    return calls


def _argument(data: bytes, at: int) -> tuple[Argument, int]:
    size = 2 * data[at]
    name = data[at + 1 : at + 1 + size].decode("utf-16-le")
    at += 1 + size
    status = data[at]
    kind, at = read_type_info(data, at + 1)
    raw, at = read_raw(kind, data, at)
    return Argument(name, kind, raw, bool(status & _BY_REFERENCE), bool(status & _DEFAULT)), at
