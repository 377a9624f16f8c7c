"""`python -m tableferry_local.sqlserver`: start the SQL Server stand-in in the foreground."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# The server forks: no thread pools in the parent.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tableferry_local.sqlserver.certificate import tls_context
from tableferry_local.sqlserver.server import Server, listen
from tableferry_local.sqlserver.session import Settings


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM; 2 if the address is taken or the password is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m tableferry_local.sqlserver", description=__doc__
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1433, help="0 takes a free port")
    parser.add_argument("--postgres", required=True, help="URL of the database that holds the data")
    parser.add_argument("--user", default="sa")
    parser.add_argument("--password-env", required=True, help="variable that holds the password")
    parser.add_argument("--cert-dir", type=Path, required=True, help="where the certificate is")
    parser.add_argument("--hang-up-on", default="", help="an application that cannot log in")
    given = parser.parse_args(arguments)
    password = os.environ.get(given.password_env)
    if password is None:
        print(f"the variable {given.password_env} should hold the password", file=sys.stderr)
        return 2
    try:
        listener = listen(given.host, given.port)
    except OSError as error:
        print(
            f"cannot listen on {given.host}:{given.port}: {os.strerror(error.errno or 0)}",
            file=sys.stderr,
        )
        return 2
    settings = Settings(
        given.postgres,
        given.user,
        password,
        tls_context(given.cert_dir),
        hangs_up_on=given.hang_up_on,
    )
    print(f"listening on {given.host}:{listener.getsockname()[1]}", flush=True)
    Server(listener, settings).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
