"""Our own checks of a task directory, and what Harbor's lint may say of it.

`harbor lint --select ALL` must find nothing in a task that `build` wrote but what ``LINT_EXEMPT`` names.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harbor_tasks.tasks.names import HARBOR_NAME
from harbor_tasks.tasks.plan import FILES, TaskFile
from harbor_tasks.tasks.workspace import is_policy_path

LINT_EXEMPT: dict[str, str] = {
    "root-agent": "an image that does not seal has no users of ours: naming one would break every trial on it",
    "shared-verifier": "judges read the workspace that the agent left, after the verifier ended what still ran there",
    "unpinned-image": "the reference is a hash of what is in the image; its digest is known only once it was built",
    "unused-harborignore": "a case's own .harborignore travels like any other file of its workspace",
    "unpinned-python-dependency": "only ever found in a solve.sh, which is the author's",
}
"""Rules of Harbor's lint that a task may break, and why."""

_BUILD_FILES = frozenset({"environment/Dockerfile", "environment/docker-compose.yaml"})
_REWARDS = ("reward.json", "reward.txt")


def faults_of(files: Sequence[TaskFile]) -> list[str]:
    """What is wrong with a task before it is written: everything but the content of task.toml."""
    by_path = {file.path: file for file in files}
    twice = [] if len(by_path) == len(files) else sorted(path for path, n in _count(files).items() if n > 1)
    return [*(f"two files are to lie at {path}" for path in twice), *_faults(by_path)]


def _count(files: Iterable[TaskFile]) -> Counter[str]:
    return Counter(file.path for file in files)


def faults_on_disk(directory: Path, expected: Mapping[str, Any] | None = None) -> list[str]:
    """What is wrong with a task directory; ``expected`` is what task.toml has to say."""
    faults: list[str] = []
    files: dict[str, TaskFile] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            files[name] = TaskFile(name, path.read_bytes(), stat.S_IMODE(status.st_mode))
        elif stat.S_ISDIR(status.st_mode):
            if not os.listdir(path):  # noqa: PTH208
                files[name] = TaskFile(name, None, 0o755)
        else:
            faults.append(f"{name} is no regular file")
    return [*faults, *_faults(files), *_toml_faults(files.get("task.toml"), files, expected)]


def _faults(files: Mapping[str, TaskFile]) -> Iterator[str]:
    steps = sorted({path.split("/")[1] for path in files if path.startswith("steps/") and path.count("/") > 1})
    for part in [f"steps/{step}/" for step in steps] or [""]:
        yield from _part_faults(part, files)
    if "task.toml" not in files:
        yield "task.toml is missing"
    has_environment = False
    folders: set[str] = set()
    for path, file in files.items():
        has_environment = has_environment or path.startswith("environment/")
        if path in _BUILD_FILES:
            yield f"{path} would change how Harbor stages the task"
        if file.mode not in (0o644, 0o755):
            yield f"{path} has the mode {file.mode:04o}"
        if path.startswith("/") or "//" in path or ".." in path.split("/"):
            yield f"{path} is no plain relative path"
        if path.startswith(FILES) and is_policy_path(path.removeprefix(FILES), folder=file.content is None):
            yield f"{path} lies where the policy does"
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    yield from (f"{path} is both a file and a folder" for path in folders & files.keys())
    if not has_environment:
        yield "environment/ is empty: Harbor would not make the workdir"


def _part_faults(part: str, files: Mapping[str, TaskFile]) -> Iterator[str]:
    """What a task, or each of its steps, needs."""
    instruction = files.get(f"{part}instruction.md")
    if instruction is None or not instruction.content:
        yield f"{part}instruction.md is missing or empty"
    script = files.get(f"{part}tests/test.sh")
    content = script.content if script is not None else None
    if script is None or not isinstance(content, bytes):
        yield f"{part}tests/test.sh is missing"
    else:
        if b"\r" in content or not content.startswith(b"#!"):
            yield f"{part}tests/test.sh cannot be run: its lines must end with LF and the first one name a shell"
        if not script.mode & 0o100:
            yield f"{part}tests/test.sh is not executable"
    for name in ("verify.py", "judges.json", "initial.json"):
        if f"{part}tests/{name}" not in files:
            yield f"{part}tests/{name} is missing"
    yield from (f"{part}tests/{name} must not be there" for name in _REWARDS if f"{part}tests/{name}" in files)


def _toml_faults(
    file: TaskFile | None, files: Mapping[str, TaskFile], expected: Mapping[str, Any] | None
) -> Iterator[str]:
    if file is None or not isinstance(file.content, bytes):
        return
    try:
        data = tomllib.loads(file.content.decode("utf-8"))
    except ValueError as error:
        yield f"task.toml cannot be read ({error})"
        return
    if expected is not None and data != expected:
        yield "task.toml does not say what was planned"
    name = data.get("task", {}).get("name")
    if not isinstance(name, str) or not HARBOR_NAME.fullmatch(name) or ".." in name:
        yield f"task.toml: {name!r} is no name of a task"
    for step in data.get("steps", []):
        if f"steps/{step['name']}/instruction.md" not in files:
            yield f"task.toml: the step {step['name']} has no folder"
