"""The guide's words: how many there are, and how hard they are to read.

Numbers of words are bounds. Readability is printed (`pytest -s`), for who writes, and decides
nothing: a page of settings reads worse than a story, and may be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.guide import DOCS, ROOT, pages

GUIDE, PAGE, CELL = 45_000, 3_000, 25
"""The most words of the guide, of one of its pages and of a cell of a table."""
README, CHANGELOG = 900, 1_000
LONG = 30
"""Words from which on a sentence should be two."""

_CODE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^ *(?:- |\d+\. )", re.MULTILINE)
_END = re.compile(r"(?<=[.!?:;])[\"*)]*\s+")


def guide() -> list[str]:
    """The guide's pages, without those of contributors."""
    return [page for page in pages() if not page.startswith("contributing/")]


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def words(text: str) -> list[str]:
    """What has a letter or a digit: neither a table's bars nor a list's dashes."""
    return [word for word in _LINK.sub(r"\1", text).split() if re.search(r"\w", word)]


def tables(page: str) -> Iterator[list[list[str]]]:
    """The tables of a page, as rows of cells."""
    for found in re.findall(r"(?:^ *\|.*\n)+", _CODE.sub("", read(page)), re.MULTILINE):
        yield [re.split(r"(?<!\\)\|", row.strip()[1:-1]) for row in found.splitlines()]


def sentences(page: str) -> Iterator[list[str]]:
    """The words of each sentence of a page's paragraphs and lists."""
    text = re.sub(r"^(?: *\||#|<!--).*$", "", _CODE.sub("", read(page)), flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", _ITEM.sub("\n\n", text)):
        for sentence in _END.split(" ".join(_LINK.sub(r"\1", paragraph).split())):
            if found := words(sentence):
                yield found


def grade(page: str) -> float:
    """The automated readability index: about the years at school that the prose takes."""
    found = [*sentences(page)]
    number = sum(map(len, found)) or 1
    letters = sum(len(re.sub(r"\W", "", word)) for sentence in found for word in sentence)
    return 4.71 * letters / number + 0.5 * number / (len(found) or 1) - 21.43


def test_the_guide_is_no_longer_than_it_may_be() -> None:
    # as `wc -w` counts, code and bars included
    counted = {page: len(read(page).split()) for page in guide()}
    assert sum(counted.values()) <= GUIDE, f"{sum(counted.values())} words, of which {counted}"
    assert {page: number for page, number in counted.items() if number > PAGE} == {}


def test_the_first_page_and_the_changelog_are_short() -> None:
    for name, most in (("README.md", README), ("CHANGELOG.md", CHANGELOG)):
        assert len((ROOT / name).read_text(encoding="utf-8").split()) <= most, name


def test_no_cell_of_a_table_is_a_paragraph() -> None:
    long = [
        (page, cell)
        for page in guide()
        for rows in tables(page)
        for row in rows
        for cell in row
        if len(words(cell)) > CELL
    ]
    assert long == []


def test_tables_are_whole() -> None:
    for page in pages():
        for head, line, *rows in tables(page):
            assert {*map(str.strip, line)} <= {"---", "---:", ":---"}, f"{page}: {head}"
            assert {len(head)} == {*map(len, rows)}, f"{page}: {head}"


def test_how_hard_the_pages_are_to_read_is_told() -> None:
    total = longest = 0
    print(f"\n{'page':28}{'words':>7}{'sentences':>11}{f'> {LONG}':>6}{'grade':>7}")
    for page in guide():
        lengths = [len(sentence) for sentence in sentences(page)]
        long = sum(length > LONG for length in lengths)
        total, longest = total + len(lengths), longest + long
        print(f"{page:28}{len(words(read(page))):7}{len(lengths):11}{long:6}{grade(page):7.1f}")
    print(f"{longest} of {total} sentences have more than {LONG} words")
    assert total > 1_000, "sentences are found"
