"""`hooks.before_all` and `hooks.before_each`: commands that prepare the agent's workspace, run at build.

They run on the author's machine with the author's rights, as a Makefile would. ``before_all`` runs once, in an empty
folder that becomes the ground of every case's workspace; the case's files come over it; then ``before_each`` runs.
What is in the workspace afterwards is packed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harbor_tasks.errors import Problem, Problems, Where
from harbor_tasks.evalspec import Case, Eval
from harbor_tasks.evalspec.schema import HookCommand
from harbor_tasks.tasks.plan import TaskFile
from harbor_tasks.tasks.tree import collect

SHOWN_CHARACTERS = 2000
_KEPT_BYTES = 64 << 10
_GRACE_SECONDS = 2.0
_STAY = "let it change only what lies in its own folder"
When = Literal["before_all", "before_each"]


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code (None: it took too long) and the end of what it wrote."""

    code: int | None
    tail: str


def has_staging(ev: Eval) -> bool:
    """Whether commands make a part of the workspace."""
    return bool(ev.spec.hooks.before_all or ev.spec.hooks.before_each)


def run_before_all(ev: Eval, folder: Path, problems: Problems) -> None:
    """Fill ``folder``, which is made, with what the commands of ``before_all`` make."""
    folder.mkdir()
    _run_all(ev, "before_all", ev.spec.hooks.before_all, folder, problems, case=None)


def staged_workspace(ev: Eval, case: Case, ground: Path, folder: Path, problems: Problems) -> list[TaskFile] | None:
    """Prepare a case's workspace in ``folder``, which is made; its files, or None when a command failed."""
    if not _is_there(ground):
        when: When = "before_each" if ev.spec.hooks.before_each else "before_all"
        message = f"hooks.{when} removed a folder of the build, outside the one that it ran in"
        problems.error(message, ev.file, ev.line("hooks", when), case=case.id, hint=_STAY, code="hook-clash")
        return None
    try:
        shutil.copytree(ground, folder, symlinks=True)
    except shutil.Error as error:
        for source, _target, why in error.args[0]:
            path = Path(source).relative_to(ground)
            said = str(why).replace(str(source), str(path))  # the folder is gone when this is read
            message = f"hooks.before_all made {path}, which cannot be copied ({said})"
            line = ev.line("hooks", "before_all")
            problems.error(message, ev.file, line, hint="only files and folders can be packed", code="hook-clash")
        return None
    for file in case.files:
        target = folder / file.path
        try:
            (target if file.is_dir else target.parent).mkdir(parents=True, exist_ok=True)
            if not file.is_dir:
                shutil.copyfile(file.source, target)
                target.chmod(file.mode)
        except OSError as error:
            message = f"{file.path} cannot be put over what before_all made ({error.strerror})"
            problems.error(message, file.source, case=case.id, code="hook-clash")
            return None
    if not _run_all(ev, "before_each", ev.spec.hooks.before_each, folder, problems, case=case.id):
        return None
    found = Problems()
    files = collect(folder, found, case=case.id)
    problems.extend(_of_commands(ev, problem, ground, folder) for problem in found)
    return files


def _of_commands(ev: Eval, problem: Problem, ground: Path, folder: Path) -> Problem:
    """A problem of a workspace in the author's words: the command that made the file, not a folder that will be gone.

    What the case itself brings was checked before it came here.
    """
    assert problem.where.path is not None
    path = problem.where.path.relative_to(folder)
    when = "before_all" if os.path.lexists(ground / path) else "before_each"
    commands = ev.spec.hooks.before_all if when == "before_all" else ev.spec.hooks.before_each
    line = ev.line("hooks", when, 0) if len(commands) == 1 else ev.line("hooks", when)
    case = None if when == "before_all" else problem.where.case  # one error for all cases
    return replace(problem, message=f"hooks.{when} made {path}: {problem.message}", where=Where(ev.file, line, case))


def _run_all(
    ev: Eval, when: When, commands: Sequence[HookCommand], folder: Path, problems: Problems, *, case: str | None
) -> bool:
    """Run commands one after the other; False when one failed that may not."""
    for index, hook in enumerate(commands):
        outcome = run_command(hook.command, folder, hook.timeout, {"AGENT_EVAL_PROJECT_ROOT": str(ev.project)})
        line = ev.line("hooks", when, index)
        if not _is_there(folder):
            message = f"hooks.{when}[{index}] removed the folder that it ran in"
            problems.error(message, ev.file, line, case=case, hint=_STAY, code="hook-clash")
            return False
        if outcome.code == 0:
            continue
        ended = f"took longer than {hook.timeout} s" if outcome.code is None else f"ended with exit code {outcome.code}"
        message = f"hooks.{when}[{index}] {ended}"
        if outcome.tail:
            message += f"; its last output:\n{outcome.tail}"
        if hook.on_failure == "fail":
            problems.error(message, ev.file, line, case=case, code="hook-failed")
            return False
        problems.warn(message, ev.file, line, case=case, code="hook-failed")
    return True


def _is_there(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()


def run_command(command: str, folder: Path, timeout: float, more_env: dict[str, str]) -> Outcome:
    """Run a shell command in a folder and end all that it started; only the end of its output is kept."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], cwd=folder, env={**os.environ, **more_env}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    kept: deque[bytes] = deque()
    try:
        late = not _follow(process, kept, time.monotonic() + timeout)
    finally:
        _end_group(process)
    text = b"".join(kept)[-_KEPT_BYTES:].decode("utf-8", "replace").strip()
    return Outcome(None if late else process.returncode, text[-SHOWN_CHARACTERS:])


def _follow(process: subprocess.Popen[bytes], kept: deque[bytes], deadline: float) -> bool:
    """Read what a process writes until it ends; what it left running does not hold us. False: the time was up."""
    assert process.stdout is not None
    handle = process.stdout.fileno()
    size = 0
    with selectors.DefaultSelector() as selector:
        selector.register(handle, selectors.EVENT_READ)
        while True:
            ended = process.poll() is not None
            late = time.monotonic() >= deadline
            pause = 0.0 if ended or late else min(0.05, deadline - time.monotonic())
            if not selector.get_map():
                time.sleep(pause)
            elif selector.select(pause):
                chunk = os.read(handle, 1 << 16)
                if not chunk:
                    selector.unregister(handle)
                kept.append(chunk)
                size += len(chunk)
                while size - len(kept[0]) > _KEPT_BYTES:
                    size -= len(kept.popleft())
                if not late:
                    continue
            if ended or late:
                return ended


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all of its group, gently first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            process.wait(_GRACE_SECONDS if number == signal.SIGTERM else None)
        except subprocess.TimeoutExpired:
            continue
    if process.stdout is not None:
        process.stdout.close()
