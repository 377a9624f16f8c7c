"""Tokens in place of passwords: JSON Web Tokens that the server's password has signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time


def issue(user: str, password: str, seconds: float = 3600.0) -> str:
    """Return a token for a user, good for so many seconds; the past is allowed."""
    expires = round(time.time() + seconds)
    parts = [{"alg": "HS256", "typ": "JWT"}, {"upn": user, "exp": expires, "jti": time.time_ns()}]
    signed = ".".join(_text(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{_signature(signed, password)}"


def user_of(token: str, password: str) -> str | None:
    """Return whom a token lets in; None if another password has signed it, or it has expired."""
    signed, _, signature = token.rpartition(".")
    if not hmac.compare_digest(signature.encode(), _signature(signed, password).encode()):
        return None
    body = signed.rpartition(".")[2]
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return str(claims["upn"]) if claims["exp"] > time.time() else None


def _signature(signed: str, password: str) -> str:
    return _text(hmac.digest(password.encode(), signed.encode(), hashlib.sha256))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
