"""Whole moves with `wire: text` through SQL Server: as by Arrow, and never by half."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from tableferry.assets.planning.resolve import resolve_hops
from tableferry.assets.planning.wires import with_wires
from tableferry.pipelines.command.one import runner
from tableferry.resources.artifacts import BYTES, FOLDER
from tableferry.resources.contract import delimited
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.errors import InputError
from tests.integration.conftest import Ferry, by_range
from tests.integration.support.crashing import Command, crash, reopen

FREEBCP = shutil.which("freebcp")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        FREEBCP is None, reason="freebcp (Debian package freetds-bin) is not installed"
    ),
    pytest.mark.usefixtures("text_into_sqlserver"),
]

CHAIN = (
    "[{{to: 'sqlserver://dbo.{t}', wire: WIRE}}, {{to: 'clickhouse://warehouse.{t}', wire: WIRE}}]"
)
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, fixed char(5), amount numeric(38,10), "
    "day date, at timestamp, seen timestamptz, ok boolean, big bigint, who uuid, clock time(3), "
    "doc jsonb, tags integer[])",
    r"""INSERT INTO {t} VALUES
    (1, '', '', 9999999999999999999999999999.9999999999, '1900-01-01', '1900-01-01',
     '1900-01-01 00:00+00', true, -9223372036854775808, gen_random_uuid(), '00:00', '{{}}', '{{}}'),
    (2, ' ', 'ä', -0.0000000001, '2299-12-31', '2299-12-31 23:59:59.999999',
     '2299-12-31 23:59:59.999999+00', false, 9223372036854775807, gen_random_uuid(),
     '23:59:59.999', '{{"a": "b\\c\n"}}', '{{1,NULL}}'),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (4, E'tab\there\r\nback\\slash \\N', E'\t', 0, '1970-01-01', '1969-12-31 23:59:59.999999',
     '1970-01-01 00:00:00.000001+05', true, 0, gen_random_uuid(), '12:00', '[]', '{{2}}'),
    (5, '😀 ~aaaaaaaaf ~aaaaaaaar  ', '~', 0, '2000-02-29', now(), now(), false, 0,
     gen_random_uuid(), '12:00', '"~aaaaaaaar"', NULL)""",
    "INSERT INTO {t} (id, name, amount) "
    "SELECT g, repeat('é', g % 50) || ' ', g FROM generate_series(6, 500) g",
)
Make = Callable[..., Ferry]


def chain(wire: str) -> str:
    return CHAIN.replace("WIRE", wire)


def targets(ferry: Ferry) -> tuple[list[tuple[object, ...]], ...]:
    """Both target tables, as text that tells all values apart."""
    servers = ferry.session.servers
    return (
        [
            tuple(map(repr, row))
            for row in servers.endpoints["sqlserver"].query(
                f"SELECT * FROM dbo.{ferry.table} ORDER BY id"
            )
        ],
        [
            tuple(map(repr, row))
            for row in servers.endpoints["clickhouse"].query(
                f"SELECT * FROM warehouse.{ferry.table} ORDER BY id"
            )
        ],
    )


def left_over(ferry: Ferry) -> list[str]:
    return [
        row[0]
        for row in ferry.session.servers.endpoints["sqlserver"].query(
            "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES "
            f"WHERE TABLE_NAME LIKE '%{ferry.table}%' AND TABLE_NAME <> '{ferry.table}'"
        )
    ]


@pytest.fixture
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "artifacts"
    monkeypatch.setenv(FOLDER, str(folder))
    return folder


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def wrapper(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a shell script in front of freebcp: `$TOOL` is it, `$3` the data file.

    Whoever wants it to fail under way plans first: a server that was believed is not asked again.
    """
    path = folder / "freebcp-wrapper"
    path.write_text(f"#!/bin/sh\nTOOL={FREEBCP}\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("TABLEFERRY_BCP", str(path))


def test_both_wires_fill_the_same_tables(
    ferry: Make, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BYTES, "4000")  # several files for each range
    one = ferry(chain("text"), *TABLE, ranges="{bounds: [201, 401]}", reconcile="full_hash")
    first = one.run()
    assert first.good, first.errors
    by_text = targets(one)
    assert [len(rows) for rows in by_text] == [500, 500]
    one.declare(chain("arrow"), ranges="{bounds: [201, 401]}", reconcile="full_hash")
    second = one.run(force=True)
    assert second.good, second.errors
    assert targets(one) == by_text
    assert left_over(one) == []
    assert list(artifacts.iterdir()) == []


def test_a_terminator_in_the_data_is_noticed_and_others_are_taken(
    ferry: Make, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's fifth row holds these."""
    fresh, given = Framing.fresh, [Framing("~aaaaaaaaf", "~aaaaaaaar")]
    monkeypatch.setattr(
        delimited.Framing, "fresh", staticmethod(lambda: given.pop() if given else fresh())
    )
    hop = "[{{to: 'sqlserver://dbo.{t}', wire: text}}]"
    one = ferry(hop, *TABLE, ranges="{count: 1}")
    view = one.run()
    assert view.good, view.errors
    assert given == []
    name = one.session.servers.endpoints["sqlserver"].query(
        f"SELECT name FROM dbo.{one.table} WHERE id = 5"
    )
    assert name == [("😀 ~aaaaaaaaf ~aaaaaaaar  ",)]


SMALL = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(1, 500) g",
)


def materialized(one: Ferry, system: str, schema: str) -> dg.AssetMaterialization:
    """The event of the only range that has rows."""
    return next(
        record.asset_materialization
        for record in one.session.instance.fetch_materializations(
            dg.AssetKey([system, schema, one.table]), limit=5
        ).records
        if record.asset_materialization.metadata["rows"].value
    )


def artifacts_of(event: object) -> list[dict[str, object]]:
    """The files that an event of a range lists."""
    return [dict(one.data) for one in event.metadata["artifacts"].records]  # type: ignore[attr-defined]


def test_each_range_records_what_it_went_through(
    ferry: Make, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BYTES, "600")
    one = ferry(chain("text"), *SMALL, ranges="{count: 1}")
    view = one.run()
    assert view.good, view.errors
    first, second = (
        materialized(one, *place) for place in (("sqlserver", "dbo"), ("clickhouse", "warehouse"))
    )
    files = artifacts_of(first)
    count, size = (first.metadata[name].value for name in ("artifact_count", "bytes"))
    assert size / 600 < count < size / 500
    assert len(files) == 20 < count, "the record stays small"
    assert [one["file"] for one in files[:2]] == ["000001.dat", "000002.dat"]
    assert all(500 < int(str(one["bytes"])) <= 600 for one in files)
    assert all(int(str(one["rows"])) > 10 and len(str(one["sha256"])) == 64 for one in files)
    text = "".join(f"{number}\tname {number}\n" for number in range(1, 501))
    (file,) = artifacts_of(second)
    assert len(str(file.pop("sha256"))) == 64, "in whichever order the rows were read"
    assert file == {"file": "rows.tsv", "rows": 500, "bytes": len(text)}


def test_the_record_has_the_digest_of_the_text(ferry: Make, artifacts: Path) -> None:
    one = ferry(chain("text"), SMALL[0], "INSERT INTO {t} VALUES (7, 'ä')", ranges="{count: 1}")
    view = one.run()
    assert view.good, view.errors
    text = "7\tä\n".encode()
    assert artifacts_of(materialized(one, "clickhouse", "warehouse")) == [
        {
            "file": "rows.tsv",
            "rows": 1,
            "bytes": len(text),
            "sha256": hashlib.sha256(text).hexdigest(),
        }
    ]


def test_the_files_stay_until_the_commit(ferry: Make, artifacts: Path, command: Command) -> None:
    """Killed right before the commit, the files that the record lists are there; after it, none."""
    hop = "[{{to: 'sqlserver://dbo.{t}', wire: text}}]"
    one = ferry(hop, *SMALL, ranges="{count: 1}", profile="safe")
    one.session.instance.dispose()
    crash(command, one.table, "inside_finalise")
    reopen(one)
    loaded = one.session.instance.fetch_observations(
        dg.AssetRecordsFilter(
            dg.AssetKey(["sqlserver", "dbo", one.table]), asset_partitions=["..0000000501"]
        ),
        limit=1,
    ).records[0]
    listed = artifacts_of(loaded.asset_observation)
    assert [file["rows"] for file in listed] == [500]
    found = {path.name: path.read_bytes() for path in artifacts.glob("*/*.dat")}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in found.items()} == {
        file["file"]: file["sha256"] for file in listed
    }
    one.session.instance.dispose()
    crash(command, one.table, "after_commit")
    assert list(artifacts.iterdir()) == [], "the next run removed those, and the commit its own"


