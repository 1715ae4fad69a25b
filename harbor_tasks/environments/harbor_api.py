"""The API of a `harbor serve`: one request at a time, and what becomes of each way in which it can fail.

The key goes into the header of a request and nowhere else: not on a command line, not into a message or a file. Nothing
follows a redirect and nothing goes through a proxy, so nobody else gets it.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from harbor_tasks.errors import AuthorError, MachineError

KEY = "HARBOR_API_KEY"
"""The variable that holds the key, for `harbor serve` itself and for us."""
API_VERSION = "2026-10-30"
"""Of Harbor 0.26. A server that speaks another one refuses the request."""
_SECONDS = 15.0
"""For an answer."""
SUBMISSION_SECONDS = 300.0
"""For the answer to a submission: the server reads all its tasks first."""
_CHUNK = 1 << 16
_WORDS = 600
"""Characters of a server's message that are shown."""


class NoAnswerError(MachineError):
    """Nobody listens there, or the answer broke off, or the server is going down: it may come back."""


class ServerError(Exception):
    """The server's own no: its words, and what it adds to them."""

    def __init__(self, status: int, words: str, more: Mapping[str, Any]) -> None:
        self.status, self.words, self.more = status, words, more
        super().__init__(f"{words} (HTTP {status})")


class ServerApi:
    """A Harbor server by its URL, and the key for it."""

    def __init__(self, url: str, key: str | None = None) -> None:
        """Raises AuthorError for a URL or key that cannot be used, before anything is sent."""
        self.url = url.rstrip("/")
        try:
            parts = urlsplit(self.url)
            self._port = parts.port
        except ValueError as error:
            raise AuthorError(f"--server {url!r}: {error}") from None
        if parts.username is not None or parts.password is not None:
            raise AuthorError(f"--server: the URL holds a name or a password; the key is taken from ${KEY}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise AuthorError(f"--server {url!r}: not a server's URL; for example http://127.0.0.1:8390")
        self._host, self._path, self._secure = parts.hostname, parts.path, parts.scheme == "https"
        self._key = key.strip() if key is not None else ""
        if not (self._key.isascii() and (self._key + "x").isprintable()):
            raise AuthorError("the server's key holds characters that no header can carry; check where it comes from")

    def check(self) -> None:
        """A Harbor server answers there, and takes the key. Errors as `ask`.

        AuthorError, before anything is sent, when the key may not go there or is missing where it is needed.
        """
        self._check_way()
        try:
            self.ask("GET", "/jobs", query={"page_size": "1"})
        except ServerError as error:
            raise MachineError(f"{self.url} is no Harbor server: {error}") from None

    def _check_way(self) -> None:
        if _is_loopback(self._host):
            return
        if not self._key:
            raise AuthorError(
                f"--server {self.url}: a server beyond this machine's own loopback wants a key; export {KEY}, or name "
                "the variable that holds it with --key-env"
            )
        if not self._secure and not self._is_own_address():
            raise AuthorError(
                f"--server {self.url}: the key would cross the network unencrypted; run this on the server's own "
                "machine, or put HTTPS in front of the server"
            )

    def _is_own_address(self) -> bool:
        """Is it an address of this machine, so that nothing leaves it?"""
        for family, kind, _, _, address in self._addresses():
            with socket.socket(family, kind) as probe:
                try:
                    probe.bind((address[0], 0, *address[2:]))
                except OSError:
                    return False
        return True

    def _addresses(self) -> list[tuple[Any, ...]]:
        try:
            return list(socket.getaddrinfo(self._host, self._port or 80, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            raise NoAnswerError(f"{self.url}: {getattr(error, 'strerror', None) or error}") from None

    def ask(
        self, method: str, path: str, body: object = None, *, query: Mapping[str, str] | None = None, once: str = "",
        seconds: float = _SECONDS,
    ) -> dict[str, Any]:  # fmt: skip
        """One request; the JSON object of its answer.

        ``once``: a name for a submission, which the server takes only once; ``seconds``: how long it may be silent.
        Raises NoAnswerError, MachineError when
        the key is not the server's or its API is another one, ServerError with the server's own words.
        """
        with closing(self._connection(seconds)) as connection, self._answering():
            text = self._request(connection, method, path, body, query, once).read()
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise MachineError(f"{self.url}{path} does not answer as a Harbor server does")
        return found

    def download(self, uri: str, target: Path) -> None:
        """A file that the server has registered, into a new file. Raises as `ask`, and OSError of the file."""
        with closing(self._connection(_SECONDS)) as connection, target.open("wb") as file:
            with self._answering():
                answer = self._request(connection, "GET", "/download", None, {"uri": uri}, "")
                left = answer.length
            while True:
                with self._answering():
                    chunk = answer.read(_CHUNK)
                    if left is not None and len(chunk) < min(left, _CHUNK):
                        raise http.client.IncompleteRead(chunk, left - len(chunk))
                if not chunk:
                    return
                file.write(chunk)
                left = left - len(chunk) if left is not None else None

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """What the network does is said as NoAnswerError."""
        try:
            yield
        except ssl.SSLError as error:
            raise MachineError(f"{self.url}: TLS fails there ({error.reason or error})") from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoAnswerError(f"no answer from the Harbor server at {self.url}: {why}") from None

    def _request(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object,
        query: Mapping[str, str] | None, once: str,
    ) -> http.client.HTTPResponse:  # fmt: skip
        headers = {"Harbor-API-Version": API_VERSION, "Harbor-Client": "harbor-pack"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        if once:
            headers["Idempotency-Key"] = once
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        target = self._path + path + (f"?{urlencode(query)}" if query else "")
        connection.request(method, target, data, headers)
        answer = connection.getresponse()
        self._check(answer, path)
        return answer

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPConnection(self._host, self._port, timeout=seconds)

    def _check(self, answer: http.client.HTTPResponse, path: str) -> None:
        """Raises unless the server did what was asked."""
        if answer.status < 300:
            return
        try:
            found = json.loads(answer.read())
        except ValueError:
            found = None
        more = found if isinstance(found, dict) else {}
        words = " ".join(str(more.get("detail") or answer.reason).split())[:_WORDS]
        if answer.status in (401, 403):
            what = f"the server at {self.url} refuses the key" if self._key else f"the server at {self.url} wants a key"
            raise MachineError(f"{what} ({words}); export the one that `harbor serve` was started with as {KEY}")
        if answer.status in (502, 503, 504):
            raise NoAnswerError(f"no answer from the Harbor server at {self.url}: {words} (HTTP {answer.status})")
        if "Harbor-API-Version" in words:
            raise MachineError(f"the server at {self.url} speaks another API than Harbor 0.26 ({words})")
        if not more:
            raise MachineError(f"{self.url}{path}: HTTP {answer.status} {words}; is it a Harbor server?")
        raise ServerError(answer.status, words, more)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
