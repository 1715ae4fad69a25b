"""Looks for secrets in what is to be packed: each distinct content once, by rule, line by line.

The rules are those of detect-secrets that tell a secret by its form (a known prefix, a key's header), its rule for
values of variables with telling names, our own for tokens that it does not know, file names that hold secrets, and the
values that the eval's variables have in the caller's environment. Left out are its rules for random-looking text, which
every hash and encoded picture meets, those for IP addresses, and those for vendors whose keys have no form of their own
(the rule for variables finds them). What a file says about itself ("allowlist secret") counts for nothing: only the
eval allows, by path and rule. No value of a secret leaves this module.
"""

from __future__ import annotations

import base64
import json
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harbor_tasks.errors import MachineError
from harbor_tasks.evalspec.secrets import is_secret_file, tokens_in

PIECE = 4 << 20
"""Bytes that are looked at together."""
OVERLAP = 4096
"""Bytes that two pieces share, so that nothing is cut in two."""
BINARY_MAX = 8 << 20
"""Larger files that are no text are searched for the values of variables only."""
VALUE_MIN = 8
"""Characters; a shorter value of a variable is a word."""
BASE64_MIN = 12
"""Bytes; of a shorter one too little is left in base64 to be told from other text."""
_MODEL_KEYS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "CODEX_API_KEY",
)  # fmt: skip
_FORMS = {
    "aws": "AWSKeyDetector", "azure_storage_key": "AzureStorageKeyDetector", "basic_auth": "BasicAuthDetector",
    "discord": "DiscordBotTokenDetector", "github_token": "GitHubTokenDetector", "gitlab_token": "GitLabTokenDetector",
    "jwt": "JwtTokenDetector", "mailchimp": "MailchimpDetector", "npm": "NpmDetector", "openai": "OpenAIDetector",
    "private_key": "PrivateKeyDetector", "pypi_token": "PypiTokenDetector", "sendgrid": "SendGridDetector",
    "slack": "SlackDetector", "square_oauth": "SquareOAuthDetector", "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector", "twilio": "TwilioKeyDetector",
}  # fmt: skip
"""The rules of the library that tell a secret by its form: module and class."""
_SIGNS = {
    "AWSKeyDetector": ("aws", "a3t", "abia", "acca", "akia", "asia"), "MailchimpDetector": ("-us",),
    "NpmDetector": ("_authtoken",), "SlackDetector": ("xox", "hooks.slack.com"), "StripeDetector": ("k_live_",),
}  # fmt: skip
"""Of the slow ones: what a text must hold, in lower case, for the rule to be tried."""
_VERSION_CONTROL = frozenset({".git", ".hg", ".svn"})
_ASSIGNMENTS = re.compile(r"\.env.*|\.?netrc|.+\.(?:env|sh|bash|conf|cfg|rc|service)", re.IGNORECASE)
"""Names of files where a value needs no quotes, beside those that the library knows."""
_NO_VALUE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|(?i:true|false|none|null|yes|no|required|optional)")
"""The name of a variable, and words that say whether there is a value."""
_STANDS_FOR_ONE = re.compile(
    r".*(?:\.\.\.|…)|change[-_ ]?me|your[-_ ].+|(?:my[-_]?)?(?:password|passwd|pass|secret|token|api[-_]?key)"
    r"|test(?:ing)?|dummy|example|placeholder|redacted|hidden|x+",
    re.IGNORECASE | re.DOTALL,
)
_PROSE = re.compile(
    r"(?=.*\b(?:an?|and|are|at|be|by|for|from|in|is|least|must|no|not|of|or|see|the|to|with|your)\b)"
    r"[A-Za-z ,.;:'()-]*\d{0,3}[A-Za-z ,.;:'()-]*",
    re.IGNORECASE,
)
"""A sentence: what is said of a password, not one; words that make none may be one."""
_ABOUT_ONE = re.compile(
    r"(?:name|policy|field|label|hint|help|prompt|rules?|url|uri|path|file|length|type|santa)s?",
    re.IGNORECASE,
)
"""The last word of a name that tells something about a secret: ``secretName``, ``password_policy``."""
_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9+/_=-]{20,}")
"""What no name or file is called."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SETTING = re.compile(r"\s*(?:export\s+|-\s+)?[A-Z][A-Z0-9_]*=\S+")
_LONG_LINE = 2000
_VERY_LONG = re.compile(r"[^\n]{8192,}")
_WINDOW, _TOKEN = 4096, 2048
"""Characters of a very long line that are looked at together, and what a token may go on beyond them."""


@dataclass(frozen=True, slots=True, order=True)
class Hit:
    """A line (from 1; 0: the file itself) that holds what a rule takes for a secret."""

    line: int
    rule: str


@dataclass(frozen=True)
class _Form:
    rule: str
    detector: Any
    patterns: tuple[re.Pattern[str], ...]
    signs: tuple[str, ...]


class Scanner:
    """Looks into contents; ``values`` are what no file may hold, whatever it looks like."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = tuple(sorted({form for value in values for form in _in_other_forms(value)}))
        self._overlap = max([OVERLAP, *map(len, self._values)])

    def prepare(self) -> None:
        """Load the rules now."""
        _ = self._forms, self._keyword, self._telling

    def scan_file(self, path: Path, name: str) -> list[Hit]:
        """What a file holds; ``name`` tells which language it is in. MachineError when it cannot be read."""
        try:
            with path.open("rb", buffering=0) as file:
                return sorted(self._scan(file.read, name, os.fstat(file.fileno()).st_size))
        except OSError as error:
            raise MachineError(f"{path}: cannot be read ({error.strerror})") from error

    def _scan(self, read: Callable[[int], bytes], name: str, size: int) -> set[Hit]:
        hits: set[Hit] = set()
        data = read(PIECE)
        encoding = _encoding(data)
        lines = 0
        while data:
            hits.update(Hit(lines + line, "environment-value") for line in self._lines_with_values(data))
            if encoding is not None:
                text = data.decode(encoding, "replace")
                plain = data if encoding == "utf-8" else text.encode("utf-8", "replace")
                if plain is not data:
                    hits.update(Hit(lines + line, "environment-value") for line in self._lines_with_values(plain))
                found = self._in_text(text, plain, name)
                hits.update(Hit(lines + hit.line, hit.rule) for hit in found)
            elif size <= BINARY_MAX:
                text = data.decode("latin-1")
                hits.update(Hit(0, rule) for rule, _at, _value in self._by_form(text))
            more = read(PIECE)
            if not more:
                break
            cut = data.rfind(b"\n", 0, max(0, len(data) - self._overlap)) + 1
            if len(data) - cut > PIECE:  # a line without end
                cut = len(data) - self._overlap
            cut -= cut % 2 if encoding and encoding.startswith("utf-16") else 0
            lines += data.count(b"\n", 0, cut)
            data = data[cut:] + more
        return hits

    def _lines_with_values(self, data: bytes) -> Iterator[int]:
        for value in self._values:
            at = data.find(value)
            while at >= 0:
                yield data.count(b"\n", 0, at) + 1
                at = data.find(value, at + len(value))

    def _in_text(self, text: str, data: bytes, name: str) -> Iterator[Hit]:
        """By form, then our own tokens and variables that no form covers."""
        ends = _Lines(text)
        known: dict[int, list[str]] = {}
        for rule, at, value in self._by_form(text):
            line = ends.line(at)
            known.setdefault(line, []).append(value)
            yield Hit(line, rule)
        for at, token in tokens_in(data):
            line, value = data.count(b"\n", 0, at) + 1, token.decode("utf-8", "replace")
            if not _covers(known.get(line, ()), value):
                known.setdefault(line, []).append(value)
                yield Hit(line, "known-token")
        for at, value in self._by_variable(text, name):
            line = ends.line(at)
            if not _covers(known.get(line, ()), value):
                yield Hit(line, "secret-keyword")

    def _by_form(self, text: str) -> Iterator[tuple[str, int, str]]:
        lower = ""
        stretches = list(_stretches(text))
        for form in self._forms:
            if form.signs:
                lower = lower or text.lower()
                if not any(sign in lower for sign in form.signs):
                    continue
            for pattern in form.patterns:
                for start, end in stretches:
                    for found in pattern.finditer(text, start, end):
                        for value in form.detector.analyze_string(found[0]):  # the library has the last word
                            if not (form.rule == "basic-auth-credentials" and _is_placeholder(value)):
                                yield form.rule, found.start(), found[0]
                                break

    def _by_variable(self, text: str, name: str) -> Iterator[tuple[int, str]]:
        """Values of variables with telling names."""
        lower = text.lower()  # one in small letters is found thirty times as fast as one whose case does not matter
        found_all = (
            self._telling.finditer(lower)
            if len(lower) == len(text)
            else re.finditer(self._telling.pattern, text, re.IGNORECASE)
        )
        done = -1
        for found in found_all:
            if found.start() < done:
                continue
            start = text.rfind("\n", 0, found.start()) + 1
            end = text.find("\n", found.end())
            end = len(text) if end < 0 else end
            if end - start > _LONG_LINE:
                start, end = max(start, found.start() - 64), min(end, found.end() + 512)
            start = max(start, done)  # behind a name on the line that tells something about a secret
            about = _is_about_one(text, found.start(), end)
            done = found.end() if about else end
            line = text[start:end].rstrip()
            kind = ".env" if _SETTING.fullmatch(line) else name
            for value in self._keyword.analyze_string(line, self._groups(kind)):
                if about and not _RANDOM.fullmatch(value):
                    continue
                if value and not _is_placeholder(value) and not self._is_reference(line, value):
                    yield found.start(), value

    @cached_property
    def _forms(self) -> tuple[_Form, ...]:
        from importlib import import_module

        found = []
        for module, name in _FORMS.items():
            detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)()
            found.append(_Form(rule_name(detector), detector, tuple(detector.denylist), _SIGNS.get(name, ())))
        return tuple(found)

    @cached_property
    def _keyword(self) -> Any:
        from detect_secrets.plugins.keyword import KeywordDetector

        return KeywordDetector()

    @cached_property
    def _telling(self) -> re.Pattern[str]:
        from detect_secrets.plugins.keyword import DENYLIST

        return re.compile("|".join(DENYLIST))

    def _groups(self, name: str) -> Any:
        from detect_secrets.plugins.keyword import QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP, REGEX_BY_FILETYPE
        from detect_secrets.util.filetype import FileType, determine_file_type

        kind = FileType.CONFIG if _ASSIGNMENTS.fullmatch(name.rpartition("/")[2]) else determine_file_type(name)
        return REGEX_BY_FILETYPE.get(kind, QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP)

    def _is_reference(self, line: str, value: str) -> bool:
        """Whether a value is code that gets it from elsewhere, or no word at all."""
        from detect_secrets.filters import heuristic

        return (
            _NO_VALUE.fullmatch(value) is not None
            or (" " in value and _PROSE.fullmatch(value) is not None)
            or heuristic.is_indirect_reference(line)
            or heuristic.is_not_alphanumeric_string(value)
            or heuristic.is_sequential_string(value)
        )


