"""URLs and fields of connections; nothing that is printed shows a secret."""

from __future__ import annotations

from urllib.parse import quote

import dagster as dg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tableferry.pipelines.component.connections import endpoints
from tableferry.resources import registry
from tableferry.resources.connecting.resource import ConnectionSettings, parse_url
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.settings import conninfo

SECRET = "p@ss/w:rd?"
ENCODED = "p%40ss%2Fw%3Ard%3F"
NOT_SECURE = {"secure": "no"}


@pytest.mark.parametrize(
    ("system", "url", "expected"),
    [
        ("postgres", "postgresql://u:p@h:1/d", ("h", 1, "d", "u", "p", {})),
        ("postgres", "postgres://h", ("h", 5432, "postgres", None, None, {})),
        (
            "postgres",
            f"postgresql://a%40b:{ENCODED}@h/my%20db?sslmode=require",
            ("h", 5432, "my db", "a@b", SECRET, {"sslmode": "require"}),
        ),
        ("postgres", "postgresql://u:p@[::1]:9/d", ("::1", 9, "d", "u", "p", {})),
        ("postgres", "postgresql://u:w:rd#@%x@h/d", ("h", 5432, "d", "u", "w:rd#@%x", {})),
        ("postgres", "postgresql://u@h", ("h", 5432, "u", "u", None, {})),
        ("postgres", "postgresql://%2Frun%2Fpg/d", ("/run/pg", 5432, "d", None, None, {})),
        (
            "postgres",
            "postgresql:///d?host=/run/pg&port=7&user=a@b&password=p+%25%26",
            ("/run/pg", 7, "d", "a@b", "p+%&", {}),
        ),
        ("clickhouse", "http://h?user=u&password=p", ("h", 8123, "default", "u", "p", NOT_SECURE)),
        (
            "sqlserver",
            "mssql://sa:p@h/db?encrypt=strict&trust_server_certificate=yes",
            ("h", 1433, "db", "sa", "p", {"encrypt": "strict", "trust_server_certificate": "yes"}),
        ),
        ("clickhouse", "http://h", ("h", 8123, "default", None, None, NOT_SECURE)),
        ("clickhouse", "https://u:@h/d", ("h", 8443, "d", "u", "", {"secure": "yes"})),
    ],
)
def test_urls_are_read(system: str, url: str, expected: tuple[object, ...]) -> None:
    found = parse_url(registry.system(system), url)
    assert (
        found.host,
        found.port,
        found.database,
        found.user,
        found.password,
        found.options,
    ) == expected


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://h1:1,h2,[::1]:3/d", "postgres at h1:1,h2:5432,[::1]:3"),
        ("postgresql://h1,h2/d?port=7", "postgres at h1:7,h2:7"),
        ("postgresql:///d?host=h1,::1&port=7,8", "postgres at h1:7,[::1]:8"),
    ],
)
def test_hosts_are_listed_as_libpq_has_them(url: str, address: str) -> None:
    settings = parse_url(registry.system("postgres"), url)
    assert settings.address == address
    given, passed = conninfo_to_dict(url), conninfo_to_dict(conninfo(settings))
    assert (passed["host"], passed["dbname"]) == (given["host"], "d")
    ports = str(given["port"]).split(",")
    assert set(str(passed["port"]).split(",")) == {port or "5432" for port in ports}


