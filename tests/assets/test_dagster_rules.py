"""Values that are taken without asking Dagster are values that it takes."""

from __future__ import annotations

import itertools

import dagster as dg
import pytest
from dagster._core.definitions.utils import DISALLOWED_NAMES

from tableferry.assets.declaring import dagster_rules as rules

FIELDS = ("*", "*/2", "0", "1", "5,6")
CRON_LINES = [*map(" ".join, itertools.product(FIELDS, repeat=5)), "59 23 28 12 6", "*/59 * * * *"]
EDGES = ("a", "Z9", "_", "-", ".", "-a", "a-", ".a", "a.", "1", "a" * 63)


def test_dagster_keeps_these_words_and_no_others_for_itself() -> None:
    assert rules.RESERVED == DISALLOWED_NAMES
    for name in ("orders", "_", "_1"):
        assert rules.op_name(name) == name
        dg.OpDefinition(lambda _: None, name)


def test_plain_values_are_accepted_by_dagster() -> None:
    plain = [line for line in CRON_LINES if rules.PLAIN_CRON.fullmatch(line)]
    assert len(plain) > 1000
    for line in plain:
        dg.ScheduleDefinition("probe", cron_schedule=line, job_name="probe")
    owners = [f"team:{edge}" for edge in EDGES]
    owners += [f"{name}@{host}" for name in ("a", "9.a", "a+") for host in ("a.bc", "-.1.info")]
    keys = [key for key in EDGES if rules.PLAIN_TAG_KEY.fullmatch(key)]
    values = [value for value in (*EDGES, "") if rules.PLAIN_TAG_VALUE.fullmatch(value)]
    assert all(map(rules.PLAIN_OWNER.fullmatch, owners)) and len(keys) > 5 and len(values) > 5
    for owner in owners:
        dg.AssetSpec("probe", owners=[owner])
    for key in keys:
        dg.AssetSpec("probe", tags={key: ""})
    for value in values:
        dg.AssetSpec("probe", tags={"probe": value})


@pytest.mark.parametrize(
    "line", ["0 0 31 2 *", "*/0 * * * *", "60 * * * *", "* 24 * * *", "* * * *", "* * * * * *", ""]
)
def test_what_dagster_refuses_is_not_plain(line: str) -> None:
    with pytest.raises(ValueError, match="cron line"):
        rules.cron_line(line)


@pytest.mark.parametrize("line", ["@daily", "0 2 * * MON-FRI", "0 0 30 4 *", "05 * * * *"])
def test_what_is_not_plain_is_asked_of_dagster(line: str) -> None:
    assert not rules.PLAIN_CRON.fullmatch(line) and rules.cron_line(line) == line


def test_a_virtual_asset_would_keep_eager_models_from_running() -> None:
    """So a whole table is no virtual asset; where this fails, it may become one."""
    target, view, model = map(dg.AssetKey, ("target", "view", "model"))
    ranges = dg.StaticPartitionsDefinition(["..5", "5.."])
    eager = dg.AutomationCondition.eager()

    def requested(*between: dg.AssetSpec, condition: dg.AutomationCondition = eager) -> int:
        @dg.asset(key=model, deps=[view if between else target], automation_condition=condition)
        def follows() -> None: ...

        definitions = dg.Definitions(
            [dg.AssetSpec(target, partitions_def=ranges), *between, follows]
        )
        with dg.DagsterInstance.ephemeral() as instance:
            before = dg.evaluate_automation_conditions(definitions, instance)
            for name in ranges.get_partition_keys():
                moved = dg.AssetMaterialization(target, partition=name)
                instance.report_runless_asset_event(moved)
            after = dg.evaluate_automation_conditions(definitions, instance, cursor=before.cursor)
        return after.get_num_requested(model)

    whole = dg.AssetSpec(view, deps=[target], is_virtual=True)
    assert (requested(), requested(whole)) == (1, 0)
    assert requested(whole, condition=eager.resolve_through_virtual()) == 1
