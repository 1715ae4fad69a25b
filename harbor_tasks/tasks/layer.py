"""The eval's layer: what the agent works with that belongs to no case (DESIGN.md, "What the agent works with").

Below ``layer/``: ``workspace/`` (the project's skills, commands, agents, CLAUDE.md, AGENTS.md; copied into the
workdir), ``plugins/<name>/``, ``servers/<folder or file>/`` (scripts of MCP servers). In the sandbox it lies at
``/opt/harbor-pack/layer``.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval
from harbor_tasks.evalspec.paths import is_file, is_folder, is_there
from harbor_tasks.evalspec.portable import MAX_PATH_BYTES
from harbor_tasks.evalspec.schema import McpServer
from harbor_tasks.evalspec.secrets import is_secret_file
from harbor_tasks.tasks.memory import MEMORY, imported
from harbor_tasks.tasks.names import is_safe, slug
from harbor_tasks.tasks.plan import BUILD_DIR, SANDBOX_HOME, TaskFile
from harbor_tasks.tasks.runtime import files_digest
from harbor_tasks.tasks.state import Watch
from harbor_tasks.tasks.tree import MANY_BYTES, NEVER_PACKED, collect, with_digest

PROJECT_FOLDERS = (".claude/skills", ".claude/commands", ".claude/agents")
PROJECT_FILES = ("CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md")
LAYER_HOME = f"{SANDBOX_HOME}/layer"
_OWN_HOOKS = re.compile(r"\A---\r?\n(?:(?!---).*\r?\n)*?hooks:", re.MULTILINE)


@dataclass(frozen=True)
class Layer:
    """The files of the layer, and the eval's MCP servers with the paths that their scripts have in the sandbox.

    ``watched`` is all of the project that was looked at, whether it is there or not.
    """

    files: tuple[TaskFile, ...]
    plugins: tuple[str, ...]
    servers: tuple[McpServer, ...]
    watched: tuple[Watch, ...]

    @property
    def workspace(self) -> dict[str, TaskFile]:
        """The files that the agent finds in its workspace, by their path there; no folders."""
        files = (f for f in self.files if f.content is not None and f.path.startswith("workspace/"))
        return {f.path.removeprefix("workspace/"): f for f in files}

    def digest(self) -> bytes:
        """A hash of all its paths, modes and contents."""
        return files_digest(self.files)


def layer_of(ev: Eval, problems: Problems) -> Layer:
    """Find and read the layer of an eval; what cannot be packed is an error, what is left out a warning."""
    found = _Finder(ev, problems)
    files = [*found.project(), *found.plugin_dirs()]
    servers = tuple(found.server(index, server) for index, server in enumerate(ev.spec.mcp_servers))
    files += found.server_files
    hashed = tuple(sorted((with_digest(f, problems) for f in files), key=lambda f: f.path))
    if found.size > MANY_BYTES:
        problems.warn(
            f"the eval's layer has {found.size >> 20} MiB: skills, plugins and server scripts", ev.file,
            hint="move what they do not need out of their folders", code="large-layer",
        )  # fmt: skip
    return Layer(hashed, tuple(found.plugins), servers, tuple(found.watched))


class _Finder:
    """Looks for the parts of one eval's layer."""

    def __init__(self, ev: Eval, problems: Problems) -> None:
        self.ev = ev
        self.problems = problems
        self.watched: list[Watch] = []
        self.plugins: dict[str, Path] = {}
        self.server_files: list[TaskFile] = []
        self._server_roots: dict[str, Path] = {}
        self.size = 0

    def project(self) -> Iterator[TaskFile]:
        """What the project and the eval's own folder give to every workspace; of two of one name the eval's counts."""
        found: dict[str, list[TaskFile]] = {}
        for base in dict.fromkeys((self.ev.project, self.ev.root)):
            if base == Path.home():
                continue  # what the author has there is for all projects, not this eval's
            self._check_home(base)
            for folder in PROJECT_FOLDERS:
                path = self._watch(base / folder)
                if self._is_there(base, folder, folder=True):
                    own: dict[str, list[TaskFile]] = {}
                    for file in self._below(path, f"workspace/{folder}", inside=self.ev.project):
                        own.setdefault("/".join(file.path.split("/")[:4]), []).append(file)
                    found.update(own)
            for name in PROJECT_FILES:
                path = self._watch(base / name)
                if self._is_there(base, name, folder=False):
                    found[name] = list(self._file(path, f"workspace/{name}", inside=self.ev.project))
            for name in MEMORY:
                found.update({path: files for path, files in self._imports(base, name) if path not in found})
            settings = self._watch(base / ".claude/settings.json")
            if _json(settings).get("hooks"):
                self._hooks_not_run(settings)
        for files in found.values():
            yield from files

    def _imports(self, base: Path, memory: str) -> Iterator[tuple[str, list[TaskFile]]]:
        """What a memory file takes in; what cannot be packed is said where it is named."""
        left_out = self._left_out(base)
        for one in imported(base, memory):
            path = None if one.path is None else self._watch(base / one.path)
            why = "is not found" if one.path is not None else "leads out of the project, and is not packed"
            if path is not None and one.found:
                way = [path, *list(path.parents)[: str(one.path).count("/")]]
                if not any(left_out(step) for step in way):
                    yield str(one.path), list(self._file(path, f"workspace/{one.path}", inside=self.ev.project))
                    continue
                why = "is not for the agent to see, and is not packed"
            if one.written.endswith(".md"):  # other words with an @ are names of people and packages
                self.problems.warn(f"@{one.written} {why}", base / one.by, one.line, code="memory-import")

    def _check_home(self, base: Path) -> None:
        """What the project's `.claude` holds is passed over in silence when it is no folder, or may not be read."""
        home = base / ".claude"
        if not is_folder(home):
            self._is_there(base, home.name, folder=True)
            return
        try:
            os.scandir(home).close()
        except OSError as error:
            self.problems.error(f"cannot be read ({error.strerror})", home, code="not-packable")

    def _is_there(self, base: Path, name: str, *, folder: bool) -> bool:
        """Whether the project has this folder or file; what lies in its place, or leads out of it, is an error."""
        path = base / name
        if not os.path.lexists(path):
            return False
        way = [path, *list(path.parents)[: name.count("/")]]
        try:
            project = self.ev.project.resolve()
            out = [step for step in way if step.is_symlink() and not step.resolve().is_relative_to(project)]
            mode = path.stat().st_mode
        except (OSError, RuntimeError):
            self.problems.error("is a link that leads nowhere", path, hint="remove it", code="not-packable")
            return False
        if out:
            hint = "copy what the agent needs into the project"
            self.problems.error("is a link that leaves the project", out[-1], hint=hint, code="not-packable")
        elif stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode):
            return True
        else:
            says = "must be a folder" if folder else "must be a file (no folder, pipe, socket or device)"
            self.problems.error(says, path, hint="the agent's program reads it", code="not-packable")
        return False

    def plugin_dirs(self) -> Iterator[TaskFile]:
        """The folders of ``runner.plugin_dirs``, each under its plugin's name; that they exist was checked before."""
        for index, text in enumerate(self.ev.spec.runner.plugin_dirs):
            path = self.ev.resolve(text, self.problems, "runner", "plugin_dirs", index, what="plugin folder")
            if path is not None and is_folder(path):
                yield from self._plugin(path, index)

    def _plugin(self, path: Path, index: int) -> Iterator[TaskFile]:
        manifest_path = path / ".claude-plugin/plugin.json"
        manifest = _json(manifest_path)
        name = manifest.get("name")
        name = name if isinstance(name, str) and is_safe(name) else slug(path.resolve().name) or f"plugin-{index + 1}"
        if self.plugins.setdefault(name, path) != path:
            line = self.ev.line("runner", "plugin_dirs", index)
            self.problems.error(f"two plugins are named {name}", self.ev.file, line, code="plugin-clash")
            return
        own_hooks = path / "hooks/hooks.json"
        if is_there(own_hooks):
            self._hooks_not_run(own_hooks)
        if manifest.get("hooks"):
            self._hooks_not_run(manifest_path)
        for file in self._below(path, f"plugins/{name}", inside=path):
            if file.content == own_hooks:
                continue
            if file.content == manifest_path and "hooks" in manifest:
                text = json.dumps({k: v for k, v in manifest.items() if k != "hooks"}, indent=2, ensure_ascii=False)
                file = replace(file, content=(text + "\n").encode())  # noqa: PLW2901 - the same file, without hooks
            yield file

    def server(self, index: int, server: McpServer) -> McpServer:
        """The server with its scripts' paths in the sandbox; the scripts' folders are packed."""
        if server.command is None:
            return server
        command, *args = (self._server_path(index, text) for text in (server.command, *server.args))
        return server.model_copy(update={"command": command, "args": args})

    def _server_path(self, index: int, text: str) -> str:
        """A word of a server's command line; if it names a file of the project, its place in the sandbox."""
        option, equals, value = text.partition("=") if text.startswith("-") else ("", "", text)
        if not value or value.startswith(("-", "$")):
            return text
        for base in dict.fromkeys((self.ev.root, self.ev.project)):
            path = base / value
            self.watched.append(("there", str(path)))
            if os.path.isfile(path) and path.resolve().is_relative_to(self.ev.project.resolve()):  # noqa: PTH113
                return option + equals + self._packed_server(index, path.absolute(), base)
        return text

    def _packed_server(self, index: int, path: Path, base: Path) -> str:
        if ".." in path.parts:
            line = self.ev.line("mcp_servers", index)
            self.problems.error(f"mcp_servers: {path} must not contain '..'", self.ev.file, line, code="server-path")
            return str(path)
        base = base if path.is_relative_to(base) else self.ev.project
        top = self._top(path, base)
        name = top.name
        count = 1
        while self._server_roots.get(name, top) != top:
            count += 1
            name = f"{top.name}-{count}"
        if name not in self._server_roots:
            self._server_roots[name] = top
            packed = self._file(top, f"servers/{name}") if is_file(top) else self._below(top, f"servers/{name}")
            self.server_files.extend(packed)
        return str(PurePosixPath(LAYER_HOME, "servers", name, *path.relative_to(top).parts))

    def _top(self, path: Path, base: Path) -> Path:
        """The highest folder on the way from ``base`` to the file that holds nothing which the agent must not see."""
        private = [self.ev.file, *private_files(self.ev)]
        current = base
        for part in path.relative_to(base).parts:
            current = current / part
            if not any(hidden.is_relative_to(current) for hidden in private):
                return current
        return path

    def _below(self, root: Path, place: str, *, inside: Path | None = None) -> Iterator[TaskFile]:
        folders: list[Path] = []
        limit = MAX_PATH_BYTES - len(f"{BUILD_DIR}/layer/{place}/".encode())
        left_out = self._left_out(root)
        for file in collect(root, self.problems, inside=inside, skip=left_out, visited=folders, limit=limit):
            yield self._kept(replace(file, path=f"{place}/{file.path}"))
        self.watched.extend(("names", str(folder)) for folder in folders)

    def _file(self, path: Path, place: str, *, inside: Path | None = None) -> Iterator[TaskFile]:
        """One file, by the same rules as a folder of files."""
        for file in collect(path.parent, self.problems, inside=inside, skip=lambda other: other != path):
            if file.content is not None:
                yield self._kept(replace(file, path=place))

    def _kept(self, file: TaskFile) -> TaskFile:
        if isinstance(file.content, Path):
            self._watch(file.content)
            self.size += file.content.stat().st_size
            if file.path.endswith(".md") and file.content.stat().st_size < 1 << 20:
                with suppress(OSError):  # said when it is hashed
                    if _OWN_HOOKS.match(file.content.read_text(encoding="utf-8", errors="replace")):
                        self._hooks_not_run(file.content)
        return file

    def _left_out(self, root: Path) -> Any:
        """What of a folder is not packed: caches, version control, credentials, the eval itself and other evals."""
        private = {self.ev.file, *private_files(self.ev)}
        real_private = [path.resolve() for path in private]

        def leads_to_private(link: Path) -> bool:
            with suppress(OSError, RuntimeError):
                real = link.resolve()
                return any(real.is_relative_to(one) or one.is_relative_to(real) for one in real_private)
            return False

        def left_out(path: Path) -> bool:
            if path.name in NEVER_PACKED or path in private or path.suffix == ".pyc":
                return True
            if path.is_symlink() and leads_to_private(path):
                says = "is a link to what only the verifier may see, and is not packed"
                self.problems.warn(says, path, hint="copy what the agent needs", code="private-link")
                return True
            if path.name in ("eval.yaml", "tool_handlers.yaml") and is_file(path.with_name("eval.yaml")):
                return True
            if is_secret_file(path.name) and not is_folder(path):
                self.problems.warn(
                    "looks like credentials and is not packed", path, hint="name it .example if it holds none",
                    code="secret",
                )  # fmt: skip
                return True
            return path != root and is_folder(path) and belongs_to_an_eval(path)

        return left_out

    def _hooks_not_run(self, path: Path) -> None:
        self.problems.warn(
            "its hooks are not run in the sandbox", path, hint="write what they enforce as handlers of the eval",
            code="hooks-not-run",
        )  # fmt: skip

    def _watch(self, path: Path) -> Path:
        """A file or folder by itself; what a folder holds is watched when it is walked."""
        self.watched.append(("names" if is_folder(path) else "tree", str(path)))
        return path


def belongs_to_an_eval(folder: Path) -> bool:
    """Whether a folder is an eval, its cases or what was built from it; not a skill or plugin that has evals too."""
    if is_folder(folder / BUILD_DIR) or (folder.name == "jobs" and any(folder.glob("*/job.json"))):
        return True
    if is_file(folder / "eval.yaml"):
        return not (is_file(folder / "SKILL.md") or is_folder(folder / ".claude-plugin"))
    return folder.name in ("cases", "dataset") and is_file(folder.parent / "eval.yaml")


def private_files(ev: Eval) -> Iterator[Path]:
    """Files and folders of an eval that only the packer and the verifier may see."""
    if ev.handlers_file is not None:
        yield ev.handlers_file
    for base in (ev.root, ev.project):
        dataset = base / ev.spec.dataset.path
        if is_folder(dataset) and dataset.resolve() != base.resolve():
            yield dataset
        for judge in ev.spec.judges:
            if judge.prompt_file is not None:
                yield base / judge.prompt_file


def _json(path: Path) -> dict[str, Any]:
    """A JSON mapping, or an empty one when there is none: whether it is right is for the agent program to say."""
    try:
        if not is_file(path):  # a pipe would block
            return {}
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
