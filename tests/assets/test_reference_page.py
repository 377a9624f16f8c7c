"""docs/reference.md says what the models of a transfer file do."""

from __future__ import annotations

import re

from docs.tools import reference_page

from tableferry.assets.declaring.manifest import Transfer


def test_the_page_is_up_to_date() -> None:
    assert reference_page.PAGE.read_text(encoding="utf-8") == reference_page.render(), (
        "run: python -m docs.tools.reference_page"
    )


def test_every_key_is_on_it_with_what_it_does() -> None:
    rows = re.findall(r"^\| \[?`(\w+)`\S* \| (.+?) \| (.+) \|$", reference_page.render(), re.M)
    assert {name for name, *_ in rows} >= set(Transfer.model_fields) - {"only"}
    takes = {name: taken for name, taken, _ in rows}
    assert "`checksum` (default)" in takes["reconcile"]
    assert takes["key"] == "text; required, except for files"
    assert takes["ranges"].endswith("; `{rows: 250000}`")
