"""Which changes of the catalog a snapshot does not survive."""

from __future__ import annotations

from dataclasses import replace

from tableferry.resources.postgres.storage import StoredRelation, moved

THEN = StoredRelation(stored="16384 16384", written="700 2 1", privileges="")


def test_a_rewritten_or_altered_relation_has_moved_and_a_granted_one_has_not() -> None:
    def changed(now: StoredRelation) -> str:
        return moved({"public.t": THEN}, {"public.t": now})

    assert changed(THEN) == ""
    assert changed(replace(THEN, stored="16384 16400")) == "public.t"
    assert changed(replace(THEN, written="701 2 1")) == "public.t"
    granted = replace(THEN, written="701 2 1", privileges="{ann=r/ann}")
    assert changed(granted) == ""
    assert changed(replace(granted, stored="16384 16400")) == "public.t"


def test_missing_and_new_relations_are_named_a_few_at_a_time() -> None:
    now = {f"public.t{number}": THEN for number in range(5)}
    assert moved({"public.gone": THEN}, {}) == "public.gone"
    assert moved({}, now) == "public.t0, public.t1, public.t2 and 2 more"
