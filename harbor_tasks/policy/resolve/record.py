"""The head of a resolved tool_handlers.yaml: what it was made from, and what in it was proposed.

Comments only. Each part that was proposed (a rule, a probe, an answer) is known again by a digest of its content: as
long as the content has it, nobody changed it. What has no digest here is the author's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MARK = "# Resolved by `harbor-pack resolve`"
_FIRST = _MARK + " from inputs.tools. What you change, add or comment on here stays as it is."
_HEAD = re.compile(
    rf"{re.escape(_MARK)}[^\n]*|# (?:model|time|prompt|inputs\.tools|made(?: for [0-9a-f]{{12}})?): [^\n]*"
)
_DIGITS = 12
ANSWERS = "answers"
"""In place of an entry: what was made for all of them."""


@dataclass(frozen=True)
class Record:
    """What the head says. ``made`` holds, by entry (the digest of its `match`), the digests of its rule and probes."""

    model: str = ""
    time: str = ""
    prompt: str = ""
    inputs: str = ""
    made: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answers: tuple[str, ...] = ()

    def rule(self, entry: str) -> str | None:
        """The digest of the rule that was written for an entry."""
        digests = self.made.get(entry, ())
        return digests[0] if digests else None

    @property
    def everything(self) -> frozenset[str]:
        """All digests."""
        return frozenset(digest for digests in self.made.values() for digest in digests) | frozenset(self.answers)

    def lines(self) -> str:
        """The head, as it is written."""
        rows = [
            _FIRST, f"# model: {self.model}", f"# time: {self.time}", f"# prompt: sha256:{self.prompt}",
            f"# inputs.tools: sha256:{self.inputs}",
            *(f"# made for {entry}: {' '.join(digests)}" for entry, digests in self.made.items()),
        ]  # fmt: skip
        if self.answers:
            rows.append(f"# made: {' '.join(self.answers)}")
        return "\n".join(rows) + "\n"


def digest(kind: str, *content: Any) -> str:
    """A short digest of a part's content, the same whatever its form in the file; ``kind`` keeps kinds apart."""
    text = json.dumps([kind, *content], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def entry_key(match: str) -> str:
    """How the head names an entry of `inputs.tools`: by its `match`, white space folded."""
    return digest("match", " ".join(match.split()))


def split_head(text: str) -> tuple[Record | None, str]:
    """The head of a file, if it has one, and the text without it; other comments there stay."""
    lines = text.splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
    ours = [at for at in range(end) if _HEAD.fullmatch(lines[at].rstrip("\r\n"))]
    if not any(lines[at].startswith(_MARK) for at in ours):
        return None, text
    rest = "".join(line for at, line in enumerate(lines) if at not in ours)
    return _record(lines[at].strip() for at in ours), rest.lstrip("\r\n")


def _record(lines: Iterable[str]) -> Record:
    found: dict[str, str] = {}
    made: dict[str, tuple[str, ...]] = {}
    for line in lines:
        key, _, value = line.removeprefix("# ").partition(": ")
        if key.startswith("made for "):
            made[key.removeprefix("made for ")] = tuple(value.split())
        else:
            found[key] = value.strip()
    prompt, inputs = (found.get(key, "").removeprefix("sha256:") for key in ("prompt", "inputs.tools"))
    answers = tuple(found.get("made", "").split())
    return Record(found.get("model", ""), found.get("time", ""), prompt, inputs, made, answers)
