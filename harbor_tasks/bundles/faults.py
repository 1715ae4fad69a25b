"""What a registry, or the way to it, can do wrong: one clear line for each, without credentials."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import requests
import urllib3.exceptions

from harbor_tasks.bundles.reference import Reference
from harbor_tasks.errors import AuthorError, HarborPackError, MachineError, printable

if TYPE_CHECKING:
    from harbor_tasks.images.credentials import Credentials

SAID = 200
"""Characters of a registry's own words that are shown."""
_WRONG_VERSION = re.compile(
    r"WRONG_VERSION_NUMBER|wrong version number|RECORD_LAYER_FAILURE|record layer failure", re.I
)


class PassingError(MachineError):
    """Nobody answered, or not to the end, or that nothing goes just now: trying again may help."""


def refusal(  # noqa: PLR0911 - one for each status
    status: int, body: bytes, reference: Reference, doing: str, credentials: Credentials, retry_after: str | None
) -> HarborPackError:  # fmt: skip
    """The error for an answer that is one; ``doing`` is what was tried: "push to", "pull from"."""
    said = words_of(body)
    told = f" ({said})" if said else ""
    host, place = reference.registry, reference.name
    if status == 401:
        if credentials.fault is not None:
            return AuthorError(f"{host} wants credentials{told}, and {credentials.fault}")
        have = "does not accept the credentials of" if credentials.auth else "wants credentials, and there are none in"
        return AuthorError(f"{host} {have} Docker's configuration{told}; run docker login {host}")
    if status in {403, 404, 429} and credentials.fault is not None:  # it may say so because it does not know us
        told += f", and {credentials.fault}"
    if status == 403:
        who = "these credentials" if credentials.auth else "an anonymous user"
        return AuthorError(
            f"{host} does not let {who} {doing} {place}{told}; take another name, or log in as one who may"
        )
    if status == 404:
        return AuthorError(f"{place}: {host} has no such repository, or speaks no distribution API{told}")
    if status == 429:
        when = f" for {retry_after} s" if retry_after and retry_after.isdigit() else ""
        return PassingError(f"{host} asks to wait{when}: too many requests{told}; try again later")
    if status == 413:
        return MachineError(f"{host} takes no file of this size{told}")
    if status >= 500:
        return PassingError(f"{host} fails (status {status}){told}; try again later")
    return MachineError(f"{host} does not {_verb(doing)} {place}: status {status}{told}")


def _verb(doing: str) -> str:
    return "take a push to" if doing.startswith("push") else "give a pull from"


def words_of(body: bytes) -> str:
    """What an error's body says, short and on one line: a registry's own messages, or the beginning of a plain text."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        errors = found.get("errors") if isinstance(found, dict) else None
        parts = [e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []
        text = "; ".join(str(e.get("message") or e.get("code") or "") for e in parts[:3])
        if not text and isinstance(found, dict):
            text = str(found.get("message") or found.get("details") or found.get("error") or "")
    except (ValueError, RecursionError):
        if "<" in text:  # a page for people, of a proxy before the registry
            text = ""
    line = printable(" ".join(text.split()))
    return line if len(line) <= SAID else line[: SAID - 1] + "…"


@contextmanager
def on_the_way(host: str) -> Iterator[None]:
    """What `requests` raises, as errors of ours. Its texts hold whole URLs, with keys in them: they are not shown."""
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise _tls(host, error) from None
    except requests.exceptions.ProxyError as error:
        raise PassingError(f"the proxy on the way to {host} does not let us through ({_cause(error)})") from None
    except requests.exceptions.ConnectTimeout:
        raise PassingError(f"{host} does not answer in time") from None
    except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError):
        raise PassingError(f"{host} stopped answering") from None
    except (requests.exceptions.ConnectionError, urllib3.exceptions.ProtocolError) as error:
        raise PassingError(f"{host} cannot be reached, or hung up: {_cause(error)}") from None
    except requests.exceptions.ChunkedEncodingError:
        raise PassingError(f"{host} hung up in the middle of an answer") from None
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
        raise MachineError(
            f"{host}: an address on the way cannot be used ({type(error).__name__}): the registry's, a proxy's, or one "
            "that the registry names"
        ) from None
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        # the last: the name of a host, or an address to go on to, that cannot be one
        raise MachineError(f"{host}: the answer cannot be used ({type(error).__name__})") from None
    except OSError as error:
        raise PassingError(f"{host} hung up: {error.strerror or type(error).__name__}") from None


def _tls(host: str, error: requests.exceptions.SSLError) -> MachineError:
    if _WRONG_VERSION.search(str(error)):
        return MachineError(f"{host} speaks http and not https; --plain-http takes it so, readable for all on the way")
    cause = _inner(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return MachineError(
            f"the certificate of {host} is not trusted ({cause.verify_message}); name its authority: --ca FILE, or "
            "SSL_CERT_FILE"
        )
    return MachineError(f"no TLS connection with {host} ({getattr(cause, 'reason', None) or type(cause).__name__})")


def _inner(error: BaseException) -> BaseException:
    """What lies at the bottom: `requests` and urllib3 wrap by arguments as well as by cause."""
    seen: set[int] = set()
    found = error
    while id(found) not in seen:
        seen.add(id(found))
        inside = [getattr(found, "reason", None), *getattr(found, "args", ()), found.__cause__, found.__context__]
        found = next((one for one in inside if isinstance(one, BaseException) and id(one) not in seen), found)
    return found


def _cause(error: BaseException) -> str:
    """The system's own words, which hold no URL."""
    cause = _inner(error)
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return {"RemoteDisconnected": "no answer", "IncompleteRead": "an answer without its end"}.get(
        type(cause).__name__, type(cause).__name__
    )
