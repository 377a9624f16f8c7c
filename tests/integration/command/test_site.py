"""The guide as a site."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.guide import DOCS, ROOT, pages


def test_the_site_builds_and_no_link_of_it_leads_nowhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    built = subprocess.run(
        [*command, "--site-dir", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} == {*pages()}
    for page in pages():
        name = "." if page == "index.md" else page.removesuffix(".md")
        html = (tmp_path / name / "index.html").read_text(encoding="utf-8")
        assert "```" not in html, f"{page}: a code block is not read as one"
