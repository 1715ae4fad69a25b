"""What a trial on this machine needs, put in place; what it leaves, collected; what is not kept, removed.

Two places. The *scratch* folder is temporary, has an opaque name and is all that the agent is shown: its workspace, an
empty HOME, TMPDIR. The trial's own *folder* in the job holds the policy (``home/``), the log and the transcript,
outside the workspace; agent and policy share a user here, so this is order, not a seal.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.agents.base import solution_dir
from harbor_tasks.environments.base import SandboxError
from harbor_tasks.environments.variables import MACHINE, fill_in, resolve_value
from harbor_tasks.resources import script_module
from harbor_tasks.tasks.manifest import BUILD_DIR, BuildManifest

SANDBOX_HOME = "/opt/harbor-pack"
"""Where the policy and the layer lie in a sandbox; paths below it are rewritten to the trial's home."""
HOOK_SCRIPT = '"$CLAUDE_PROJECT_DIR/hooks/tools.py"'
"""The text in a registered command that is replaced by the script's absolute path."""
POLICY_FILES = ("hooks/tools.py", "tool_handlers.yaml", "input.yaml", "answers.yaml")
KEPT_BYTES, KEPT_FILES, KEPT_DEPTH = 1 << 30, 200_000, 99
"""More than this is not copied back from a workspace; what is deeper only keeps programs here from removing it."""
NAMED = 5
"""Of what is not kept, named in a warning."""
_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
_PREFIX = "hp-"


class StagingError(SandboxError):
    """The task, or this machine, does not let the trial be staged: an environment error."""


@dataclass(frozen=True)
class Staged:
    """A trial that is ready: all paths, and the environment that its agent gets."""

    task: Path
    folder: Path
    scratch: Path
    env: Mapping[str, str]
    mcp_config: Path | None

    @property
    def workspace(self) -> Path:
        """Where the agent works."""
        return self.scratch / "workspace"

    @property
    def home(self) -> Path:
        """The policy: hooks/, tool_handlers.yaml, input and answers, settings.json, layer/."""
        return self.folder / "home"

    @property
    def log(self) -> Path:
        """The interceptor's log."""
        return self.folder / "interceptions.jsonl"

    def settings(self, step: str | None = None) -> Path:
        """The settings that hold for a step: its own, if the task has them, else the task's."""
        own = self.home / "steps" / step / "settings.json" if step is not None else None
        return own if own is not None and own.is_file() else self.home / "settings.json"


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder of an opaque name, removed on every way out; meanwhile ``folder/scratch`` says where it is."""
    forget_scratch(folder)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    note = folder / "scratch"
    try:
        note.write_text(str(scratch), encoding="utf-8")
        yield scratch
    finally:
        remove_tree(scratch)
        if not scratch.exists():  # else the next run of the trial, or `clean`, tries again
            note.unlink(missing_ok=True)


def forget_scratch(folder: Path) -> None:
    """Remove the temporary folder that a killed run of this trial left, if there is one."""
    try:
        scratch = Path((folder / "scratch").read_text(encoding="utf-8"))
    except OSError:
        return
    if scratch.name.startswith(_PREFIX) and scratch.parent == Path(tempfile.gettempdir()).resolve():
        remove_tree(scratch)


def stage(task: Path, folder: Path, scratch: Path, manifest: BuildManifest, caller: Mapping[str, str]) -> Staged:
    """Put a built task in place. ``caller`` is the environment of the user, from which ``${VAR}`` is taken."""
    environment = task / "environment"
    home = folder / "home"
    for name in ("workspace", "user", "tmp"):
        (scratch / name).mkdir()
    home.mkdir()
    try:
        for name in POLICY_FILES:
            if (environment / name).is_file():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(environment / name, home / name)
        layer = next((p for p in (environment / "layer", task.parent / BUILD_DIR / "layer") if p.is_dir()), None)
        if layer is not None:
            for part in sorted(layer.iterdir()):
                target = scratch / "workspace" if part.name == "workspace" else home / "layer" / part.name
                copy_tree(part, target)
        if (environment / "files").is_dir():  # after the layer: what a case brings beats it
            copy_tree(environment / "files", scratch / "workspace")
        for source, name in _settings_files(environment):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(staged_settings(source, home, folder / "interceptions.jsonl"), encoding="utf-8")
        env = agent_env(manifest, scratch, caller)
        mcp_config = _write_mcp(manifest, scratch, home, caller)
    except (OSError, ValueError) as error:
        raise StagingError(f"the task cannot be staged: {error}") from error
    return Staged(task, folder, scratch, env, mcp_config)


def open_for_agent(staged: Staged) -> None:
    """The last touch before the agent: what is newer than this mark was made by it."""
    (staged.home / "started").write_bytes(b"")


def stage_solution(staged: Staged, step: str | None) -> Path:
    """The solution of a task or step, copied into the scratch folder for an agent that works from it."""
    target = staged.scratch / "solution"
    remove_tree(target)
    copy_tree(solution_dir(staged.task, step), target)
    return target


def stage_tests(staged: Staged, step: str | None) -> Path:
    """The verifier of a task or step, put in place only after the agent's processes are gone."""
    target = staged.scratch / "tests"
    remove_tree(target)
    copy_tree(staged.task / "tests" if step is None else staged.task / "steps" / step / "tests", target)
    return target