class _Lines:
    """Line numbers of places in a text, which come in any order."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _ends(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self._text)]

    def line(self, at: int) -> int:
        """The line, from 1."""
        return bisect_right(self._ends, at - 1) + 1


def rule_name(detector: Any) -> str:
    """The name of a rule of the library: its own words, in lower case, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", str(detector.secret_type).lower()).strip("-")


def name_hit(path: str, last: str) -> tuple[str, bool]:
    """The path whose name says that it holds secrets (this file, or a folder above it), or ""; whether it is new.

    ``last`` is what was found before, so that a folder is named once.
    """
    parts = path.split("/")
    for depth, part in enumerate(parts[:-1], 1):
        if part in _VERSION_CONTROL:
            found = "/".join(parts[:depth])
            return found, found != last
    is_secret = is_secret_file(parts[-1]) and not parts[-1].lower().endswith(".pem")  # there the content tells
    return (path, True) if is_secret else ("", False)


def values_of(names: Iterable[str], literals: Mapping[str, str], caller: Mapping[str, str]) -> list[str]:
    """What the caller's variables hold that no file may: those of these names, and model keys.

    Not what the eval itself says in plain text (``literals``), nor what is too short to be more than a word.
    """
    found = []
    for name in {*names, *_MODEL_KEYS}:
        value = caller.get(name, "").strip()
        if len(value) >= VALUE_MIN and literals.get(name) != value:
            found.append(value)
    return found


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    """Parts of a text that cover it all; a very long line is several, since some patterns look on to a line's end."""
    at = 0
    for line in _VERY_LONG.finditer(text):
        if line.start() > at:
            yield at, line.start()
        for start in range(line.start(), line.end(), _WINDOW):
            yield start, min(start + _WINDOW + _TOKEN, line.end())
        at = line.end()
    if at < len(text):
        yield at, len(text)


