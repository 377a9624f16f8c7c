"""Who computes the digests of a server's rows: the server, or the client from the rows it sends.

`digest_by` of the connection decides. Without it the server does, but for the variants of its SQL
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
    """Whether the client computes digests from the rows that the server sends.

    Args:
        endpoint: the server.
        dialect: how it would compute digests itself.

    Raises:
        DigestRefused: the client should by declaration, and gets other digests than it should.
    """
    who = endpoint.digests_by()
    if who == "server" or dialect.algorithm == RECORD:
        return False
    if who == "client":
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
