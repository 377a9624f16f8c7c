"""What happens to a transfer's tables and its file, beside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.conftest import table_name
from tests.integration.histories.oracle import Oracle
from tests.integration.histories.programs import History
from tests.integration.histories.tables import VALUES, WIDER, Table, Values
from tests.servers import Servers, own

COLUMNS = {"n": "int", "id": "int", "small": "small", "note": "text", "price": "price"}
COLUMNS |= {"at": "at", "ratio": "ratio", "v": "int"}
FIXED = ("n", "id", "v")
"""Columns that keep their names and types: the identity, a key, and a number that grows with each
change of a row."""
SCHEMAS = {"postgres": "public", "sqlserver": "dbo", "clickhouse": "warehouse"}
COPIES = own("histories")
"""The schema of copies in PostgreSQL."""


EXPECTED = (
    "[{name: ids, type: sql, kwargs: "
    "{query: 'SELECT n FROM {table} WHERE {range} AND id < -1000'}}]"
)


class Changes:
    """A transfer, its tables, the rows of its source, and the oracle."""

    def __init__(self, history: History, servers: Servers, folder: Path) -> None:
        self.folder, self.name, self.key = folder, table_name(), history.key
        self.servers = servers
        systems = history.route
        schema = {**SCHEMAS, "postgres": COPIES}
        self.source = Table(servers, systems[0], f"{SCHEMAS[systems[0]]}.{self.name}")
        self.targets = [
            Table(servers, each, f"{schema[each]}.{self.name}{'' if hop == 1 else hop}")
            for hop, each in enumerate(systems[1:], 1)
        ]
        self.kinds = dict(COLUMNS)
        self.rows: dict[int, Values] = {}
        self.settings = dict(history.declared)
        self.names: dict[str, str] = {}
        """By a column's declared name, the one that it had."""
        self.oracle = Oracle(self.key, len(self.targets), systems[1:])
        self.trail: list[str] = []
        self.number = self.version = 0
        self.versioned = "watermark" in history.program()
        self.drift = False
        """Whether the source's columns are not those of the last good run."""
        self.altered: set[str] = set()
        """How they were altered since then."""
        self.kept_source: tuple[dict[str, str], dict[int, Values]] | None = None
        self.checked = False
        """Whether a full check came after whatever has changed a target."""
        (folder / "transfers").mkdir(parents=True)
        self.source.create(self.kinds)
        self.insert([*range(1, history.rows + 1)], 0)
        self.declare()

    # --- the source -------------------------------------------------------------------------------

    def value(self, column: str, seed: int) -> Any:
        kinds = VALUES[self.kinds[column]]
        return kinds[(seed + 7 * len(column)) % len(kinds)]

    def insert(self, keys: list[int], seed: int) -> None:
        rows = []
        for place, key in enumerate(keys):
            n = key if self.key == "n" else self.number + 1
            if n in self.rows:
                continue
            self.number = max(self.number, n) if self.key == "id" else self.number
            row = {name: self.value(name, seed + place) for name in self.kinds}
            if self.key == "id":
                row["id"] = key
            self.rows[n] = {**row, "n": n, "v": self.next_version()}
            rows.append(self.rows[n])
        self.source.insert(rows)

    def next_version(self) -> int:
        """The next number of `v`, which stays the same where nothing goes by it."""
        self.version += self.versioned
        return self.version

    def change(self, n: int, name: str, value: Any) -> None:
        changed = {name: value, "v": self.next_version()}
        self.rows[n] |= changed
        self.source.update(f"n = {n}", changed)

    def picked(self, picks: list[int]) -> list[int]:
        numbers = sorted(self.rows)
        return sorted({numbers[pick % len(numbers)] for pick in picks}) if numbers else []

    def update(self, picks: list[int], seed: int) -> None:
        for place, n in enumerate(self.picked(picks)):
            names = [name for name in self.kinds if name not in ("n", "v", self.key)]
            name = names[(seed + place) % len(names)]
            self.change(n, name, self.value(name, seed // 7 + place))

    def delete(self, picks: list[int]) -> None:
        if gone := self.picked(picks):
            self.source.delete(f"n IN ({', '.join(map(str, gone))})")
            for n in gone:
                del self.rows[n]

    def move(self, pick: int, key: int | None) -> None:
        """Give a row another key."""
        for n in self.picked([pick]):
            self.change(n, "id", key)

    def exchange(self, pick: int, other: int) -> None:
        """Exchange the keys of two rows."""
        one, *rest = [*self.picked([pick]), *self.picked([other])] or [0]
        for n in rest:
            keys = self.rows[n]["id"], self.rows[one]["id"]
            self.move(sorted(self.rows).index(one), keys[0])
            self.move(sorted(self.rows).index(n), keys[1])

    def go_back(self) -> None:
        """Have the source hold what it held when the event log was backed up."""
        if self.kept_source is not None and self.kept_source[0] == self.kinds:
            self.source.delete("1 = 1")
            self.rows = {n: dict(row) for n, row in self.kept_source[1].items()}
            self.source.insert(self.rows.values())

    def alter(self, what: str, pick: int) -> None:
        """Add, drop, rename or widen a column of the source."""
        names = [name for name in self.kinds if name not in FIXED]
        name = names[pick % len(names)]
        new = f"c{len(self.trail)}"
        if {what} | self.altered >= {"add", "drop"}:
            return  # might be a column renamed, which is refused until the user says so
        if what == "add":
            kind = ["text", "small", "price"][pick % 3]
            self.source.add(new, kind)
            self.kinds[new] = kind
            for row in self.rows.values():
                row[new] = None
        elif what == "drop" and len(names) > 2:
            self.source.drop_column(name)
            self._without(name)
        elif what == "rename" and all({*self.names} <= {*each.columns()} for each in self.targets):
            # else one that no run has done yet would be declared no more
            self.source.rename(name, new)
            self.kinds = {new if each == name else each: kind for each, kind in self.kinds.items()}
            for row in self.rows.values():
                row[new] = row.pop(name)
            self.names = {new: name}
            self.declare()
        elif what == "widen":
            narrow = [each for each in names if self.kinds[each] in WIDER]
            if not narrow:
                return
            name = narrow[pick % len(narrow)]
            self.kinds[name] = WIDER[self.kinds[name]]
            self.source.widen(name, self.kinds[name])
        else:
            return
        self.drift = True
        self.altered.add(what)
        if not (what == "add" and self.settings.get("on_schema_drift") == "ignore_new"):
            self.oracle.alter()

    def _without(self, name: str) -> None:
        del self.kinds[name]
        self.names.pop(name, None)
        for row in self.rows.values():
            del row[name]

    # --- the declaration --------------------------------------------------------------------------

    def expect(self, something: bool) -> None:
        """Declare an expectation, or take it back."""
        self.settings.pop("expectations", None)
        self.declare(**({"expectations": EXPECTED} if something else {}))

    def declare(self, **settings: str) -> None:
        """Write the transfer's file."""
        if "write" in settings:
            for name in ("deletes", "delta", "incremental"):
                self.settings.pop(name, None)
        self.settings |= settings
        if "expectations" in self.settings and self.settings.get("delta") == "always":
            # refused together: the older one goes
            self.settings.pop("expectations" if "delta" in settings else "delta")
        if self.drift and settings:
            self.oracle.alter()
        self.write_file()
        self.oracle.write = self.settings.get("write", "replace")
        self.oracle.deletes = self.settings.get("deletes", "keep")
        self.oracle.ignores = self.settings.get("on_schema_drift") == "ignore_new"
        self.oracle.incremental = "incremental" in self.settings
        self.oracle.expects = "expectations" in self.settings
        levels = ("checksum", "full_hash")
        self.oracle.digests = self.settings.get("reconcile", "checksum") in levels
        for table in self.targets:
            if "mark" in self.oracle.deletes and "gone" not in (table.columns() or ["gone"]):
                table.add("gone", "at")  # as whoever declares it is told to

    def write_file(self, **wrong: str) -> None:
        """Write the transfer's file, with settings that are not meant."""
        given = {
            "transfer": self.name,
            "source": f"{self.source.system}://{self.source.name}",
            "hops": f"[{', '.join(f'{each.system}://{each.name}' for each in self.targets)}]",
            "key": self.key,
            **self.settings,
        }
        if self.names:
            was = (f"{name}: {{was: {old}}}" for name, old in self.names.items())
            given["columns"] = f"{{{', '.join(was)}}}"
        given |= wrong
        text = "\n".join(f"{name}: {value}" for name, value in given.items())
        (self.folder / "transfers" / "t.yaml").write_text(text + "\n")

    # --- the targets ------------------------------------------------------------------------------

    def damage(self, hop: int, what: str, pick: int) -> None:
        """Change a target as somebody else would."""
        table = self.targets[hop - 1]
        columns = table.columns()
        if not columns:
            return
        rows = sorted(table.read(columns), key=lambda row: (row["n"], repr(row)))
        self.checked = False
        texts = [name for name in columns if self.kinds.get(name) == "text"]
        values = [name for name in columns if name not in (*FIXED, "gone")]
        if what == "drop":
            table.drop()
            self._forget(hop)
        elif what == "add_column":
            if "other" not in columns:
                table.add("other", "text")
        elif what == "lose_column" and values:
            table.drop_column(values[pick % len(values)])
        elif what == "insert":
            taken = {row["n"] for row in rows} | {*self.rows}
            n = next(n for n in (5, 15, 25, 900 + pick, *range(1000, 2000)) if n not in taken)
            table.insert([{"n": n, "id": n}])
        elif not rows:
            return
        elif what == "empty":
            table.delete("1 = 1")
        else:
            row, other = rows[pick % len(rows)], rows[(pick + 5) % len(rows)]
            where = f"n = {row['n']}"
            if what == "delete":
                table.delete(where)
            elif what == "twice" and self._without_primary_key(table):
                table.insert([row])
            elif what == "key" and self.key == "id" and table.system != "clickhouse":
                table.update(where, {"id": (row["id"] or 0) + 10})
            elif what == "null" and texts:
                name = texts[pick % len(texts)]
                table.update(where, {name: "" if row[name] is None else None})
            elif what == "exchange" and texts:
                name = texts[pick % len(texts)]
                table.update(where, {name: other[name]})
                table.update(f"n = {other['n']}", {name: row[name]})
            elif what == "value" and texts:
                table.update(where, {texts[pick % len(texts)]: f"damaged {pick}"})

    def _without_primary_key(self, table: Table) -> bool:
        return table.system == "clickhouse" or self.source.system == "clickhouse"

    def _forget(self, hop: int) -> None:
        """What was published in a table that is gone is no more."""
        for place in [place for place in self.oracle.published if place[0] == hop - 1]:
            del self.oracle.published[place]
