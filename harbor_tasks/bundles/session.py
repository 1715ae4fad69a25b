"""How requests to a registry are made: what is trusted, how long an answer may take, how large it may be.

The library (oras) leaves these to `requests`, whose defaults are not ours: no time limit, credentials from .netrc,
redirects from https to http, answers of any size in memory, no certificates from the places that OpenSSL and the
environment name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from harbor_tasks.errors import AuthorError, MachineError, display_path

TIMEOUT = (15, 120)
"""Seconds for a connection, and without a byte: a registry that stores a large blob answers late."""
PIECE = 1 << 18
_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""OpenSSL reads the last itself, but is silent about one that it cannot read."""
_BY_HASH = re.compile(r"[0-9a-f]{8}\.[0-9]+")
"""How OpenSSL looks for a certificate in a folder."""


class Session(requests.Session):
    """Follows no redirect by itself, takes no credentials from anywhere, keeps no cookies."""

    def __init__(self, ca: Path | None, *, loopback: bool) -> None:
        """AuthorError for a ``ca`` that is no certificate, whether or not anything is to be reached over TLS."""
        super().__init__()
        self._own, self._has_trust = None if ca is None else authority(ca), False
        self.trust_env = not loopback  # a proxy does not reach this machine's own registry
        self.auth = _nothing  # else .netrc would be asked, and beat what Docker's configuration says
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.headers["Accept-Encoding"] = "identity"  # the digest is of the bytes as they are
        self.headers["User-Agent"] = "harbor-pack"

    def get_adapter(self, url: str) -> Any:
        """What makes the connection. The authorities are read before the first that needs them: there are many."""
        if url.startswith("https") and not self._has_trust:
            self.mount("https://", _Trusting(trust(self._own)))
            self._has_trust = True
        return super().get_adapter(url)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: to follow it, the body would be read first, whatever its size."""

    def ask(
        self, method: str, url: str, *, timeout: tuple[float, float] | None = None, **parts: Any
    ) -> requests.Response:  # fmt: skip
        """One request; the body is not read, no redirect is followed. ``timeout``: to connect, to wait; seconds."""
        return self.request(method, url, stream=True, allow_redirects=False, timeout=timeout or TIMEOUT, **parts)


def _nothing(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


class _Trusting(HTTPAdapter):
    """Certificates are checked against a context of our own."""

    def __init__(self, trusted: ssl.SSLContext) -> None:
        self._trusted = trusted
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, ssl_context=self._trusted)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        return super().proxy_manager_for(*args, **kwargs, ssl_context=self._trusted)


def authority(ca: Path) -> ssl.SSLContext:
    """What trusts the user's own authority (``--ca``) alone; AuthorError when there is none in it."""
    with _named(ca, AuthorError, "--ca"):
        if not ca.is_dir():
            return ssl.create_default_context(cafile=ca)
        if not any(_BY_HASH.fullmatch(name) for name in os.listdir(ca)):  # noqa: PTH208 - names
            raise AuthorError(
                f"--ca: {display_path(ca)} is a folder without certificates under their hashes; name a file, or make "
                "them with openssl rehash"
            )
        return ssl.create_default_context(capath=ca)


def trust(own: ssl.SSLContext | None) -> ssl.SSLContext:
    """The system's authorities, those of the environment, and the user's own (what `authority` gave)."""
    context = ssl.create_default_context() if own is None else own
    context.load_default_certs()
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    for variable in _CA_VARIABLES:
        named = os.environ.get(variable)
        if named:
            path = Path(named)
            with _named(path, MachineError, variable):
                context.load_verify_locations(*((None, path) if path.is_dir() else (path,)))
    return context


@contextmanager
def _named(path: Path, error: type[AuthorError | MachineError], named_by: str) -> Iterator[None]:
    """What is wrong with a path that should hold certificates."""
    try:
        yield
    except ssl.SSLError:
        raise error(f"{named_by}: {display_path(path)} holds no certificate in PEM form") from None
    except OSError as fault:
        raise error(f"{named_by}: {display_path(path)} cannot be read ({fault.strerror})") from None


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of a URL; nothing of a text that is none."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", "", None
    return parts.scheme, (parts.hostname or "").lower(), port


def digest_of(data: bytes) -> str:
    """Its digest, ``sha256:<hex>``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def pieces(response: requests.Response) -> Iterator[bytes]:
    """An answer's body as it comes: whoever waits for full pieces is held by one that drips."""
    while piece := response.raw.read1(PIECE, decode_content=False):
        yield piece


def read_all(response: requests.Response, limit: int, *, whole: bool = True) -> bytes:
    """An answer's body; MachineError when it is longer than ``limit`` (without ``whole``: its beginning) or drips."""
    until, body = time.monotonic() + TIMEOUT[1], bytearray()
    for piece in pieces(response):
        body += piece
        if len(body) > limit:
            if not whole:
                break
            raise MachineError(f"the answer is longer than the {limit} bytes that it may have; refused")
        if time.monotonic() > until:
            raise MachineError("the answer comes too slowly")
    return bytes(body[:limit])


def json_object(body: bytes, where: str) -> dict[str, Any]:
    """What an answer holds; MachineError when it is no JSON object."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise MachineError(f"{where} is no JSON; refused") from None
    if not isinstance(found, dict):
        raise MachineError(f"{where} is no JSON object; refused")
    return found
