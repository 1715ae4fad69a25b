"""Which files a case may bring into the agent's workspace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Case
from harbor_tasks.evalspec.portable import twin_paths
from harbor_tasks.tasks.layer import Layer
from harbor_tasks.tasks.plan import FILES, TaskFile

_POLICY_PATH = re.compile(
    r"(?:\.claude/settings[^/]*\.json|\.codex/hooks\.json|hooks/tools\.py|tool_handlers\.yaml|setup|\.harbor-pack-files)"
    r"(?:/.*)?"
)
_FOLDERS = frozenset({".claude", ".codex"})
"""Names that may be folders, but not files: settings lie below them."""


def is_policy_path(path: str, *, folder: bool = False) -> bool:
    """Whether a workspace path belongs to the policy or to staging, so that no case may bring it."""
    return _POLICY_PATH.fullmatch(path) is not None or (path in _FOLDERS and not folder)


def check_made(files: Iterable[TaskFile], problems: Problems, *, case: Case) -> None:
    """Report files at policy paths that the author's commands made; those of the case itself are known by now."""
    for file in files:
        if is_policy_path(file.path, folder=file.content is None):
            problems.error(
                f"{file.path}, made by hooks.before_all or before_each, is a place of the policy", case.directory,
                case=case.id, hint="copy the skills alone; permissions belong into eval.yaml", code="policy-path",
            )  # fmt: skip


def refuse_twins(files: Iterable[TaskFile], case: Case, problems: Problems) -> None:
    """Report files of a task that are one where case is folded: no bundle could be unpacked there."""
    for path, place, first in twin_paths(file.path for file in files):
        problems.error(
            f"{place} differs from {first} by case or accents only", _source_of(path, case), case=case.id,
            hint="rename one of them: on other machines they are one file", code="twin",
        )  # fmt: skip


def _source_of(path: str, case: Case) -> Path:
    """The file of the case that became this one of the task; the case's folder when it was made."""
    for prefix, files in ((FILES, case.files), ("references/", case.references), ("solution/", case.solution)):
        found = [file.source for file in files if prefix in path and file.path == path.partition(prefix)[2]]
        if found:
            return found[0]
    return case.directory


def check_layer(files: Iterable[TaskFile], layer: Layer, problems: Problems, *, case: Case) -> None:
    """Report files of a case that cannot lie in one workspace with those of the layer, and those that hide one."""
    layer_files = layer.workspace
    if not layer_files:
        return
    folders = {str(parent) for path in layer_files for parent in PurePosixPath(path).parents}
    for file in files:
        above = (str(parent) for parent in PurePosixPath(file.path).parents)
        if (file.content is not None and file.path in folders) or any(path in layer_files for path in above):
            message = f"{file.path} of the case lies across the project's skills, commands or agents"
            problems.error(message, case.directory, case=case.id, hint="rename it", code="layer-clash")
        elif file.content is not None and file.path in layer_files:
            message = f"{file.path} of the case takes the place of the project's"
            problems.warn(message, case.directory, case=case.id, code="hides-layer")
