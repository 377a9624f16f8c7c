"""What is refused before anything moves, and where commands look for what was recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver.policies import is_babelfish
from tableferry.resources.sqlserver.server import SqlServerServer
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command
from tests.servers import own

SOURCE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text, price numeric(10,2), day date)",
    "INSERT INTO {t} SELECT i, 'n' || i, i, '2024-01-01' FROM generate_series(1, 100) i",
)


def test_a_clickhouse_database_that_is_not_there_is_refused_and_not_made(
    ferry: Callable[..., Ferry],
) -> None:
    one = ferry("['clickhouse://warehuose.{t}']", *SOURCE)
    file = one.folder / "t.yaml"
    refusal = "there is no database 'warehuose' on clickhouse at "
    for arguments in (["plan", one.table], ["run", one.table], ["validate"]):
        result = command(*arguments)
        assert result.exit_code == 2, result.output
        assert refusal in result.output
    assert f"{file}:2: clickhouse://warehuose.{one.table}: {refusal}" in command("validate").stdout
    with pytest.raises(InputError, match=refusal):
        one.run()
    databases = one.session.servers.endpoints["clickhouse"].query(
        "SELECT name FROM system.databases"
    )
    assert ("warehuose",) not in databases


def test_validate_names_all_wrong_columns_by_line(ferry: Callable[..., Ferry]) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        *SOURCE,
        columns="{nope: {}, other: {}}",
        exclude="[gone]",
    )
    file = one.folder / "t.yaml"
    out = command("validate").stdout
    assert f"{file}:5: there is no column 'nope'" in out
    assert f"{file}:5: there is no column 'other'" in out
    assert f"{file}:6: there is no column 'gone'; there are day, id, note, price" in out
    one.declare(
        "['clickhouse://warehouse.{t}']",
        columns="\n  note: {type: Int32}\n  price: {type: Float32}\n  id: {on_overflow: clamp}",
    )
    document = json.loads(command("validate", "--json").stdout)
    lines = [line.split(": ")[0] for line in document["transfers"][one.table]]
    assert lines == [f"{file}:6", f"{file}:7", f"{file}:8"]


def test_validate_lets_clickhouse_read_what_only_it_understands(
    ferry: Callable[..., Ferry],
) -> None:
    hop = "{{to: 'clickhouse://warehouse.{t}', partition_by: 'toYYYYMM(day'}}"
    one = ferry(f"[{hop}]", *SOURCE)
    result = command("validate")
    assert result.exit_code == 2
    assert f"{one.folder}/t.yaml:2: " in result.stdout
    assert "engine, order_by or partition_by cannot be parsed" in result.stdout
    one.declare(f"[{hop.replace('day', 'day)')}]")
    assert command("validate").exit_code == 0


def test_upsert_without_a_primary_key_is_refused_at_plan_time(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE, exclude="[id]", key="day")
    one.declare("['clickhouse://warehouse.{t}']", exclude="[id]", key="day", write="upsert")
    result = command("validate")
    assert result.exit_code == 2
    assert "upsert needs a primary key" in result.stdout


def test_every_folder_finds_what_was_recorded(
    ferry: Callable[..., Ferry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        monkeypatch.setenv("DAGSTER_HOME", "")
        result = command("run", one.table)
        assert result.exit_code == 0, result.output
        assert ("Dagster's event log is in" in result.stderr) is (folder == "here")
        assert not list((tmp_path / folder).iterdir())
    document = json.loads(command("plan", one.table, "--json").stdout)
    assert {view["state"] for view in document["ranges"]} == {"skip"}
    assert (tmp_path / "state" / "tableferry" / "dagster" / "dagster.yaml").is_file()


def test_a_bad_file_stops_no_run_of_another_transfer(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE)
    (one.folder / "bad.yaml").write_text("transfer: bad\nschedule: every day\n", encoding="utf-8")
    result = command("run", one.table)
    assert result.exit_code == 0, result.output
    assert "left out" in result.stderr
    assert "bad.yaml" in result.stderr
    assert command("validate").exit_code == 2
    assert command("validate", one.table).exit_code == 0


def test_a_run_that_drift_will_stop_is_foretold(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE)
    assert one.run().good
    one.source("ALTER TABLE {t} DROP COLUMN note")
    refusal = f"postgres://public.{one.table} no longer has 'note'"
    assert f"a run will be refused: {refusal}" in command("plan", one.table).output
    result = command("validate")
    assert result.exit_code == 2
    assert f"{one.folder}/t.yaml:2: {refusal}" in result.stdout
    assert refusal in command("run", one.table).output
    one.declare("['clickhouse://warehouse.{t}']", on_schema_drift="add_columns")
    assert "refused" not in command("plan", one.table).output
    assert command("validate").exit_code == 0, command("validate").output
    assert one.run().good
    one.source("ALTER TABLE {t} ADD COLUMN more int")
    assert one.run().good
    one.source("ALTER TABLE {t} ALTER COLUMN more TYPE text")
    refusal = f"clickhouse://warehouse.{one.table}: column 'more': is "
    assert f"a run will be refused: {refusal}" in command("plan", one.table).output
    assert refusal in command("validate", one.table).output
    assert command("run", one.table).exit_code in (1, 2)


@pytest.mark.parametrize(
    ("hop", "made", "refusal"),
    [
        (
            "postgres://{s}.{t}",
            "CREATE TABLE {s}.{t} (id int PRIMARY KEY, note text, day date)",
            "{hop} does not fit the transfer: column 'price' (numeric(10,2)) is missing",
        ),
        (
            "postgres://{s}.{t}",
            "CREATE TABLE {s}.{t} (id int, note text, price numeric(10,2), day date,"
            " must int NOT NULL)",
            "{hop} has columns that the transfer does not write and that must not be NULL: 'must'",
        ),
        (
            "sqlserver://dbo.{t}",
            "CREATE TABLE dbo.{t} (id int NOT NULL, note nvarchar(max), price decimal(10,2),"
            " day date, must int NOT NULL)",
            "{hop} has columns that the transfer does not write and that must not be NULL: 'must'",
        ),
        (
            "clickhouse://warehouse.{t}",
            "CREATE TABLE warehouse.{t} (id Int32, note Nullable(String),"
            " price Nullable(Decimal(10, 2)), day Nullable(Date32)) ENGINE = Log",
            "{hop}: engine Log: cannot delete and replace rows. Use one of the MergeTree family",
        ),
    ],
)
def test_validate_plan_and_run_refuse_in_the_same_words(
    ferry: Callable[..., Ferry], copies: str, hop: str, made: str, refusal: str
) -> None:
    one = ferry(f"['{hop.replace('{s}', copies)}']", *SOURCE, ranges="{count: 1}")
    system, names = hop.partition("://")[0], {"s": copies, "t": one.table}
    if system == "postgres":
        one.source(f"CREATE SCHEMA {copies}")
    looking.run(one.stack, system, made.format(**names))
    refusal = refusal.format(hop=hop.format(**names))
    validated, planned = command("validate"), command("plan", one.table)
    assert (validated.exit_code, planned.exit_code) == (2, 1), planned.output
    assert f"{one.folder}/t.yaml:2: {refusal}" in validated.stdout
    assert f"a run will be refused: {refusal}" in planned.stdout
    assert f"2 ranges will be refused: {refusal}" in planned.stderr
    assert "only rows that differ" not in planned.stdout
    document = json.loads(command("plan", one.table, "--json").stdout)
    assert {each["state"] for each in document["ranges"]} == {"refused"}
    assert not document["ok"] and refusal in document["errors"][0]
    fleet = command("plan", "--all")
    assert fleet.exit_code == 1 and refusal in fleet.stderr
    ran = command("run", one.table)
    assert ran.exit_code in (1, 2) and refusal in ran.stderr


@pytest.mark.parametrize(
    ("hop", "made", "required"),
    [
        (
            "postgres://{s}.{t}",
            "CREATE TABLE {s}.{t} (id int PRIMARY KEY, memo text, price numeric(5,2), day int,"
            " must int NOT NULL)",
            ["'memo', 'must'", "must not be NULL: 'must'"],
        ),
        (
            "sqlserver://dbo.{t}",
            "CREATE TABLE dbo.{t} (id int NOT NULL, memo nvarchar(max), price decimal(5,2),"
            " day int, must int NOT NULL)",
            ["'memo', 'must'", "must not be NULL: 'must'"],
        ),
        (
            "clickhouse://warehouse.{t}",
            "CREATE TABLE warehouse.{t} (id Int32, memo Nullable(String),"
            " price Nullable(Decimal(5, 2)), day Nullable(Int32)) ENGINE = MergeTree ORDER BY id",
            ["'memo'"],
        ),
    ],
)
def test_all_that_does_not_fit_is_told_at_once(
    ferry: Callable[..., Ferry], copies: str, hop: str, made: str, required: list[str]
) -> None:
    one = ferry(f"['{hop.replace('{s}', copies)}']", *SOURCE)
    system, names = hop.partition("://")[0], {"s": copies, "t": one.table}
    if system == "postgres":
        one.source(f"CREATE SCHEMA {copies}")
    looking.run(one.stack, system, made.format(**names))
    for words in (("plan", one.table), ("run", one.table)):
        told = command(*words).stderr
        for part in ["'price': is", "'day': is", "'note' (", "is missing; set", *required]:
            assert part in told, (part, told)


def test_a_target_that_a_run_makes_anew_is_valid(ferry: Callable[..., Ferry]) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id int PRIMARY KEY, tags text[])",
        "INSERT INTO {t} VALUES (1, '{{a}}'), (2, NULL)",
    )
    assert not one.run().good
    one.declare("['clickhouse://warehouse.{t}']", columns="{tags: {type: String}}")
    assert command("validate").exit_code == 0, command("validate").output
    planned = command("plan", one.table)
    assert planned.exit_code == 0 and "a run will recreate it" in planned.stdout
    assert one.run().good


def test_a_check_without_its_tables_says_which(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE)
    assert one.run().good
    one.source("ALTER TABLE {t} RENAME TO {t}_gone")
    try:
        ended = [command(name, one.table) for name in ("check", "plan", "run")]
        assert ended[0].stderr.startswith(f"ferry: postgres://public.{one.table} does not exist in")
        assert f"{one.table}_gone" in ended[0].stderr, "which may have been meant"
        assert [one.exit_code for one in ended] == [2, 2, 2]
    finally:
        one.source("ALTER TABLE {t}_gone RENAME TO {t}")


def test_a_target_that_may_not_be_made_is_named(
    ferry: Callable[..., Ferry], monkeypatch: pytest.MonkeyPatch
) -> None:
    role = own("limited")
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        *SOURCE,
        f"CREATE ROLE {role} LOGIN PASSWORD 'un5een'",
        f"CREATE SCHEMA {role}",  # where no other test has made markers
        f"GRANT USAGE ON SCHEMA {role} TO {role}",
    )
    place = urlsplit(one.stack.postgres_url)
    limited = place._replace(netloc=f"{role}:un5een@{place.netloc.rpartition('@')[2]}")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_LIMITED", limited.geturl())
    try:
        one.declare(f"['limited://{role}.{{t}}_copy']")
        (error,) = one.run().errors
        assert error.startswith(f"limited://{role}.{one.table}_copy: postgres (42501): permission")
    finally:
        one.source(f"DROP SCHEMA {role}", f"DROP ROLE {role}")


def test_ranges_that_do_not_go_with_the_key_are_refused_by_line(
    ferry: Callable[..., Ferry],
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE, key="note", ranges="{width: 5}")
    says = "a text key has no width"
    assert f"{one.folder}/t.yaml:5: {says}" in command("validate").stdout
    assert command("plan", one.table).stderr.startswith(f"ferry: {one.table}: ranges: {says}")
    one.declare("['clickhouse://warehouse.{t}']", ranges="{width: month}")
    assert "t.yaml:5: a range width of 'month' needs" in command("validate").stdout
    one.declare("['clickhouse://warehouse.{t}']", key="day", ranges="{width: month}")
    assert command("validate").exit_code == 0, command("validate").output


def test_a_uuid_is_a_uuid_in_errors(ferry: Callable[..., Ferry]) -> None:
    key = "dd2c7955-2c00-4000-8000-0000000000ff"
    one = ferry(
        "[{{to: 'clickhouse://warehouse.{t}', wire: arrow}}]",
        "CREATE TABLE {t} (id uuid PRIMARY KEY, day date)",
        f"INSERT INTO {{t}} VALUES ('{key}', '-infinity')",
    )
    ran = command("run", one.table)
    assert ran.exit_code == 1
    for shown in (ran.stderr, command("status", one.table, "--json").stdout):
        assert f"column 'day', key '{key}': value '-infinity'" in shown


def test_a_login_with_some_columns_moves_these(
    ferry: Callable[..., Ferry], monkeypatch: pytest.MonkeyPatch
) -> None:
    role = own("some_columns")
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id int PRIMARY KEY, open text, secret text)",
        "INSERT INTO {t} SELECT i, 'o', 's' FROM generate_series(1, 20) i",
        f"CREATE ROLE {role} LOGIN PASSWORD 'un5een'",
        f"GRANT SELECT (id, open) ON {{t}} TO {role}",
    )
    url = urlsplit(one.stack.postgres_url)
    login = f"{role}:un5een@{url.hostname}:{url.port}"
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", url._replace(netloc=login).geturl())
    (one.folder / "t.yaml").unlink()
    try:
        arguments = ("--from", "postgres", "--tables", f"public.{one.table}")
        to = "clickhouse://warehouse.{table}"
        written = command("init", *arguments, "--to", to, "--output", str(one.folder))
        assert written.exit_code == 0, written.output
        assert f"{one.table}.secret: this login may not read it (SELECT)" in written.stdout
        assert "exclude: [secret]" in (one.folder / f"{one.table}.yaml").read_text()
        ran = command("run", one.table)
        assert ran.exit_code == 0, ran.output
        (one.folder / f"{one.table}.yaml").unlink()
        looking.ask_clickhouse(one.stack.clickhouse_url, f"DROP TABLE warehouse.{one.table} SYNC")
        many = one.folder / "many.yaml"
        many.write_text(
            f'tables: "postgres://public.{one.table}"\nhops: ["clickhouse://warehouse.{{table}}"]\n'
        )
        refreshed = command("refresh")
        assert refreshed.exit_code == 0, refreshed.output
        review = f"review 1 column, public.{one.table}.secret: this login may not read it (SELECT)"
        assert review in refreshed.stdout
        ran = command("run", one.table)
        assert ran.exit_code == 0, ran.output
        for file in (many, one.folder / "many.lock.yaml"):
            file.unlink()
        looking.ask_clickhouse(one.stack.clickhouse_url, f"DROP TABLE warehouse.{one.table} SYNC")
        one.declare("['clickhouse://warehouse.{t}']")
        refusal = f"column 'secret': \"{role}\" may not read it (SELECT); GRANT SELECT"
        for arguments in (["validate"], ["plan", one.table], ["run", one.table]):
            refused = command(*arguments)
            assert refused.exit_code == 2, refused.output
            assert refusal in refused.output and "'exclude: [secret]'" in refused.output
        one.source(f"REVOKE ALL ON {{t}} FROM {role}")
        refused = command("validate")
        assert (
            refused.exit_code == 2
            and f'TO "{role}", and in PostgreSQL GRANT USAGE' in refused.output
        )
    finally:
        one.source(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("wire", ["arrow", "text"])
def test_a_row_of_a_composite_key_is_named_by_all_of_it(
    ferry: Callable[..., Ferry], wire: str
) -> None:
    one = ferry(
        "[{{to: 'clickhouse://warehouse.{t}', wire: " + wire + "}}]",
        "CREATE TABLE {t} (sensor int, tick int, value numeric(9, 2), PRIMARY KEY (sensor, tick))",
        "INSERT INTO {t} VALUES (0, 6, 1), (0, 7, 'NaN')",
        key="sensor",
    )
    assert "column 'value', key '0, 7': value " in one.run().errors[0]


QUERY = SqlServerServer.query


def test_a_column_that_sql_server_denies_is_named(
    ferry: Callable[..., Ferry], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *SOURCE)
    if is_babelfish(one.session.servers.endpoints["sqlserver"]):
        pytest.skip("Babelfish is not asked")
    assert one.run().good
    one.declare("['clickhouse://warehouse.{t}']", source=f"sqlserver://dbo.{one.table}")
    for arguments in (["validate"], ["plan", one.table]):
        ended = command(*arguments)
        assert ended.exit_code == 0, ended.output
    permitted(monkeypatch, "CASE c.name WHEN 'note' THEN 0 ELSE 1 END")
    for arguments in (["validate"], ["plan", one.table], ["run", one.table]):
        ended = command(*arguments)
        assert ended.exit_code == 2, ended.output
        assert "column 'note': \"sa\" may not read it (SELECT); GRANT SEL" in ended.output
        assert f'("note") ON "dbo"."{one.table}" TO "sa", or declare' in ended.output
        assert "'exclude: [note]'" in ended.output
    source = f"sqlserver://dbo.{one.table}"
    one.declare("['clickhouse://warehouse.{t}']", source=source, exclude="[note]")
    assert command("validate").exit_code == 0
    # NULL: the server does not know
    one.declare("['clickhouse://warehouse.{t}']", source=source)
    permitted(monkeypatch, "NULLIF(1, 1)")
    assert command("validate").exit_code == 0


def permitted(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Have SQL Server say what the login may read, as that of the tests owns everything."""
    name = r"\s*QUOTENAME(?:(?!HAS_PERMS)[^;])*?"
    permission = rf"HAS_PERMS_BY_NAME\({name}'OBJECT', 'SELECT', c\.name, 'COLUMN'\)"

    def answering(self: SqlServerServer, sql: str, **more: Any) -> list[tuple[Any, ...]]:
        return QUERY(self, re.sub(permission, answer, sql), **more)

    monkeypatch.setattr(SqlServerServer, "query", answering)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("CASE c.name WHEN 'note' THEN 0 ELSE 1 END", "{t}.note: this login may not read it"),
        ("0", "dbo.{t}: this login may not read it (SELECT)"),
    ],
)
def test_init_leaves_out_what_sql_server_denies(
    ferry: Callable[..., Ferry], monkeypatch: pytest.MonkeyPatch, answer: str, told: str
) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *SOURCE)
    if is_babelfish(one.session.servers.endpoints["sqlserver"]):
        pytest.skip("Babelfish is not asked")
    assert one.run().good
    (one.folder / "t.yaml").unlink()
    permitted(monkeypatch, answer)
    arguments = ("--from", "sqlserver", "--tables", f"dbo.{one.table}")
    to = "clickhouse://warehouse.{table}"
    written = command("init", *arguments, "--to", to, "--output", str(one.folder))
    assert told.format(t=one.table) in " ".join(written.stdout.split()), written.output
    if answer == "0":
        assert not [*one.folder.glob("*.yaml")]
        return
    assert "exclude: [note]" in (one.folder / f"{one.table}.yaml").read_text()
    ran = command("run", one.table)
    assert ran.exit_code == 0, ran.output


