"""Microsoft's T-SQL parser, in an environment that has .NET: `python parser.py ScriptDom.dll`.

It reads a JSON list of scripts, each with whether quotation marks hold names, and writes for each
what is wrong with it: what the parser says, and what it takes but SQL Server does not.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

CASES = 10
"""How deep CASE may be nested."""

EXPONENT = re.compile(
    r"\bCAST\(\s*N?'?[-+]?[\d.]+E[-+]?\d+'?\s+AS\s+\[?(decimal|numeric|\w*money|\w*int|bit)\b",
    re.IGNORECASE,
)
"""A constant with an exponent that is to be of an exact type."""


def start() -> None:
    """Start .NET, which is in a package, as pythonnet would look for an installed one."""
    os.environ["DOTNET_SYSTEM_GLOBALIZATION_INVARIANT"] = "1"
    package = importlib.import_module("dotnetcore2").__file__
    root = Path(str(package)).parent / "bin"
    framework = "Microsoft.NETCore.App"
    (version,) = os.listdir(root / "shared" / framework)
    runtime = {"tfm": "netcoreapp3.1", "framework": {"name": framework, "version": version}}
    with tempfile.NamedTemporaryFile("w", suffix=".runtimeconfig.json") as config:
        json.dump({"runtimeOptions": runtime}, config)
        config.flush()
        core = importlib.import_module("clr_loader").get_coreclr(
            runtime_config=config.name, dotnet_root=str(root)
        )
        importlib.import_module("pythonnet").set_runtime(core)
        importlib.import_module("clr")


def wrong(parsers: dict[bool, Any], reader: Any, text: str, quoted: bool) -> list[str]:
    """What is wrong with a script.

    Args:
        parsers: by whether quotation marks hold names.
        reader: makes .NET's reader of a text.
        text: the script; a line `GO` parts its batches.
        quoted: whether quotation marks hold names at its begin.
    """
    # the parser takes U+FFFF for the end
    tree, errors = parsers[quoted].Parse(reader(text.replace("\uffff", "?")), None)
    said = [f"line {each.Line}, column {each.Column}: {each.Message}" for each in errors]
    tokens = tree.ScriptTokenStream if tree is not None else ()
    if (deepest := cases([str(token.TokenType) for token in tokens])) > CASES:
        said.append(f"CASE is nested {deepest} deep, and {CASES} is the most")
    if exponent := EXPONENT.search(text):
        said.append(f"an exponent for an exact type: {exponent[0]}")
    return said


def cases(tokens: list[str]) -> int:
    """How deep CASE is nested."""
    words = [token for token in tokens if token not in ("WhiteSpace", "SingleLineComment")]
    opened, deepest = list[str](), 0
    for word, following in pairwise([*words, ""]):
        if word == "Case" or (word == "Begin" and following not in ("Tran", "Transaction")):
            opened.append(word)
        elif word == "End" and opened:
            opened.pop()
        deepest = max(deepest, opened.count("Case"))
    return deepest


def main() -> None:
    """Judge what standard input has."""
    start()
    importlib.import_module("clr").AddReference(sys.argv[1])
    dom = importlib.import_module("Microsoft.SqlServer.TransactSql.ScriptDom")
    reader = importlib.import_module("System.IO").StringReader
    parsers = {quoted: dom.TSql150Parser(quoted) for quoted in (True, False)}
    scripts = json.load(sys.stdin)
    json.dump([wrong(parsers, reader, text, quoted) for text, quoted in scripts], sys.stdout)


if __name__ == "__main__":
    main()
