"""Looks for secrets in all that a bundle would hold, and refuses what the eval does not allow by path and rule."""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.bundles.listing import Listing, content_of
from harbor_tasks.bundles.secrets import Hit, Scanner, name_hit, values_of
from harbor_tasks.errors import AuthorError, Problem, Where
from harbor_tasks.evalspec.schema import AllowedSecret
from harbor_tasks.tasks.pool import share

MAX_SHOWN = 100
"""Findings that are named; the rest is counted."""
_SHARE = 64
"""Contents that a process takes at a time, if they are small."""
_SHARE_BYTES = 1 << 20
"""As many bytes are a share too."""
_WORTH_ANOTHER, _WORTH_ANOTHER_BYTES = 2000, 4 << 20
"""Contents, or bytes, for each process: fewer are not worth another one."""

_PLAIN = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./-]*")
"""A path that YAML reads as this text, whatever stands around it."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A place in a build (its path; a line from 1, or 0 for the file itself) that a rule takes for a secret."""

    path: str
    line: int
    rule: str


def refuse_secrets(listing: Listing, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """AuthorError with each finding that the eval does not allow; ``say`` hears of what is allowed for nothing."""
    allowed = _Allowed(tuple(listing.manifest.bundle.allow_secrets))
    standing = 0
    problems: list[Problem] = []
    for finding in find_secrets(listing, environ):
        if allowed.covers(finding):
            continue
        standing += 1
        if len(problems) < MAX_SHOWN:
            problems.append(_problem(listing, finding))
    if problems:
        if standing > len(problems):
            problems.append(Problem(f"… and {standing - len(problems)} more findings", Where(), code="secret"))
        raise AuthorError(problems)
    for one in allowed.unused:
        say(f"bundle.allow_secrets: nothing is found by {one.rule} in {one.path}; the entry can go")


def find_secrets(listing: Listing, environ: Mapping[str, str]) -> Iterator[Finding]:
    """All findings, in the order of the files."""
    hits = _hits(listing, environ)
    last = ""
    listing.index.flush()
    listing.index.seek(0)
    for line in listing.index:
        entry = json.loads(line)
        named, is_new = name_hit(entry["path"], last)
        if named:
            last = named
            if is_new:
                yield Finding(named, 0, "secret-file")
        for hit in hits.get(entry.get("blob", -1), ()):
            yield Finding(entry["path"], hit.line, hit.rule)


def _hits(listing: Listing, environ: Mapping[str, str]) -> dict[int, list[Hit]]:
    """By the number of the content: what it holds, if anything."""
    manifest = listing.manifest
    literals: dict[str, str] = {}
    for env in (manifest.execution.env, *(step.env for step in manifest.steps)):
        literals |= env
    scanner = Scanner(values_of(manifest.variables, literals, environ))
    scanner.prepare()  # before there are several processes
    starts, firsts, size = _shares(listing)

    def work(share_number: int) -> list[tuple[int, list[Hit]]]:
        start, end = starts[share_number], starts[share_number + 1]
        lines = os.pread(listing.contents.fileno(), end - start, start).splitlines(keepends=True)
        found = []
        for number, line in enumerate(lines, firsts[share_number]):
            content = content_of(line)
            hits = scanner.scan_file(listing.tasks / content.path, content.path)
            if hits:
                found.append((number, hits))
        return found

    worth = max(1, listing.counts["blobs"] // _WORTH_ANOTHER, size // _WORTH_ANOTHER_BYTES)
    processes = min(len(os.sched_getaffinity(0)), worth)
    return {number: hits for found in share(work, len(starts) - 1, processes) for number, hits in found}


def _shares(listing: Listing) -> tuple[array[int], array[int], int]:
    """Where each share of the contents begins in their file (and the end), its first number; bytes of all contents."""
    starts, firsts = array("Q"), array("Q")
    at = total = in_share = 0
    listing.contents.flush()
    listing.contents.seek(0)
    for number, line in enumerate(listing.contents):
        if not firsts or number - firsts[-1] >= _SHARE or in_share >= _SHARE_BYTES:
            starts.append(at)
            firsts.append(number)
            in_share = 0
        size = content_of(line).size
        at, total, in_share = at + len(line), total + size, in_share + size
    starts.append(at)
    return starts, firsts, total


def _problem(listing: Listing, finding: Finding) -> Problem:
    what = "has a name of what holds secrets" if finding.rule == "secret-file" else "holds what looks like a secret"
    hint = (
        "take it out; what a task needs from the caller is a ${VAR} in execution.env; if it is none, allow it in "
        f"eval.yaml: bundle: {{allow_secrets: [{{path: {_scalar(finding.path)}, rule: {finding.rule}}}]}}"
    )
    directory = finding.path.partition("/")[0]
    case = next((task.case_id for task in listing.manifest.tasks if task.directory == directory), None)
    where = Where(Path(finding.path), finding.line or None, case)
    return Problem(f"{finding.rule}: {what}", where, hint, code="secret")


def _scalar(path: str) -> str:
    """A path as it can be pasted into YAML, and as a terminal shows it: quoted unless it is of plain characters."""
    if _PLAIN.fullmatch(path):
        return path
    text = json.dumps(path, ensure_ascii=False)
    return "".join(ch if ch.isprintable() else f"\\U{ord(ch):08x}" for ch in text)


class _Allowed:
    """What the eval allows, and what of that was of use."""

    def __init__(self, allowed: tuple[AllowedSecret, ...]) -> None:
        self._allowed = [(one, glob(one.path)) for one in allowed]
        self._used: set[int] = set()

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is allowed."""
        found = [
            index
            for index, (one, pattern) in enumerate(self._allowed)
            if one.rule == finding.rule and pattern.fullmatch(finding.path)
        ]
        self._used.update(found)
        return bool(found)

    @property
    def unused(self) -> list[AllowedSecret]:
        """Entries that covered nothing."""
        return [one for index, (one, _pattern) in enumerate(self._allowed) if index not in self._used]


def glob(pattern: str) -> re.Pattern[str]:
    """A pattern of paths: ``*`` and ``?`` within a name, ``**`` for any folders, everything else as it is."""
    parts = []
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern):
        known = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        parts.append(known.get(part) or re.escape(part))
    return re.compile("".join(parts), re.DOTALL)