def test_markers_of_another_login_are_named_before_anything_is_written(
    ferry: Callable[..., Ferry], copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = own("second_login")
    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops, "CREATE TABLE {t} (id int PRIMARY KEY)", "INSERT INTO {t} VALUES (1)")
    assert command("run", one.table).exit_code == 0
    other = f"{one.table}_other"
    one.source(
        f"CREATE ROLE {role} LOGIN PASSWORD 'un5een'",
        f"GRANT USAGE, CREATE ON SCHEMA {copies} TO {role}",
        f"GRANT SELECT ON {{t}} TO {role}",
    )
    url = urlsplit(one.stack.postgres_url)
    login = f"{role}:un5een@{url.hostname}:{url.port}"
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", url._replace(netloc=login).geturl())
    one.declare(f"['postgres://{copies}.{other}']")
    markers = f'"{copies}"."__ferry_ranges"'
    try:
        for grants in ((), ("SELECT",)):
            for grant in grants:
                one.source(f"GRANT {grant} ON {markers} TO {role}")
            for arguments in (["validate"], ["plan", one.table], ["run", one.table]):
                refused = command(*arguments)
                assert refused.exit_code == 2, refused.output
                assert f"copies.{other}: " in refused.output.replace(copies, "copies")
                grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON {markers} TO"
                assert grant in refused.output and role in refused.output
        one.source(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {markers} TO {role}")
        ran = command("run", one.table)
        assert ran.exit_code == 0, ran.output
        one.source(f"REVOKE INSERT ON {markers} FROM {role}")
        assert command("check", one.table).exit_code == 0, "it reads alone"
        one.declare(f"['postgres://{copies}.{other}']", on_schema_drift="add_columns")
        one.source("ALTER TABLE {t} ADD note text")
        for arguments in (["plan", one.table], ["run", one.table, "--force"]):
            refused = command(*arguments)
            assert refused.exit_code and "GRANT SELECT, INSERT" in refused.output, refused.output
        columns = f"SELECT column_name FROM information_schema.columns WHERE table_name = '{other}'"
        assert looking.ask_postgres(one.stack.postgres_url, columns) == [("id",)]
    finally:
        one.source(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_who_may_not_alter_the_last_target_alters_none(
    ferry: Callable[..., Ferry], copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role, hops = own("no_owner"), f"['clickhouse://warehouse.{{t}}', 'postgres://{copies}.{{t}}']"
    one = ferry(hops, "CREATE TABLE {t} (id int PRIMARY KEY)", "INSERT INTO {t} VALUES (1)")
    assert command("run", one.table).exit_code == 0
    one.source(
        f"CREATE ROLE {role} LOGIN PASSWORD 'un5een'",
        f"GRANT USAGE, CREATE ON SCHEMA {copies} TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {copies} TO {role}",
        f"GRANT SELECT ON {{t}} TO {role}",
        "ALTER TABLE {t} ADD more int",
        "INSERT INTO {t} VALUES (2, 2)",
    )
    url = urlsplit(one.stack.postgres_url)
    login = f"{role}:un5een@{url.hostname}:{url.port}"
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", url._replace(netloc=login).geturl())
    one.declare(hops, on_schema_drift="add_columns")
    try:
        grant = f"GRANT {url.username} TO {role}"
        for arguments in (["plan", one.table], ["run", one.table]):
            refused = command(*arguments)
            assert f'"{role}" may not alter postgres://' in refused.output, refused.output
            assert grant in refused.output
        columns = f"SELECT name FROM system.columns WHERE table = '{one.table}'"
        there = looking.ask_clickhouse(one.stack.clickhouse_url, columns)
        assert "more" not in str(there) and "id" in str(there)
        one.source(grant)
        ran = command("run", one.table)
        assert ran.exit_code == 0, ran.output
    finally:
        one.source(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("part", ["--failed", "--rejected", "--range=1..2"])
@pytest.mark.parametrize("whole", ["--recreate", "--consistent"])
def test_what_is_for_whole_tables_is_not_for_a_part(
    ferry: Callable[..., Ferry], whole: str, part: str
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE)
    refused = command("run", one.table, whole, part)
    assert refused.exit_code == 2
    assert f"{whole} is for whole tables" in refused.stderr and "--rejected" in refused.stderr
