"""The certificate: what was certified, on which servers, and what was seen."""

from __future__ import annotations

import datetime as dt
import json
import platform
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from tableferry.pipelines.certifying.commands import Ran
from tableferry.pipelines.certifying.ground import Ground
from tableferry.pipelines.reporting.collect import installed_packages
from tableferry.pipelines.reporting.html import Table, markdown, page
from tableferry.resources.contract.settings import ConnectionSettings, without_password
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted, iso_time

SCHEMA_VERSION = 1
"""Incremented when a field of the JSON is removed or changes its meaning; see
docs/certificate.schema.json."""


def certificate_of(
    ground: Ground,
    scenarios: Sequence[Mapping[str, Any]],
    settings: Sequence[Mapping[str, str]],
    seconds: float,
    notes: Sequence[str],
    *,
    with_hosts: bool,
) -> dict[str, Any]:
    """Write down a certification.

    Args:
        ground: what it worked on.
        scenarios: what was tried.
        settings: the settings of each site, asked for while it was there.
        seconds: how long all of it took.
        notes: what else should be known.
        with_hosts: leave the servers' addresses in.

    Returns:
        The certificate's JSON form, without passwords.
    """
    counts = dict.fromkeys(("passed", "failed", "not possible here"), 0)
    for scenario in scenarios:
        counts[scenario["result"]] += 1
    edges, columns = ground.edges, ground.edges.columns
    packages = installed_packages()
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "passed": not counts["failed"],
        "counts": counts,
        "created_at": iso_time(dt.datetime.now(dt.UTC).timestamp()),
        "seconds": round(seconds, 1),
        "rows": ground.rows,
        "tableferry": {"version": packages.pop("tableferry"), "commit": _commit()},
        "packages": {"Python": platform.python_version(), **packages},
        "servers": [
            {
                "connection": site.connection,
                "system": site.endpoint.system_name,
                "role": "target" if site.position else "source",
                "settings": dict(told),
                **({"address": str(site.endpoint.settings())} if with_hosts else {}),
            }
            for site, told in zip(ground.sites, settings, strict=True)
        ],
        "types": {type_: len(edges.literals[type_]) for type_ in columns.values()},
        "types_left_out": edges.left_out,
        "phases": [*_phases(ground.commands.ran)],
        "scenarios": scenarios,
        "failed_statements": ground.source.failures,
        "notes": notes,
        "compared_with": None,
        "differences": [],
    }
    secrets = [site.endpoint.settings() for site in ground.sites]
    return dict(without_secrets(secrets, document, with_hosts=with_hosts))


def _commit() -> str | None:
    """Return the commit that the package was installed from, or that its checkout is at."""
    with suppress(PackageNotFoundError, ValueError):
        origin = json.loads(distribution("tableferry").read_text("direct_url.json") or "{}")
        if commit := origin.get("vcs_info", {}).get("commit_id"):
            return str(commit)
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None


def _phases(commands: Sequence[Ran]) -> Iterator[dict[str, Any]]:
    """Yield what the phases of the full run took, all ranges together, by hop."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    rows: dict[str, int] = defaultdict(int)
    for range_ in commands[0].document.get("ranges", ()) if commands else ():
        rows[range_["target"]] += range_["rows"] or 0
        for phase, took in range_["seconds"].items():
            seconds[range_["target"], phase] += took
    for (target, phase), took in seconds.items():
        rate = round(rows[target] / took) if took else None
        yield {
            "target": target,
            "phase": phase,
            "seconds": round(took, 3),
            "rows_per_second": rate,
        }


def without_secrets(secrets: Sequence[ConnectionSettings], value: Any, *, with_hosts: bool) -> Any:
    """Remove passwords, and hosts unless they are wanted, from all texts of a document."""

    def clean(value: Any) -> Any:
        match value:
            case Mapping():
                return {name: clean(each) for name, each in value.items()}
            case list() | tuple():
                return [clean(each) for each in value]
            case str():
                for settings in secrets:
                    value = without_password(value, settings.password)
                    for host, port in () if with_hosts else settings.hosts:
                        alone = rf"(?<![\w.-]){re.escape(host)}(:{port}\b)?(?![\w-])"
                        value = re.sub(alone, "<host>", value)
        return value

    return clean(value)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Say what differs between two certificates: what was certified, and what was seen."""
    before, after = _facts(old), _facts(new)
    for name in dict.fromkeys((*before, *after)):
        was, is_ = before.get(name, "absent"), after.get(name, "absent")
        if was != is_:
            yield f"{name}: {was} became {is_}"