def staged_settings(source: Path, home: Path, log: Path) -> str:
    """The text of a settings.json whose hooks are found by absolute path and log outside the workspace."""
    data = json.loads(source.read_bytes())
    script = f"{shlex.quote(str(home / 'hooks' / 'tools.py'))} --log {shlex.quote(str(log))}"
    for hook in hooks_in(data):
        if HOOK_SCRIPT not in hook["command"]:
            raise ValueError(f"{source.name}: a hook that does not run {HOOK_SCRIPT}: {hook['command']}")
        hook["command"] = hook["command"].replace(HOOK_SCRIPT, script)
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def hooks_in(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """All hook mappings of a settings file, in order."""
    return [hook for groups in settings.get("hooks", {}).values() for group in groups for hook in group["hooks"]]


def agent_env(manifest: BuildManifest, scratch: Path, caller: Mapping[str, str]) -> dict[str, str]:
    """The environment of the agent: this machine's plain facts, folders of its own, and the eval's execution.env.

    Nothing else of the caller's environment goes in: no key, no loader or switch variable, nothing of the user's HOME.
    """
    env = {name: caller[name] for name in MACHINE if name in caller}
    env.setdefault("LANG", "C.UTF-8")
    env.update(HOME=str(scratch / "user"), TMPDIR=str(scratch / "tmp"), SHELL="/bin/bash")
    env.update({name: resolve_value(value, caller) for name, value in manifest.execution.env.items()})
    return env


def _settings_files(environment: Path) -> Iterator[tuple[Path, str]]:
    if (environment / ".claude" / "settings.json").is_file():
        yield environment / ".claude" / "settings.json", "settings.json"
    if (environment / ".codex" / "hooks.json").is_file():
        yield environment / ".codex" / "hooks.json", "hooks.json"
    for path in sorted((environment / "steps").glob("*/settings.json")):
        yield path, f"steps/{path.parent.name}/settings.json"


def _write_mcp(manifest: BuildManifest, scratch: Path, home: Path, caller: Mapping[str, str]) -> Path | None:
    """The MCP servers in Claude Code's form, values resolved: so in the scratch folder, which is not kept."""
    if not manifest.mcp_servers:
        return None
    path = scratch / "mcp.json"
    private(path, json.dumps(mcp_config(manifest, str(home), caller)).encode())
    return path


def mcp_config(manifest: BuildManifest, home: str, caller: Mapping[str, str]) -> dict[str, Any]:
    """The eval's MCP servers in Claude Code's form, with the values of references filled in."""

    def final(text: str) -> str:
        return fill_in(text.replace(SANDBOX_HOME, home), caller)

    servers: dict[str, Any] = {}
    for server in manifest.mcp_servers:
        if server.command is not None:
            env = {name: final(value) for name, value in server.env.items()}
            args = [final(arg) for arg in server.args]
            servers[server.name] = {"type": "stdio", "command": final(server.command), "args": args, "env": env}
        else:
            headers = {name: final(value) for name, value in server.headers.items()}
            servers[server.name] = {"type": "http", "url": final(server.url or ""), "headers": headers}
    return {"mcpServers": servers}


def private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)


def reclaim(staged: Staged) -> None:
    """Before another program is given the scratch folder: its folders are folders, whatever the agent made of them.

    The workspace itself is the verifier's matter: it judges what is there.
    """
    for name in ("", "user", "tmp"):
        folder = staged.scratch / name
        if folder.is_symlink() or not folder.is_dir():
            remove_tree(folder)
            folder.mkdir(mode=0o700)
        else:
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU)


