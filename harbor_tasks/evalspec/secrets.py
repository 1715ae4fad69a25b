"""Recognises what looks like a secret: a token by its form, a value by its variable's name, a file by its name."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_SCANNED_BYTES = 256 * 1024

_FORMS = (
    rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----",
    rb"\bsk-ant-[A-Za-z0-9_-]{8,}",
    rb"\bsk-(?:proj-)?[A-Za-z0-9]{32,}",
    rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    rb"\bgh[pousr]_[A-Za-z0-9]{30,}",
    rb"\bgithub_pat_[A-Za-z0-9_]{40,}",
    rb"\bglpat-[A-Za-z0-9_-]{20,}",
    rb"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    rb"\bAIza[A-Za-z0-9_-]{35}\b",
    rb"\bATATT[A-Za-z0-9_=-]{40,}",
    rb"\bnpm_[A-Za-z0-9]{36}\b",
)
_TOKEN = re.compile(b"|".join(_FORMS))
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:token|secret|passw(?:or)?d|pwd|api_?key|private_?key|access_?key|credentials?|authorization)(?:_|$)"
)
# Words, paths, URLs without a user.
_PUBLIC_VALUE = re.compile(r"true|false|none|(?:[a-z]+:/|\.)?/[^@]*", re.IGNORECASE)
_FILES = re.compile(
    r"\.env(?:\.(?!sample$|example$|template$|dist$).+)?|\.netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)|credentials\.json|.+\.(?:pem|p12|pfx|key|keystore|jks)",
    re.IGNORECASE,
)


def token_in(text: str) -> bool:
    """Whether a text holds a token of a known form."""
    return _TOKEN.search(text.encode("utf-8", "replace")) is not None


def without_tokens(text: str) -> str:
    """The text with `(hidden)` in the place of each token of a known form."""
    return _TOKEN.sub(b"(hidden)", text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def looks_secret(name: str, value: str) -> bool:
    """Whether a literal value looks like a secret: by its form, or by its name when it is no reference."""
    if token_in(value):
        return True
    if "$" in value or len(value) < 6 or value.isspace():
        return False
    folded = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", name).lower()
    return _SECRET_NAME.search(folded) is not None and not _PUBLIC_VALUE.fullmatch(value)


def is_secret_file(name: str) -> bool:
    """Whether files of this name usually hold secrets."""
    return _FILES.fullmatch(name) is not None


def secret_lines(path: Path) -> Iterator[int]:
    """The lines (from 1) of a small text file that hold a token of a known form; unreadable files give none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # every file of every case comes by here
    except OSError:
        return
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SCANNED_BYTES:
            return
        content = os.read(file, MAX_SCANNED_BYTES)
    except OSError:
        return
    finally:
        os.close(file)
    for found in _TOKEN.finditer(content):
        yield content.count(b"\n", 0, found.start()) + 1