def tried(one: Ferry) -> None:
    """Have the wires tried, which is done once per process, before a tool is replaced."""
    transfer = one.session.transfer(one.table)
    servers = one.session.servers_of(transfer)
    with_wires(transfer, resolve_hops(transfer, servers), servers, moving=True)


FAILURES = {
    "cut short": 'truncate -s -20 "$3"; exec $TOOL "$@"',
    "rows changed": 'sed -i "s/^./x/" "$3"; exec $TOOL "$@"',
    "killed": "kill -9 $$",
    "killed at work": '$TOOL "$@" & sleep 0.05; kill -9 $! $$',
    "lies": 'read password; echo "200 rows copied."',
    "says nothing": "read password",
    "complains": '$TOOL "$@"; echo "Msg 20018, Level 16" >&2',
    "fails": '$TOOL "$@"; exit 3',
}


@pytest.mark.parametrize("script", FAILURES.values(), ids=FAILURES)
def test_a_failure_of_the_tool_leaves_nothing(
    ferry: Make, artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    hop = "[{{to: 'sqlserver://dbo.{t}', wire: text}}]"
    one = ferry(hop, *TABLE, ranges="{bounds: [201, 401]}")
    tried(one)
    wrapper(tmp_path, script, monkeypatch)
    view = one.run(ranges=["..0000000201"])
    assert by_range(view)["..0000000201"].state == "failed"
    server = one.session.servers.endpoints["sqlserver"]
    assert server.query(f"SELECT COUNT_BIG(*) FROM dbo.{one.table}") == [(0,)]
    assert left_over(one) == []
    assert list(artifacts.iterdir()) == []
    monkeypatch.delenv("TABLEFERRY_BCP")
    again = one.run()
    assert again.good, again.errors


def test_a_tool_that_hangs_is_ended_and_its_range_tried_again(
    ferry: Make, artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = tmp_path / "hung"
    once = f"if [ ! -e {hung}-$2 ]; then : > {hung}-$2; exec sleep 600; fi"
    one = ferry(chain("text"), *SMALL, ranges="{count: 1}")
    tried(one)
    wrapper(tmp_path, f'{once}; exec $TOOL "$@"', monkeypatch)
    monkeypatch.setenv("TABLEFERRY_BCP_TIMEOUT", "2")
    view = one.run()
    assert view.good, view.errors
    for hop in (1, 2):
        assert sorted({row.attempts for row in by_range(view, hop).values()}) == [1, 2]
    assert [len(rows) for rows in targets(one)] == [500, 500]


@pytest.mark.parametrize(
    "script",
    [
        '$TOOL "$@" & sleep 0.3; kill -9 $! $$',
        'read p; printf "1\\t\\n" > "$3"; echo "5 rows copied."',
    ],
    ids=["killed", "lies"],
)
def test_a_failure_on_the_way_out_leaves_nothing(
    ferry: Make, artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    one = ferry(chain("text"), *TABLE[:1], "INSERT INTO {t} (id) VALUES (1)")
    tried(one)
    assert one.run(hop=1).good
    wrapper(tmp_path, script, monkeypatch)
    view = one.run(hop=2)
    assert not view.good
    assert targets(one)[1] == []
    assert list(artifacts.iterdir()) == []


def test_a_value_that_no_target_holds_is_named(ferry: Make, artifacts: Path) -> None:
    one = ferry(
        chain("text"),
        *TABLE,
        "UPDATE {t} SET day = 'infinity' WHERE id = 77",
        ranges="{bounds: [201, 401]}",
    )
    view = one.run()
    error = next(row.error for row in view.ranges if row.state == "failed")
    for part in (one.table, "'day'", "77", "infinity"):
        assert part in str(error)
    assert len(targets(one)[0]) == 300, "nothing of the refused range is visible"
    one.source("UPDATE {t} SET day = '2000-01-01' WHERE id = 77")
    again = one.run()
    assert again.good, again.errors
    assert [len(rows) for rows in targets(one)] == [500, 500]


def test_the_password_is_in_no_command_line_and_no_environment(
    ferry: Make, artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    shown = "/proc/$$/cmdline /proc/$$/environ freetds.conf"
    script = f'cat {shown} >> {seen}; exec $TOOL "$@"'
    wrapper(tmp_path, script, monkeypatch)
    one = ferry(chain("text"), *TABLE)
    view = one.run()
    assert view.good, view.errors
    password = str(one.session.servers.endpoints["sqlserver"].settings().password)
    text = seen.read_bytes()
    assert one.table.encode() in text
    assert password.encode() not in text


def test_a_missing_tool_is_told_when_planning(ferry: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_BCP", "/nowhere/bcp")
    one = ferry(chain("text"), *TABLE)
    with pytest.raises(InputError, match=r"freetds-bin or Microsoft's mssql-tools18"):
        runner.plan(one.session, one.table)


def test_columns_without_an_exact_text_are_told_when_planning(ferry: Make) -> None:
    one = ferry(chain("text"), "CREATE TABLE {t} (id integer PRIMARY KEY, x float8, b bytea)")
    with pytest.raises(InputError, match=r"hop 2 cannot use .* text for b: .*'wire: arrow'"):
        runner.plan(one.session, one.table)


def test_a_full_disk_is_told_with_the_folder(
    ferry: Make, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BYTES, str(os.statvfs("/").f_blocks * os.statvfs("/").f_frsize * 100))
    one = ferry(chain("text"), *TABLE)
    view = one.run()
    assert not view.good
    assert f"artifact folder {artifacts}" in view.errors[0]
    assert "bytes are needed" in view.errors[0]