def _is_about_one(text: str, at: int, end: int) -> bool:
    """Whether the name at a place of a text tells something about a secret, and holds none."""
    name = re.compile(r"[\w-]+").match(text, at, min(end, at + 80))
    words = _WORDS.findall(name[0]) if name else []
    return bool(words) and _ABOUT_ONE.fullmatch(words[-1]) is not None


def _in_other_forms(value: str) -> Iterator[bytes]:
    """A value as it stands in files: plainly, escaped as in JSON, in base64 at any place of a longer text."""
    plain = value.encode("utf-8", "surrogateescape")
    yield plain
    yield json.dumps(value)[1:-1].encode()
    yield json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")
    if len(plain) >= BASE64_MIN:
        for before in range(3):
            after = (-before - len(plain)) % 3
            coded = base64.b64encode(b"\0" * before + plain + b"\0" * after)
            yield coded[(before * 8 + 5) // 6 : len(coded) - (after * 8 + 5) // 6]


def _covers(known: Iterable[str], value: str) -> bool:
    return any(value in other or other in value for other in known)


def _is_placeholder(value: str) -> bool:
    """Whether a value stands for one: ``{x}``, ``<x>``, ``${X}``, ``$X``, ``sk-...``, ``your-key``, ``changeme``."""
    from detect_secrets.filters import heuristic

    return (
        _STANDS_FOR_ONE.fullmatch(value) is not None
        or heuristic.is_templated_secret(value)
        or heuristic.is_prefixed_with_dollar_sign(value)
    )


def _encoding(data: bytes) -> str | None:
    """How a text is encoded, by its first piece; None for what is no text."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16-le" if data.startswith(b"\xff\xfe") else "utf-16-be"
    return None if b"\0" in data[:8192] else "utf-8"
