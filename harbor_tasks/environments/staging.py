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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.agents.base import solution_dir
from harbor_tasks.environments.base import SandboxError
from harbor_tasks.environments.variables import MACHINE, fill_in, resolve_value
from harbor_tasks.tasks.manifest import BUILD_DIR, BuildManifest

SANDBOX_HOME = "/opt/harbor-pack"
"""Where the policy and the layer lie in a sandbox; paths below it are rewritten to the trial's home."""
HOOK_SCRIPT = '"$CLAUDE_PROJECT_DIR/hooks/tools.py"'
"""The text in a registered command that is replaced by the script's absolute path."""
POLICY_FILES = ("hooks/tools.py", "tool_handlers.yaml", "input.yaml", "answers.yaml")
KEPT_BYTES = 1 << 30
"""More than this is not copied back from a workspace."""
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
    note.write_text(str(scratch), encoding="utf-8")
    try:
        yield scratch
    finally:
        remove_tree(scratch)
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
    _private(path, mcp_config(manifest, str(home), caller))
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


def _private(path: Path, data: Any) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(data, file)


def collect(staged: Staged) -> tuple[str, ...]:
    """Copy the workspace into the trial's folder; warnings about what was not kept."""
    left_out: list[str] = []
    budget = [KEPT_BYTES]

    def keep(path: Path, info: os.stat_result) -> bool:
        budget[0] -= info.st_size
        if not stat.S_ISREG(info.st_mode) or budget[0] < 0:
            left_out.append(str(path.relative_to(staged.workspace)))
            return False
        return True

    copy_tree(staged.workspace, staged.folder / "workspace", keep=keep, lenient=left_out.append)
    if not left_out:
        return ()
    return (f"not kept of the workspace: {', '.join(left_out[:5])}{' …' if len(left_out) > 5 else ''}",)


def copy_tree(
    source: Path, target: Path, *, keep: Callable[[Path, os.stat_result], bool] | None = None,
    lenient: Callable[[str], None] | None = None,
) -> None:  # fmt: skip
    """Copy a folder (or file) into ``target``: modes, dotfiles, empty folders and links as they are; no file is shared.

    ``keep`` decides about each file that is no link; ``lenient`` is told what could not be read, instead of an OSError.
    """
    try:
        info = source.lstat()
        if stat.S_ISLNK(info.st_mode):
            target.unlink(missing_ok=True)
            target.symlink_to(source.readlink())
        elif stat.S_ISDIR(info.st_mode):
            target.mkdir(parents=True, exist_ok=True)
            for entry in sorted(source.iterdir()):
                copy_tree(entry, target / entry.name, keep=keep, lenient=lenient)
        elif keep is None or keep(source, info):
            if target.is_symlink():
                target.unlink()
            shutil.copy2(source, target, follow_symlinks=False)
    except OSError as error:
        if lenient is None:
            raise
        lenient(f"{source.name} ({error.strerror})")


def remove_tree(path: Path) -> None:
    """Remove a folder whatever the agent did to its modes; a link is removed, not followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return

    def again(function: Callable[..., Any], name: str, _error: Any) -> None:
        with contextlib.suppress(OSError):
            Path(name).parent.chmod(0o700)
            if not Path(name).is_symlink():
                Path(name).chmod(0o700)
            if Path(name).is_dir() and not Path(name).is_symlink():
                shutil.rmtree(name, ignore_errors=True)
            else:
                function(name)

    shutil.rmtree(path, onerror=again)
