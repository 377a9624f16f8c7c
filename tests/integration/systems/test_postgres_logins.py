"""Logins that libpq makes by itself: certificates, and Kerberos, which ADBC's has not."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import trustme

from tableferry.assets.log import ledger
from tableferry.resources.contract.catalog import Use
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import ConnectionFailed, InputError
from tableferry.resources.postgres.health import findings
from tableferry.resources.postgres.resource import PostgresResource
from tableferry_local.postgres import _run_as
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
ROWS = "SELECT g AS id, 'é' || g AS name FROM generate_series(1, 1000) g"


@contextmanager
def debians(hba: str, *settings: str, files: dict[str, bytes]) -> Iterator[int]:
    """A PostgreSQL of Debian's package, which has TLS and GSS; yields its port."""
    if not PROGRAMS:
        pytest.skip("no package postgresql is installed: the wheel's has neither TLS nor GSS")
    user, group = _run_as() or (None, None)
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        folder = Path(name)
        if user is not None and group is not None:
            os.chown(folder, user, group)
        # of a Kerberos test: the server's user cannot read, or write, where the test's own are
        environment = {
            **os.environ,
            "KRB5_CONFIG": f"{folder}/data/krb5.conf",
            "KRB5RCACHEDIR": name,
        }
        run = {
            "env": environment,
            "user": user,
            "group": group,
            "extra_groups": [] if user is not None else None,
        }
        command = [PROGRAMS[-1] / "initdb", "-D", folder / "data", "-U", "admin", "--no-sync"]
        subprocess.run([*command, "-E", "UTF8"], check=True, capture_output=True, cwd=name, **run)
        for file, content in files.items():
            path = folder / "data" / file
            path.write_bytes(content)
            path.chmod(0o600)
            if user is not None and group is not None:
                os.chown(path, user, group)
        (folder / "data" / "pg_hba.conf").write_text(f"local all admin trust\n{hba}\n")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [PROGRAMS[-1] / "postgres", "-D", folder / "data", "-p", str(port), "-k", name]
        options = [f"--{one}" for one in ("fsync=off", "listen_addresses=localhost", *settings)]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen([*command, *options], cwd=name, stderr=log, **run)
        try:
            place = f"host={name} port={port} user=admin dbname=postgres"
            for _ in range(300):
                with (
                    suppress(psycopg.OperationalError),
                    psycopg.connect(place, autocommit=True) as admin,
                ):
                    admin.execute("CREATE ROLE ferry LOGIN; GRANT CREATE ON SCHEMA public TO ferry")
                    break
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
            yield port
        finally:
            server.send_signal(signal.SIGINT)  # which ends sessions, too
            server.wait()


def reads_all(server: PostgresResource) -> None:
    """By psycopg, ADBC and COPY."""
    assert server.query(f"SELECT count(*) FROM ({ROWS}) q") == [(1000,)]
    with server.read_arrow(ROWS) as reader:
        assert reader.read_all().num_rows == 1000
    with server.read_text(ROWS) as chunks:
        assert b"".join(chunks).count(b"\n") == 1000


def login(server: PostgresResource) -> str:
    return next(one.says for one in findings(server, Use()) if one.subject == "login")


