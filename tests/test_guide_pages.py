"""The guide's examples, as far as they need no server."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from tableferry.assets.declaring.many_tables import lock_text
from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.pipelines.cli import main
from tests.guide import DOCS, ROOT, Block, blocks, pages

BLOCKS = [block for page in pages() for block in blocks(page)]
NOT_RUN = {
    "certify.md": 1,
    "transfers.md": 1,
    "first-table.md": 8,
    "tuning.md": 1,
    "python-api.md": 1,
    "deployment.md": 4,
    "maintenance.md": 2,
    "upgrading.md": 2,
    "security.md": 4,
    "contributing/testing.md": 6,
}
"""Console blocks that no test runs, by page; each says why."""
BASE = {
    "transfer": "example",
    "source": "postgres://public.example",
    "hops": ["clickhouse://warehouse.example"],
    "key": "id",
}
"""What an example that is a part of a file leaves out."""
OF_FILES = {**BASE, "source": "files://example/*.csv"}
del OF_FILES["key"]
YAML = [
    block
    for block in BLOCKS
    if block.language == "yaml"
    and "notest" not in block.options
    # components, and dbt's own files
    and not block.options.get("title", "").endswith("defs.yaml")
    and block.page != "dbt.md"
]


def test_what_is_not_run_is_known_and_says_why() -> None:
    left_out = [one for one in BLOCKS if one.language == "console" and "notest" in one.options]
    found = {page: sum(one.page == page for one in left_out) for page in pages()}
    for one in left_out:
        print(f"{one.page}: {one.options['notest']}: {one.commands[0][0]}")
        assert len(one.options["notest"]) > 10
    assert {page: number for page, number in found.items() if number} == NOT_RUN


def test_llms_txt_names_pages_commands_and_variables_that_exist() -> None:
    text = (DOCS / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert len(links) > 10 and {*links} <= {*pages()}
    listed = re.search(r"Commands: `ferry\s+(.*?);", text, re.DOTALL)
    assert listed and {*re.findall(r"\w+", listed[1])} <= {*main.commands}
    for name in re.findall(r"TABLEFERRY_[A-Z_]+[A-Z]", text):
        assert name in (ROOT / "README.md").read_text(encoding="utf-8"), name


def test_every_command_that_is_mentioned_exists_with_its_options() -> None:
    unknown = []
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        for mentioned in re.findall(r"`ferry ([a-z][^`]*)`", path.read_text(encoding="utf-8")):
            command: click.Command | None = main
            words = mentioned.split()
            while isinstance(command, click.Group) and words and words[0][0] != "-":
                command = command.get_command(click.Context(command), words.pop(0))
            known = {"--help"}
            for parameter in command.params if command else ():
                known |= {*parameter.opts, *parameter.secondary_opts}
            options = {
                word.strip("[],") for word in words if word.startswith("[--") or word[0] == "-"
            }
            if command is None or not options <= known:
                unknown.append(f"{path.name}: ferry {mentioned}")
    assert not unknown


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_help_of_a_command_has_an_example_of_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", "transfers")
    command = main.commands[name]
    *_, example = (command.help or "").strip().rpartition("Example: ")
    ferry, called, *arguments = shlex.split(example.partition(" > ")[0])
    assert (ferry, called) == ("ferry", name)
    command.make_context(name, arguments)


@pytest.mark.parametrize(
    "block", YAML, ids=[f"{one.page}-{number}" for number, one in enumerate(YAML)]
)
def test_an_example_of_a_transfer_file_is_one(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, url in (
        ("SALES_PG", "postgresql://h/d"),
        ("LAKE", "https://h/warehouse"),
        ("RAW", "s3://company-lake/raw"),
    ):
        monkeypatch.setenv(f"TABLEFERRY_CONNECTION_{name}", url)
    monkeypatch.setenv("ROWS", "1000")
    given = yaml.safe_load(block.text)
    base = OF_FILES if block.page == "files.md" else BASE
    if "tables" in given:
        entries = {
            name: {"transfer": name[6:], "source": f"postgres://{name}", "key": "id"}
            for name in ("sales.orders", "sales.notes")
        }
        (tmp_path / "t.lock.yaml").write_text(lock_text("t.yaml", entries, {}))
        base = {}
    rest = {} if "transfer" in given else {key: base[key] for key in base if key not in given}
    text = block.text + (yaml.safe_dump(rest) if rest else "")
    (tmp_path / "t.yaml").write_text(text)
    found = load_transfers(tmp_path)
    assert not found.invalid, [str(one) for one in found.invalid]
    assert len(found.transfers) == (2 if "tables" in given else 1)
