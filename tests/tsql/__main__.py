"""Has Microsoft's own parser judge the T-SQL of the tests, of the guide and of the setup.

`python -m tests.tsql COMMAND...` runs a command, such as pytest, and then judges what the stand-in
for SQL Server was sent meanwhile. The parser, ScriptDom, comes with a package in build/tsql and is
part of nothing that is shipped; without it nothing is judged. `TABLEFERRY_TEST_SCRIPTDOM` names
another ScriptDom.dll, as NuGet's package Microsoft.SqlServer.TransactSql.ScriptDom has it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tableferry_local.sqlserver.session import BATCHES
from tests import guide
from tests.integration.support import venvs

PLACE = venvs.ROOT / "build" / "tsql"
PARSER = Path(__file__).with_name("parser.py")
RUNTIME = ("pythonnet==3.2.1", "dotnetcore2==3.1.23")
HOLDER = "mssql-cli==1.0.0"
"""Has the parser, and cannot be installed with what it depends on."""

ON_PURPOSE = re.compile(
    r"SET NO_SUCH_OPTION ON|SELECT 1 FROM$|1 = 1\);? DELETE FROM dbo\.", re.MULTILINE
)
"""What tests send to see it refused."""

BULK = re.compile(r"\s*INSERT\s+BULK\b", re.IGNORECASE)
"""Drivers send it, by options that the parser does not know."""

SCRIPT = "SET QUOTED_IDENTIFIER ON"
"""What is for sqlcmd begins so, where quotation marks hold texts otherwise."""

LONGEST = 2000
"""Characters of a statement that are shown."""

Script = tuple[str, str, bool]
"""Where it is from, its text, and whether quotation marks hold names at its begin."""


def parser() -> list[str | Path]:
    """The command that judges scripts; its environment is made if it is not there."""
    python = PLACE / "bin/python"
    if not (PLACE / "made").exists():
        venvs.uv("venv", "--quiet", "--clear", "--python", sys.executable, PLACE)
        venvs.uv("pip", "install", "--quiet", "--python", python, *RUNTIME)
        venvs.uv("pip", "install", "--quiet", "--python", python, "--no-deps", HOLDER)
        (PLACE / "made").touch()
    (found,) = PLACE.rglob("Microsoft.SqlServer.TransactSql.ScriptDom.dll")
    return [python, PARSER, os.environ.get("TABLEFERRY_TEST_SCRIPTDOM") or found]


def written() -> Iterator[Script]:
    """What is written down for others to run: by sqlcmd."""
    setup = venvs.ROOT / "docker/setup/sqlserver.sql"
    yield setup.name, re.sub(r"\$\((\w+)\)", r"\1", setup.read_text()), False
    for page in guide.pages():
        for block in guide.blocks(page):
            if block.language == "tsql":
                yield page, block.text, False


def sent(folder: Path) -> Iterator[Script]:
    """What the stand-in was sent."""
    for file in sorted(folder.iterdir()):
        text = file.read_text("utf-8", "surrogatepass")
        if not BULK.match(text) and not ON_PURPOSE.search(text):
            yield "sent", text, not text.startswith(SCRIPT)


def judge(scripts: list[Script]) -> list[str]:
    """What is wrong with scripts, by one process for all of them."""
    asked = json.dumps([(text, quoted) for _, text, quoted in scripts])
    done = subprocess.run(parser(), input=asked, stdout=subprocess.PIPE, text=True, check=True)
    return [
        f"{where}: {'; '.join(wrong)}\n{text[:LONGEST]}\n"
        for (where, text, _), wrong in zip(scripts, json.loads(done.stdout), strict=True)
        if wrong
    ]


def main(*command: str) -> int:
    """Run the command, judge what it has sent, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="tableferry-batches-") as folder:
        code = subprocess.run(command, env=os.environ | {BATCHES: folder}, check=False).returncode
        scripts = [*written(), *sent(Path(folder))]
    try:
        refused = judge(scripts)
    except pytest.skip.Exception as error:
        print(f"T-SQL: not judged: {error}")
        return code
    print(*refused, f"T-SQL: {len(scripts)} scripts, {len(refused)} refused", sep="\n")
    return code or bool(refused)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
