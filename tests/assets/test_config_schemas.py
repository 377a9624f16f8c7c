"""Resources share their class's config schema, and nothing else."""

from __future__ import annotations

import dagster as dg

from tableferry.assets.log import config_schemas
from tableferry.resources.postgres.resource import PostgresResource


def test_objects_of_one_class_share_its_schema_and_keep_their_own_values() -> None:
    config_schemas.remember()
    PostgresResource(host="zero")
    inferred = config_schemas.inferred.cache_info().misses

    @dg.op
    def hosts(one: PostgresResource, two: PostgresResource) -> list[str]:
        return [one.settings().host, two.settings().host]

    @dg.job(
        resource_defs={
            "one": PostgresResource(host="one"),
            "two": PostgresResource.configure_at_launch(host="two"),
        }
    )
    def tell() -> None:
        hosts()

    def told(**config: str) -> object:
        found = {"resources": {"two": {"config": config}}} if config else {}
        return tell.execute_in_process(run_config=found).output_for_node("hosts")

    assert told() == ["one", "two"]
    assert told(host="three") == ["one", "three"]
    assert told() == ["one", "two"]
    assert config_schemas.inferred.cache_info().misses == inferred
