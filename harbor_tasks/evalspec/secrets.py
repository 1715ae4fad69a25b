"""Recognises what looks like a secret: a token by its form, a value by its variable's name, a file by its name."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

RULES = (
    "aws-access-key", "azure-storage-account-access-key", "basic-auth-credentials", "discord-bot-token",
    "environment-value", "github-token", "gitlab-token", "json-web-token", "known-token", "mailchimp-access-key",
    "npm-tokens", "openai-token", "private-key", "pypi-token", "secret-file", "secret-keyword", "sendgrid-api-key",
    "slack-token", "square-oauth-secret", "stripe-access-key", "telegram-bot-token", "twilio-api-key",
)  # fmt: skip
"""What the scan before a bundle finds (bundles/secrets.py), by the names that `bundle.allow_secrets` takes."""

MAX_SCANNED_BYTES = 256 * 1024

_FORMS = (
    rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----",
    rb"sk-ant-[A-Za-z0-9_-]{8,}",
    rb"sk-(?:proj-)?[A-Za-z0-9]{32,}",
    rb"sk-(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{32,}",
    rb"hf_[A-Za-z0-9]{34}\b",
    rb"gsk_[A-Za-z0-9]{52}\b",
    rb"xai-[A-Za-z0-9]{64,}",
    rb"dop_v1_[a-f0-9]{64}\b",
    rb"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b",
    rb"(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    rb"gh[pousr]_[A-Za-z0-9]{30,}",
    rb"github_pat_[A-Za-z0-9_]{40,}",
    rb"glpat-[A-Za-z0-9_-]{20,}",
    rb"xox[abeprs]-[A-Za-z0-9-]{10,}",
    rb"AIza[A-Za-z0-9_-]{35}\b",
    rb"ATATT[A-Za-z0-9_=-]{40,}",
    rb"npm_[A-Za-z0-9]{36}\b",
    rb"ya29\.[A-Za-z0-9_-]{20,}",
    rb"[Aa]uthorization[\"']?[:=] ?[\"']?(?:Bearer|bearer|Basic|basic|Token|token) "
    rb"(?=[A-Za-z._~+/=-]*\d)[A-Za-z0-9._~+/=-]{20,}",
    rb"[Xx]-[Aa][Pp][Ii]-[Kk]ey[\"']?[:=] ?[\"']?(?=[A-Za-z._~+/=-]*\d)[A-Za-z0-9._~+/=-]{16,}",
    rb"[Tt]oken[\"']?[:=] ?[\"'](?=[A-Za-z._~+/=-]*\d)[A-Za-z0-9._~+/=-]{24,}[\"']",
)
_TOKENS = tuple(map(re.compile, _FORMS))  # one by one: each is found by its first letters
_ANY_TOKEN = re.compile(rb"(?<!\w)(?:" + b"|".join(_FORMS) + b")")
_WORD = re.compile(rb"\w")
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
    return next(tokens_in(text.encode("utf-8", "replace")), None) is not None


def tokens_in(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The tokens of known forms in a content, and where each begins; not what goes on from another word."""
    for token in _TOKENS:
        for found in token.finditer(content):
            if not _WORD.match(content, found.start() - 1, found.start()):
                yield found.start(), found[0]


def without_tokens(text: str) -> str:
    """The text with `(hidden)` in the place of each token of a known form."""
    return _ANY_TOKEN.sub(b"(hidden)", text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


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
    for at in sorted(at for at, _token in tokens_in(content)):
        yield content.count(b"\n", 0, at) + 1
