"""Another SQL Server stand-in in front of the stack's database, with settings of a test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from tableferry_local.stack import Stack


class Standin:
    """A server process.

    Args:
        stack: has the database, the user and the password.
        folder: is made, for the certificate.
        certificate: of the server; it makes its own if not given.
        options: further arguments of the program.
    """

    def __init__(
        self,
        stack: Stack,
        folder: Path,
        certificate: trustme.LeafCert | None = None,
        *options: str,
    ) -> None:
        folder.mkdir()
        if certificate is not None:
            certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
            certificate.private_key_pem.write_to_path(folder / "server.key")
        behind, front = urlsplit(stack.postgres_url), urlsplit(stack.sqlserver_url)
        place = f"postgresql://{behind.username}@{behind.hostname}:{behind.port}/sqlserver"
        self.user, self.password = front.username or "", front.password or ""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tableferry_local.sqlserver", "--port", "0"),
                *("--postgres", place, "--password-env", "STANDIN_PASSWORD"),
                *("--cert-dir", str(folder), *options),
            ],
            env={
                **os.environ,
                "STANDIN_PASSWORD": self.password,
                "PGPASSWORD": behind.password or "",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().rpartition(":")[2].strip()
        self.place = f"localhost:{port}{front.path}"
        """Of the database, without a user."""
        self.url = f"mssql://{self.user}:{self.password}@{self.place}"

    def __enter__(self) -> Standin:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()