def collect(staged: Staged) -> tuple[str, ...]:
    """Copy the workspace into the trial's folder; warnings about what was not kept, and why."""
    target = staged.folder / "workspace"
    remove_tree(target)
    if staged.workspace.is_symlink() or not staged.workspace.is_dir():
        return ("nothing is kept of the workspace: the agent removed its folder, or put something else there",)
    left_out: list[str] = []
    budget, files = KEPT_BYTES, KEPT_FILES

    def keep(path: Path, info: os.stat_result) -> bool:
        nonlocal budget, files
        why = None
        if stat.S_ISDIR(info.st_mode):
            if len(path.relative_to(staged.workspace).parts) > KEPT_DEPTH:
                why = f"more than {KEPT_DEPTH} folders deep"
        elif not stat.S_ISREG(info.st_mode):
            why = _KINDS.get(stat.S_IFMT(info.st_mode), "no regular file")
        elif info.st_size > budget:
            why = f"{info.st_size} bytes; no more than {KEPT_BYTES} bytes of a workspace are kept"
        elif not files:
            why = f"no more than {KEPT_FILES} files of a workspace are kept"
        else:
            budget, files = budget - info.st_size, files - 1
        if why is not None:
            lenient(path, why)
        return why is None

    def lenient(path: Path, why: str) -> None:
        left_out.append(f"{path.relative_to(staged.workspace)} ({why})")

    copy_tree(staged.workspace, target, keep=keep, lenient=lenient)
    return not_kept(left_out)


def collect_sessions(source: Path, target: Path) -> tuple[str, ...]:
    """Copy the program's own record into the trial's folder, whatever the agent made of it: files only; warnings."""
    remove_tree(target)
    if not os.path.lexists(source):
        return ()
    left_out: list[Path] = []
    budget = KEPT_BYTES

    def keep(path: Path, info: os.stat_result) -> bool:
        nonlocal budget
        if stat.S_ISDIR(info.st_mode):
            fits = len(path.relative_to(source).parts) <= KEPT_DEPTH
        else:
            fits = stat.S_ISREG(info.st_mode) and info.st_size <= budget
            budget -= info.st_size if fits else 0
        if not fits:
            left_out.append(path)
        return fits

    copy_tree(source, target, keep=keep, lenient=lambda path, _: left_out.append(path))
    return record_not_kept(left_out)


def record_not_kept(left_out: Sequence[object]) -> tuple[str, ...]:
    """The warning about what is not kept of a program's own record: a number, since the names are the agent's."""
    return (f"not kept of the program's own record: {len(left_out)} files or folders",) if left_out else ()


def not_kept(left_out: Sequence[str]) -> tuple[str, ...]:
    """The warning about what is not kept of a workspace: the first by name, all by number; names are the agent's."""
    if not left_out:
        return ()
    plain = ("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text) for text in left_out[:NAMED])
    more = f"; and {len(left_out) - NAMED} more" if len(left_out) > NAMED else ""
    return (f"not kept of the workspace: {'; '.join(plain)}{more}",)


def copy_tree(
    source: Path, target: Path, *, keep: Callable[[Path, os.stat_result], bool] | None = None,
    lenient: Callable[[Path, str], None] | None = None,
) -> None:  # fmt: skip
    """Copy a folder (or file) into ``target``: modes, dotfiles, empty folders and links as they are; no file is shared.

    ``keep`` decides about each file and folder that is no link; ``lenient`` is told what could not be copied and why,
    instead of an OSError.
    """
    pending = [(source, target)]
    while pending:
        given, place = pending.pop()
        try:
            info = given.lstat()
            if stat.S_ISLNK(info.st_mode):
                place.unlink(missing_ok=True)
                place.symlink_to(given.readlink())
            elif keep is not None and not keep(given, info):
                continue
            elif stat.S_ISDIR(info.st_mode):
                place.mkdir(parents=True, exist_ok=True)
                names = sorted(os.listdir(given), reverse=True)  # noqa: PTH208 - names, not paths
                pending += [(given / name, place / name) for name in names]
            else:
                if place.is_symlink():
                    place.unlink()
                shutil.copy2(given, place, follow_symlinks=False)
        except OSError as error:
            if lenient is None:
                raise
            lenient(given, error.strerror or str(error))


def remove_tree(path: Path) -> None:
    """Remove a folder whatever the agent did to it: its modes, its depth. A link is removed, not followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        script_module("verify").remove_tree(str(path))
