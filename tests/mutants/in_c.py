"""The mutants of a source in C, by the words that it is written in, and how one is put in place."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

Change = tuple[str, tuple[int, int], int, int, str]
"""The function, where the line begins and ends, and likewise what is replaced by a text."""

_KEPT = re.compile(
    r"""/\*.*?\*/ | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | ^\#(?:[^\n]*\\\n)*[^\n]* | 0x\w+""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
"""Comments, texts, what the preprocessor reads, and tables of hexadecimal numbers."""

_OTHERS = (
    (r" <= ", " < ", " > "),
    (r" >= ", " > ", " < "),
    (r" < ", " <= ", " >= "),
    (r" > ", " >= ", " <= "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" / ", " * "),
    (r" % ", " * "),
    (r" \+= ", " -= ", " = "),
    (r" -= ", " += ", " = "),
    (r" \|= ", " &= ", " = "),
    (r"!(?=[\w(])", ""),
    (r"(?<=return )(?!NULL)\w[^;]*(?=;)", "0"),
    (r"\b(?:break|continue)(?=;)", ""),
    (r"^ +[\w>.*\[\]-]+ [+|-]?= [^;]*(?=;$)", ""),
)
"""What is found, and what it may become."""


def changes(text: str) -> Iterator[Change]:
    """All changes of a source whose functions begin at the left; a number becomes the next one."""
    assert text.isascii(), "places are counted in bytes"
    code = _KEPT.sub(lambda kept: re.sub(r"[^\n]", "\t", kept[0]), text)
    function, at = "outside", 0
    for line in code.splitlines(keepends=True):
        shown = at, at + len(line)
        if head := re.match(r"\w[^;={]*?(\w+)\(", line):
            function = head[1]
        for pattern, *others in _OTHERS:
            for found in re.finditer(pattern, line):
                for other in others:
                    yield function, shown, at + found.start(), at + found.end(), other
        for found in re.finditer(r"(?<![\w.])\d+\b", line):
            more = str(int(found[0]) + 1)
            yield function, shown, at + found.start(), at + found.end(), more
        at += len(line)


def load(source: str) -> None:
    """Have the extension of another source; one that a compiler refuses fails here."""
    # later than a mutant of one of its modules may be imported
    from tableferry.resources.digest import native

    library = Path(tempfile.mkdtemp(), "copy_text.abi3.so")
    build = ["cc", "-O1", "-w", "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    # what is undefined ends the process
    build += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    subprocess.run([*build, "-o", library, "-xc", "-"], input=source.encode(), check=True)
    spec = importlib.util.spec_from_file_location("copy_text", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[f"{native.__name__}.copy_text"] = module
    native.extension.cache_clear()
