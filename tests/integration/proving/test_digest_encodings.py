"""A database that is not UTF-8: its texts are digested as the UTF-8 that everybody else has."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tableferry.checks.levels import LEVELS
from tableferry.checks.reconcile import reconcile
from tableferry.checks.sides import Comparison
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.digest.probe import dialect
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.tables import TableRef
from tests.servers import own

pytestmark = pytest.mark.integration

NAME = own("latin")
EVERYTHING = KeyRange("integer")


@pytest.fixture(params=["LATIN1", "WIN1251"])
def encoded(request: pytest.FixtureRequest, pg_url: str) -> Iterator[PostgresResource]:
    """A database in another encoding, whose table holds characters that it has beyond ASCII."""
    letter = {"LATIN1": "ÿ", "WIN1251": "я"}[request.param]
    database = f"{NAME}_{request.param.lower()}"
    with psycopg.connect(pg_url, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {database} TEMPLATE template0 ENCODING '{request.param}' "  # type: ignore[arg-type]
            "LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        try:
            server = PostgresResource(url=pg_url, database=database)
            server.execute(
                "CREATE TABLE public.texts (id int PRIMARY KEY, note text, code char(5), "
                "words text[]);"
                f"INSERT INTO public.texts SELECT g, '{letter}~,: ' || g, '{letter}', "
                f"ARRAY['{letter}', NULL] FROM generate_series(1, 20) g"
            )
            yield server
        finally:
            admin.execute(f"DROP DATABASE {database} WITH (FORCE)")  # type: ignore[arg-type]


def test_texts_of_another_encoding_agree_at_every_level(
    encoded: PostgresResource, ch_url: str
) -> None:
    assert dialect(encoded).variant == "converted"
    clickhouse = ClickHouseResource(url=ch_url)
    source = TableRef.parse("postgres://public.texts")
    database = str(clickhouse.query("SELECT currentDatabase()")[0][0])
    target = TableRef("clickhouse", database, NAME)
    plan = plan_copy(source, encoded.columns(source), target, key="id")
    loader, options = ClickHouseTarget(clickhouse), TargetOptions()
    loader.prepare(plan, options)
    try:
        with (
            loader.attempt(Publication(plan, EVERYTHING, "1", "test"), options) as attempt,
            encoded.read_arrow(plan.select(EVERYTHING, "arrow")) as reader,
        ):
            attempt.load_arrow((conform(batch, plan, {}) for batch in reader), schema(plan))
            attempt.finalise()
        both = Comparison(plan, encoded, clickhouse, [EVERYTHING])
        for level in LEVELS:
            verdict = reconcile(both, level)
            assert verdict.passed, (level, verdict.disagreeing)
        encoded.execute("UPDATE public.texts SET note = upper(note) || '°' WHERE id = 7")
        assert not reconcile(both, "checksum").passed
        assert list(both.search().by_column) == ["note"]
    finally:
        clickhouse.execute(f"DROP TABLE {NAME}")
