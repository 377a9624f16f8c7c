"""Servers as Dagster's resources; `resources.connecting.address` says the same without Dagster."""

from __future__ import annotations

import dagster as dg

from tableferry.resources.connecting.address import Server, parse_url
from tableferry.resources.contract.settings import ConnectionSettings, DigestsBy, Scheme

__all__ = ["ConnectionSettings", "DigestsBy", "Scheme", "ServerResource", "parse_url"]


class ServerResource(Server, dg.ConfigurableResource):
    """A server that Dagster configures. Each field may be an `EnvVar`, also outside of Dagster."""