def _facts(document: Mapping[str, Any]) -> dict[str, object]:
    """Name what is compared of a certificate."""
    parts = {
        **{part: document[part] for part in ("tableferry", "packages")},
        **{server["connection"]: server["settings"] for server in document["servers"]},
        "type": dict.fromkeys(document["types"], "moved"),
        "scenario": {each["name"]: each["result"] for each in document["scenarios"]},
    }
    named = {f"{part} {name}": of[name] for part, of in parts.items() for name in of}
    return {"route": route(document), "rows": document["rows"], **named}


def read(path: Path) -> dict[str, Any]:
    """Read a certificate.

    Raises:
        InputError: the file has none, or one of another version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: it is no certificate: {error}") from None
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(f"{path}: it is no certificate of version {SCHEMA_VERSION}")
    return document


def write(document: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Write a certificate as JSON, Markdown and HTML; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    heading, said, tables = headline(document), summary(document), [*_tables(document)]
    texts = {
        "certificate.json": json.dumps(document, indent=2, ensure_ascii=False) + "\n",
        "certificate.md": markdown(heading, said, tables),
        "certificate.html": page("certificate.html.j2").render(
            good=document["passed"], headline=heading, summary=said, tables=tables
        ),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def route(document: Mapping[str, Any]) -> str:
    """Name the systems, from the source on."""
    return " -> ".join(server["system"] for server in document["servers"])


def headline(document: Mapping[str, Any]) -> str:
    """Name the route and the verdict."""
    return f"{route(document)}: {'passed' if document['passed'] else 'NOT PASSED'}"


def summary(document: Mapping[str, Any]) -> str:
    """Count the scenarios, and say by what and how they were tried."""
    counts, made_by = document["counts"], document["tableferry"]
    commit = f" (commit {made_by['commit']})" if made_by["commit"] else ""
    return (
        f"{counts['passed']} scenarios passed, {counts['failed']} failed, "
        f"{counts['not possible here']} not possible here. Certified "
        f"{document['created_at']} with {counted(document['rows'], 'row')} in "
        f"{document['seconds']} s, by Tableferry {made_by['version']}{commit}."
    )


OF_ITEMS = {
    "scenarios": ("name", "result", "expected", "seen", "seconds"),
    "phases": ("target", "phase", "seconds", "rows_per_second"),
    "types": ("type", "edge values"),
    "types_left_out": ("type", "reason"),
    "failed_statements": ("connection", "message", "statement"),
    "packages": ("package", "version"),
    "notes": ("note",),
    "differences": ("since then",),
}
"""The parts of a certificate that are shown as tables, with the heads of their columns."""


def _tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of a certificate, without empty ones."""
    for server in document["servers"]:
        address = {"address": server["address"]} if "address" in server else {}
        title = f"{server['role'].capitalize()}: {server['connection']}"
        yield title, ("setting", "value"), [*(address | server["settings"]).items()]
    for name, heads in OF_ITEMS.items():
        part, title = document[name], name.replace("_", " ").capitalize()
        if isinstance(part, Mapping):
            rows: list[Sequence[object]] = [*part.items()]
        else:
            rows = [
                [each[head] for head in heads] if isinstance(each, Mapping) else [each]
                for each in part
            ]
        if name == "differences" and document["compared_with"]:
            title = f"Differences from the certificate of {document['compared_with']}"
            rows = rows or [["nothing"]]
        if rows:
            yield title, heads, rows
