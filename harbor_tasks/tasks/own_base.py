"""The author's Dockerfile and what lies beside it: the build context of an eval's own base, packed with the tasks.

It goes to ``.harbor-pack/base``, so that a folder of built tasks is enough to make the image, here or elsewhere. What
the author's ``.dockerignore`` leaves out is left out, and so is what no sandbox may see: the eval and its cases,
credentials, version control.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval
from harbor_tasks.evalspec.paths import is_file, is_folder
from harbor_tasks.evalspec.portable import MAX_PATH_BYTES
from harbor_tasks.evalspec.secrets import is_secret_file
from harbor_tasks.tasks.layer import belongs_to_an_eval, private_files
from harbor_tasks.tasks.plan import BUILD_DIR, TaskFile
from harbor_tasks.tasks.state import Watch
from harbor_tasks.tasks.tree import MANY_BYTES, NEVER_PACKED, collect, with_digest


@dataclass(frozen=True)
class OwnBase:
    """The files of the context, sorted, and what was looked at to find them; empty without a Dockerfile."""

    files: tuple[TaskFile, ...] = ()
    watched: tuple[Watch, ...] = ()


def own_base(ev: Eval, problems: Problems) -> OwnBase:
    """Find and read the context of ``sandbox.dockerfile``: the Dockerfile's folder."""
    text = ev.spec.sandbox.dockerfile
    path = None if text is None else ev.resolve(text, problems, "sandbox", "dockerfile", what="Dockerfile")
    if path is None or not is_file(path):
        return OwnBase()
    folder = path.parent
    ignored = _ignore_rules(path, problems)
    private = {ev.file, *private_files(ev)}

    def left_out(file: Path) -> bool:
        if file == path:
            return False
        if file.name in NEVER_PACKED or file in private or file.name.endswith(".dockerignore"):
            return True
        is_dir = is_folder(file)
        if ignored.leave_out(file.relative_to(folder).as_posix()) and not (is_dir and ignored.has_exceptions):
            return True
        if is_dir:
            return belongs_to_an_eval(file)
        if is_secret_file(file.name):
            problems.warn(
                "looks like credentials and is not packed", file, hint="name it .example if it holds none",
                code="secret",
            )  # fmt: skip
            return True
        return file.name in ("eval.yaml", "tool_handlers.yaml") and is_file(file.with_name("eval.yaml"))

    visited: list[Path] = []
    limit = MAX_PATH_BYTES - len(f"{BUILD_DIR}/base/")
    found = collect(folder, problems, skip=left_out, visited=visited, limit=limit)
    files = [with_digest(file, problems) for file in found]
    size = sum(file.content.stat().st_size for file in files if isinstance(file.content, Path))
    if size > MANY_BYTES:
        problems.warn(
            f"the folder of the eval's Dockerfile has {size >> 20} MiB", path,
            hint="name what it does not need in a .dockerignore beside it", code="large-base",
        )  # fmt: skip
    watched: list[Watch] = [("names", str(name)) for name in visited]
    watched += [("tree", str(file.content)) for file in files if isinstance(file.content, Path)]
    watched += [("tree", str(place)) for place in _ignore_files(path)]
    return OwnBase(tuple(sorted(files, key=lambda file: file.path)), tuple(watched))


@dataclass(frozen=True)
class IgnoreRules:
    """The patterns of a .dockerignore in their order: the last one that matches a path or a folder above it decides."""

    patterns: tuple[tuple[re.Pattern[str], bool], ...]
    """Each with whether it leaves out (or, after a `!`, takes in again)."""

    @property
    def has_exceptions(self) -> bool:
        """Whether something below a folder that is left out may come in again."""
        return not all(leaves_out for _pattern, leaves_out in self.patterns)

    def leave_out(self, path: str) -> bool:
        """Whether a path, relative and with slashes, is left out."""
        names = [path, *map(str, PurePosixPath(path).parents)][:-1]
        out = False
        for pattern, leaves_out in self.patterns:
            if any(pattern.fullmatch(name) for name in names):
                out = leaves_out
        return out


def _ignore_files(dockerfile: Path) -> tuple[Path, Path]:
    """Where the rules may stand: those of this Dockerfile alone come first."""
    return dockerfile.with_name(f"{dockerfile.name}.dockerignore"), dockerfile.with_name(".dockerignore")


def _ignore_rules(dockerfile: Path, problems: Problems) -> IgnoreRules:
    for path in _ignore_files(dockerfile):
        if not os.path.lexists(path):
            continue
        if not is_file(path):
            problems.error("must be a file (no folder, pipe, socket or device)", path, code="not-packable")
            break
        try:
            return ignore_rules(path.read_text(encoding="utf-8-sig", errors="replace").splitlines())
        except OSError as error:
            problems.error(f"cannot be read ({error.strerror})", path, code="not-packable")
            break
    return IgnoreRules(())


def ignore_rules(lines: Iterable[str]) -> IgnoreRules:
    """The rules of a .dockerignore, read as the `docker` command reads it."""
    rules = []
    for line in lines:
        if line.startswith("#"):
            continue
        text = line.strip()
        leaves_out = not text.startswith("!")
        parts = [part for part in text.removeprefix("!").strip().split("/") if part not in ("", ".")]
        if parts:
            rules.append((re.compile(_regex(parts), re.DOTALL), leaves_out))
    return IgnoreRules(tuple(rules))


def _regex(parts: list[str]) -> str:
    """`**` is any number of folders, `*` and `?` stay within a name."""
    last = len(parts) - 1
    text = ""
    for number, part in enumerate(parts):
        if part == "**":
            text += ".*" if number == last else "(?:.*/)?"
        else:
            text += _name_regex(part) + ("" if number == last else "/")
    return text


def _name_regex(part: str) -> str:
    tokens = re.findall(r"\*\*|\*|\?|\[\^?[^\]]+\]|\\.|.", part, re.DOTALL)
    known = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        known.get(token) or (token if token.startswith("[") and len(token) > 1 else re.escape(token[-1]))
        for token in tokens
    )