def test_a_client_certificate_logs_in(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", common_name="localhost")
    ours = authority.issue_cert("ferry@example.com", common_name="ferry")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    ours.cert_chain_pems[0].write_to_path(tmp_path / "our.pem")
    ours.private_key_pem.write_to_path(tmp_path / "our.key")
    (tmp_path / "our.key").chmod(0o600)
    files = {
        "server.crt": certificate.cert_chain_pems[0].bytes(),
        "server.key": certificate.private_key_pem.bytes(),
        "ca.pem": authority.cert_pem.bytes(),
    }
    hba = "hostssl all ferry localhost cert"
    with debians(hba, "ssl=on", "ssl_ca_file=ca.pem", files=files) as port:
        url = f"postgresql://ferry@localhost:{port}/postgres?sslmode=verify-full"
        url += f"&sslrootcert={tmp_path}/ca.pem"
        server = PostgresResource(url=f"{url}&sslcert={tmp_path}/our.pem&sslkey={tmp_path}/our.key")
        reads_all(server)
        assert login(server).startswith("ferry, by the certificate /")
        with pytest.raises(ConnectionFailed, match="certificate"):
            PostgresResource(url=url).ping()


def programs(*names: str) -> list[str]:
    """Paths of Kerberos' programs, which Debian has in krb5-kdc and krb5-user."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    found = [shutil.which(name, path=path) for name in names]
    if None in found:
        pytest.skip(f"Kerberos' programs are not installed: {', '.join(names)}")
    return [str(one) for one in found]


def test_a_kerberos_ticket_logs_in(
    ferry: Callable[..., Ferry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc, admin, database, kinit = programs("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
    plugins = next(Path(kdc).parents[1].glob("lib/*/krb5/plugins/kdb"))
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "krb5.conf").write_text(
        "[libdefaults]\n default_realm = FERRY.TEST\n dns_lookup_kdc = false\n rdns = false\n"
        " dns_canonicalize_hostname = false\n"
        f"[realms]\n FERRY.TEST = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        f"[dbmodules]\n db_module_dir = {plugins}\n"
    )
    (tmp_path / "kdc.conf").write_text(
        f"[realms]\n FERRY.TEST = {{\n  database_name = {tmp_path}/principal\n"
        f"  key_stash_file = {tmp_path}/stash\n  kdc_listen = 127.0.0.1:{port}\n"
        f"  kdc_tcp_listen = 127.0.0.1:{port}\n }}\n[logging]\n kdc = FILE:{tmp_path}/kdc.log\n"
    )
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    monkeypatch.setenv("KRB5_KDC_PROFILE", str(tmp_path / "kdc.conf"))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")

    def run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)

    run(database, "create", "-s", "-r", "FERRY.TEST", "-P", "m4ster")
    for principal, keytab in (("postgres/localhost", "server"), ("ferry", "ours")):
        run(admin, "-q", f"addprinc -randkey {principal}")
        run(admin, "-q", f"ktadd -k {tmp_path}/{keytab}.keytab {principal}")
    keys = {name: (tmp_path / name).read_bytes() for name in ("server.keytab", "krb5.conf")}
    hba = "host all ferry localhost gss include_realm=0"
    serving = subprocess.Popen([kdc, "-n"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with debians(hba, "krb_server_keyfile=server.keytab", files=keys) as server_port:
            url = f"postgresql://ferry@localhost:{server_port}/postgres?gssencmode=prefer"
            with pytest.raises(ConnectionFailed):
                PostgresResource(url=url).ping()
            run(kinit, "-k", "-t", f"{tmp_path}/ours.keytab", "ferry")
            server = PostgresResource(url=url)
            assert server.query("SELECT 1") == [(1,)]
            with server.read_text(ROWS) as chunks:
                assert b"".join(chunks).count(b"\n") == 1000
            with pytest.raises(ConnectionFailed, match="'wire: text'"), server.read_arrow(ROWS):
                pass
            with pytest.raises(InputError, match="ADBC's libpq does not have"):
                source_of(server.system).require_tools(server, "arrow")
            found = {one.subject: one.says for one in findings(server, Use())}
            assert found["login"] == "ferry, by Kerberos"
            assert found["TLS"].startswith("GSSAPI")
            server.execute(f"CREATE TABLE public.ours AS {ROWS}")
            server.execute("ALTER TABLE public.ours ADD PRIMARY KEY (id)")
            monkeypatch.setenv("TABLEFERRY_CONNECTION_REALM", url)
            one = ferry("[clickhouse://warehouse.{t}]", "CREATE TABLE {t} (id int)")
            one.declare("[clickhouse://warehouse.{t}]", source="realm://public.ours")
            (note,) = [note for note in one.plan().notes if "Kerberos" in note]
            assert "wire auto is text here: arrow cannot be used" in note
            view = one.run()
            assert view.good, view.errors
            (hop,) = one.session.transfer(one.table).hops
            names = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
            records = ledger.records(one.session.instance, hop.to, names).values()
            moved = [record for record in records if record.rows]
            assert {record.wire for record in moved} == {"text"}
            assert moved and all("Kerberos" in str(record.wire_because) for record in moved)
            one.declare("[realm://public.copied]", source=f"clickhouse://warehouse.{one.table}")
            with pytest.raises(InputError, match=r"cannot use the wire format arrow .*Kerberos"):
                one.plan()
    finally:
        serving.terminate()
        serving.wait()
