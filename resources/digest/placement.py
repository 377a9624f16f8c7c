"""Who computes the digests of a server's rows: the server, or the client from the rows it sends.

The connection's `digest_by` decides. By default the server does, except for the variants of its SQL
that were measured to cost more than sending the rows: `System.slow_digests`.
"""

from __future__ import annotations

import logging

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.digest.definition import RECORD
from tableferry.resources.digest.expressions import DigestSql
from tableferry.resources.digest.probe import DigestRefused, require_client

logger = logging.getLogger(__name__)


def client_computes(endpoint: Endpoint, dialect: DigestSql) -> bool:
    """Whether the client computes the digests that the server would compute by `dialect`.

    Raises:
        DigestRefused: `digest_by` says so, but the client does not get the right digests.
    """
    digest_by = endpoint.digests_by()
    if digest_by == "server" or dialect.algorithm == RECORD:
        return False
    if digest_by == "client":
        require_client(endpoint, dialect)
        return True
    if dialect.variant not in endpoint.system.slow_digests:
        return False
    facts = endpoint.settings().facts
    return facts.known(("client digests", dialect), lambda: _client_is_right(endpoint, dialect))


def _client_is_right(endpoint: Endpoint, dialect: DigestSql) -> bool:
    try:
        require_client(endpoint, dialect)
    except (DigestRefused, ImportError) as error:
        logger.warning("the server computes its row digests, though slowly: %s", error)
        return False
    return True
