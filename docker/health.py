"""Whether a container serves; made to be asked often, so that it imports none of Dagster.

    python health.py definitions PORT    the code server has loaded the transfers
    python health.py grpc PORT           the code server answers
    python health.py web PORT            the webserver answers

It ends with 0 if so, and else says why not.
"""

from __future__ import annotations

import sys
import urllib.request

SECONDS = 20


def definitions(port: str) -> str:
    """Why the code server has no definitions; empty if it has some.

    The names are those of the service in Dagster's dagster._grpc; the answer is one text in a
    protocol buffer, a document of the kind that it names.
    """
    answer = _call(port, "ListRepositories")
    return "" if b"ListRepositoriesResponse" in answer else _message(answer)


def grpc(port: str) -> str:
    """Why the code server does not answer; empty if it does."""
    return "" if _call(port, "GetServerId") else "the answer is empty"


def web(port: str) -> str:
    """Why the webserver does not answer; empty if it does."""
    urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=SECONDS).close()
    return ""


def _call(port: str, method: str) -> bytes:
    import grpc as rpc

    with rpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary(f"/api.DagsterApi/{method}", lambda it: it, lambda it: it)
        answer: bytes = ask(b"", timeout=SECONDS, wait_for_ready=False)
        return answer


def _message(answer: bytes) -> str:
    """The error's first lines, of Dagster's document."""
    text = answer.decode(errors="replace")
    start = text.find('"message": "')
    message = text[start + 12 :] if start >= 0 else text
    return message.split('", "')[0].replace("\\n", "\n").replace('\\"', '"').strip()[:2000]


def main() -> int:
    checks = {"definitions": definitions, "grpc": grpc, "web": web}
    if len(sys.argv) != 3 or sys.argv[1] not in checks:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        why = checks[sys.argv[1]](sys.argv[2])
    except Exception as error:
        details = getattr(error, "details", None)  # gRPC's own
        why = f"{type(error).__name__}: {details() if callable(details) else error}"
    if why:
        print(f"health: {sys.argv[1]}: {why}", file=sys.stderr)
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main())
