"""Translates errors of ClickHouse and its driver."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import StatementFailed, TableferryError, causes

MISSING_DATABASE, EXISTS, NO_FINAL = 81, 57, 181
LOGIN_REFUSED = {192, 193, 194, 516}
TRANSIENT = {
    3,  # unexpected end of file
    159,  # timeout exceeded
    160,  # too slow
    202,  # too many simultaneous queries
    203,  # no free connection
    209,  # socket timeout
    210,  # network error
    236,  # aborted
    241,  # memory limit exceeded
    242,  # table is read-only: Keeper is away
    252,  # too many parts
    279,  # no replica answers
    285,  # too few live replicas
    286,  # an earlier INSERT has no quorum yet
    289,  # the replica lacks what a quorum has
    319,  # unknown status of an INSERT
    425,  # system error
    439,  # no thread for it
    473,  # deadlock avoided: a lock of the table was not had in time
    517,  # a replica has not taken over an earlier ALTER yet
    692,  # too many mutations
    733,  # the table is being restarted
    745,  # the server is overloaded
    999,  # Keeper
}
"""Error codes after which the same statement may succeed (ErrorCodes.cpp of ClickHouse)."""

_EXCEPTION = re.compile(
    r"(?:Code: (?P<code>\d+)\. )?DB::Exception: (?P<text>.*?)\s*"
    r"(?:\(version [^()]*(?:\([^()]*\))?\)|$)",
    re.DOTALL,
)
_MARK = re.compile(rb"__exception__\r?\n\w+\r?\n(Code: .*)", re.DOTALL)

# reasons by a part of the driver's text in lower case
_UNREACHABLE = {
    "connection refused": "connection refused",
    "name or service not known": "host name not known",
    "name resolution": "host name not known",
    "no address associated": "host name not known",
    "connecttimeout": "no answer in time",
    "no route to host": "no route to host",
    "network is unreachable": "network is unreachable",
    "newconnectionerror": "no connection",
}
_TLS = {
    "certificate_verify_failed": "its certificate cannot be verified; give ca_cert, or verify=no",
    "wrong_version_number": "it does not speak TLS on this port; use http://",
    "record layer failure": "it does not speak TLS on this port; use http://",
}
_BROKEN = {
    "incompleteread": "the answer ended in the middle",
    "remote end closed": "the server closed the connection",
    "reset by peer": "the server reset the connection",
    "broken pipe": "the server closed the connection",
    "timed out": "no answer in time",
}
_NETWORK = {"ProtocolError", "ReadTimeoutError", "ConnectTimeoutError", "NewConnectionError"}


def from_driver(error: BaseException) -> bool:
    """Whether the server, the driver or the network failed, and not our own code."""
    module = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or module in ("clickhouse_connect", "urllib3", "http")


def translate(
    error: BaseException, settings: ConnectionSettings, answer: bytes = b""
) -> TableferryError:
    """Translate the driver's error; leave out the URL, the server's version and the password.

    `answer` has the last bytes of an answer that broke off.
    """
    chain = list(causes(error, suppressed=True))
    text = _late_exception(chain, answer) or str(error)
    code = getattr(error, "code", None)
    if match := _EXCEPTION.search(text):
        code, text = code or (match["code"] and int(match["code"])), match["text"]
    if code in LOGIN_REFUSED:
        refused = f"login of user {settings.user or 'default'!r} refused"
        return settings.failed(refused, refused=True)
    if code == MISSING_DATABASE:
        return settings.failed(text)
    if code is not None:
        return StatementFailed(
            "clickhouse", settings.redact(text), code=code, transient=code in TRANSIENT
        )
    texts = " ".join(f"{type(cause).__name__} {cause}" for cause in chain).lower()
    if reason := _find(_TLS, texts):
        return settings.failed(reason)
    if reason := _find(_UNREACHABLE, texts):
        return settings.failed(f"{reason}{_proxy(settings)}", transient=True)
    reason = _find(_BROKEN, texts) or settings.redact(text)
    return StatementFailed(
        "clickhouse", f"the connection to {settings.address} broke: {reason}", transient=True
    )


def _proxy(settings: ConnectionSettings) -> str:
    """Name the proxy of the environment that the driver goes by, without its login."""
    from clickhouse_connect.driver.httputil import check_env_proxy

    for scheme in ("http", "https"):
        if proxy := check_env_proxy(scheme, settings.host, settings.port):
            return (
                f", by the proxy {urlsplit(proxy).netloc.rpartition('@')[2]} of "
                f"{scheme.upper()}_PROXY; NO_PROXY={settings.host} goes without it"
            )
    return ""


def is_transient(error: BaseException) -> bool | None:
    """Whether the same statement may succeed later; None if the error does not tell."""
    library = type(error).__module__.partition(".")[0]
    if library == "clickhouse_connect" and (code := getattr(error, "code", None)) is not None:
        return code in TRANSIENT
    if library == "http" or (library == "urllib3" and type(error).__name__ in _NETWORK):
        return True
    return None


def _late_exception(chain: list[BaseException], answer: bytes) -> str | None:
    """The error text at the end of an answer that failed in the middle."""
    for error in chain:
        for part in (error, *error.args):
            partial = getattr(part, "partial", None)
            if isinstance(partial, bytes) and (
                match := _MARK.search((answer + partial)[-(1 << 15) :])
            ):
                return match[1].decode(errors="replace")
    return None


def _find(reasons: dict[str, str], text: str) -> str | None:
    return next((reason for mark, reason in reasons.items() if mark in text), None)