@pytest.mark.parametrize(
    ("system", "url", "message"),
    [
        ("sqlserver", "mssql://sa:w:rd@h1,h2/d", "it names 2 hosts"),
        ("clickhouse", "http://u:w:rd@h1,h2/d", "it names 2 hosts"),
        ("sqlserver", "mssql://sa:w:rd@h\\SQLEXPRESS/d", "instead of a named instance"),
        ("sqlserver", "mssql://sa:1/w:rd@h/d", "should be percent-encoded"),
        ("clickhouse", "clickhouse://u:w:rd@h/d", "found 'clickhouse' instead"),
        ("clickhouse", "http://u:w:rd@", "it names no host"),
    ],
)
def test_what_other_urls_cannot_say_is_told(system: str, url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        parse_url(registry.system(system), url)
    assert "w:rd" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"mysql://u:{ENCODED}@h/d", "found 'mysql' instead"),
        (f"u:{ENCODED}@h", "found no scheme instead"),
        (f"postgresql://u:{ENCODED}@/d", "it names no host"),
        (f"postgresql://u:{ENCODED}@h:port/d", "its host or port cannot be read"),
        (f"postgresql://u:{SECRET}@h:1/d", "should be percent-encoded: .*/ as %2F"),
        ("postgresql://u:1?w:rd=x@h:1/d", "should be percent-encoded"),
        ("postgresql://u:1/w:rd@h:1/d", "should be percent-encoded"),
        ("postgresql://u:w:rd/x", "should be percent-encoded"),
        ("postgresql://h:1,h:w:rd/x", "its host or port cannot be read"),
        ("postgresql:///d?user=u&password=w:rd", "it names no host"),
        ("postgresql://h1,h2,h3/d?port=1,2&password=w:rd", "names 3 hosts and 2 ports"),
        ("postgresql://u:w:rd@h:99999/d", "its host or port cannot be read"),
    ],
)
def test_a_wrong_url_is_refused_without_repeating_it(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_url(registry.system("postgres"), url)
    assert "ss%2Fw" not in str(caught.value) and "w:rd" not in str(caught.value)


def test_nothing_that_is_printed_shows_the_password() -> None:
    settings = parse_url(
        registry.system("postgres"), f"postgresql://someone:{ENCODED}@h:1/d?password=other"
    )
    resource = PostgresResource(url=f"postgresql://someone:{ENCODED}@h:1/d", password=SECRET)
    for printed in (str(settings), repr(settings), str(resource), repr(resource)):
        assert "ss" not in printed.replace("postgres", "").replace("password", "")
        assert "someone" not in printed


def test_driver_messages_are_redacted_and_on_one_line() -> None:
    settings = ConnectionSettings("postgres", "h", 1, "d", "u", SECRET)
    error = settings.failed(f"no\n\tway with {SECRET} or {ENCODED}")
    assert str(error) == "cannot connect to postgres at h:1: no way with *** or ***"
    assert isinstance(error, TableferryError)


def test_separate_fields_win_over_the_url() -> None:
    resource = PostgresResource(url="postgresql://u:p@h:1/d", port=2, database="e", password="q")
    settings = resource.settings()
    assert (settings.host, settings.port, settings.database) == ("h", 2, "e")
    assert (settings.user, settings.password) == ("u", "q")


def test_environment_variables_are_looked_up_outside_of_dagster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("E_URL", "postgresql://u:p@h:1/d")
    monkeypatch.setenv("E_PORT", "77")
    resource = PostgresResource(url=dg.EnvVar("E_URL"), port=dg.EnvVar.int("E_PORT"))
    assert (resource.settings().host, resource.settings().port) == ("h", 77)
    monkeypatch.delenv("E_URL")
    with pytest.raises(InputError, match="the environment variable E_URL is not set"):
        resource.settings()


def test_a_resource_without_an_address_is_refused() -> None:
    with pytest.raises(InputError, match="should be given url or host"):
        PostgresResource().settings()


@pytest.mark.parametrize("password", ["e", "s", "ab", "@", "is"])
def test_a_short_password_is_removed_where_passwords_stand_and_leaves_prose_alone(
    password: str,
) -> None:
    settings = ConnectionSettings("postgres", "h", 1, "d", "u", password)
    encoded = quote(password, safe="")
    places = {
        f"postgresql://u:{encoded}@h:1/d refused": "postgresql://u:***@h:1/d refused",
        f'invalid password "{password}" for u': 'invalid password "***" for u',
        f"host=h password={password} user=u": "host=h password=*** user=u",
        f"Pwd={{{password}}};Server=h": "Pwd={***};Server=h",
        f"wrong password: {password}": "wrong password: ***",
    }
    assert {text: settings.redact(text) for text in places} == places
    prose = "relation orders already exists, passed by a user@host: see the tables"
    assert settings.redact(prose) == prose


@pytest.mark.parametrize(
    ("system", "name", "instead"),
    [
        ("sqlserver", "packet_size", "packets have 8,000 bytes"),
        ("clickhouse", "compression", "ssh -C"),
        ("sqlserver", "bcp", "set the variable TABLEFERRY_BCP"),
        ("sqlserver", "artifact_bytes", "set the variable TABLEFERRY_ARTIFACT_BYTES"),
    ],
)
def test_what_is_gone_is_refused_with_what_to_do_instead(
    system: str, name: str, instead: str
) -> None:
    resource = registry.system(system).dagster_resource
    scheme = next(iter(registry.system(system).schemes))
    says = f"^{system}: {name} is gone: .*{instead}"
    with pytest.raises(InputError, match=says):
        resource(url=f"{scheme}://h/d", **{name: "1"})
    with pytest.raises(InputError, match=f"^connections: s: {says[1:]}"):
        endpoints({"s": {"url": f"{scheme}://h/d", name: "1"}})
    server = resource(url=f"{scheme}://h/d?{name}=1")
    with pytest.raises(InputError, match=says):
        server.encryption()
        server._client(server.settings())
