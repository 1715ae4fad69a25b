"""The agent `codex`: OpenAI's own program, headless, under the eval's hooks and servers.

interceptor/codex_start.py starts it with a home of the trial's own. What its project holds in ``.codex`` is not read:
the project is not trusted, and the model may write it. Its record of the session, not what it prints, is the
transcript: only there calls have ids (codex_sessions.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harbor_tasks.agents.base import Launch, Places, require_network
from harbor_tasks.agents.programs import Program
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.policy.matchers import named
from harbor_tasks.tasks.codex import KEYS, codex_settings

if TYPE_CHECKING:
    from harbor_tasks.tasks.manifest import BuildManifest

HOOKS = "hooks.json"
"""In the trial's home: the hooks that staging made ready."""
OLDEST = (0, 171, 0)
"""The oldest that is known to have the switch against typing into a running command, which no hook sees."""
_LAUNCHER = "/usr/local/bin/codex"
PROGRAM = Program("codex", "codex", "@openai/codex", OLDEST)


class CodexAgent:
    """Codex. Its version is the image's, or what the program on this machine says."""

    name: str = "codex"
    needs_solution: bool = False
    solution_files: tuple[str, ...] | None = ()
    programs: tuple[str, ...] = ("codex_start.py", "mcp_bridge.py")
    asks_hooks: bool = True
    program: str | None = "codex"
    model_variables: tuple[str, ...] = (*KEYS, "OPENAI_BASE_URL")
    transcript_from: Literal["file", "output", "sessions"] = "sessions"

    def __init__(self, manifest: BuildManifest) -> None:
        self._manifest = manifest
        self.version: str = PROGRAM.pinned_version()
        self._command = _LAUNCHER if manifest.sandbox.sealed else "codex"

    @property
    def answers_questions(self) -> bool:
        """Whether a handler names the question tool, which works only then."""
        return any(named("request_user_input", handler.patterns) for handler in self._manifest.handlers)

    def lacks(self, task: Path, steps: tuple[str, ...]) -> str | None:  # noqa: ARG002 - an instruction is all it needs
        """Every task has an instruction."""
        return None

    def prepare(self, environment: str, caller: Mapping[str, str], *, scripted: bool) -> None:
        """A program whose hooks can be relied on, a key, a network."""
        if self._manifest.runner.type != "codex":
            raise AuthorError(
                f"agent codex: the eval is written for {self._manifest.runner.type}; set runner.type: codex in "
                "eval.yaml, and models.skill to a model of Codex's"
            )
        if environment == "harbor" and self._manifest.models.skill is None:
            raise AuthorError("agent codex: Harbor starts it with the name of a model; set models.skill in eval.yaml")
        require_network(self.name, self._manifest, environment, scripted=scripted)
        if environment == "local":
            self._command = PROGRAM.find(caller)
            self.version = PROGRAM.version_of(self._command)
            if PROGRAM.is_too_old(self.version):
                raise MachineError(
                    f"agent codex: version {self.version} ({self._command}) may let the model type into running "
                    f"commands, unseen by hooks; {PROGRAM.how_to_get(PROGRAM.pinned_version())}, or use --env docker"
                )
        if not scripted and not any(caller.get(name) for name in KEYS):
            raise MachineError(
                "agent codex: no key for its model; export OPENAI_API_KEY (a login of yours, `codex login`, is not "
                "used). Without a model: --scripted proposes the recorded calls of each case"
            )

    def launch(self, places: Places) -> Launch:
        """The program with the eval's settings, through the script that gives it a home."""
        local = places.user is not None
        home = places.user / ".codex" if places.user is not None else places.transcript.parent / "codex"
        argv = [places.python, "-I", "-S", str(places.programs / "codex_start.py"), "--home", str(home)]
        if self._manifest.handlers and not places.sealed:  # there they are managed
            argv += ["--hooks", str(places.home / HOOKS if local else places.workspace / ".codex" / HOOKS)]
        if not places.sealed:  # there `setup` puts them where the program looks
            argv += ["--skills", str(places.workspace / ".claude" / "skills")]
            for plugin in self._manifest.plugins:
                argv += ["--skills", str(places.home / "layer" / "plugins" / plugin / "skills")]
        if places.mcp_config is not None:
            argv += ["--mcp-config", str(places.mcp_config), *(["--bridge"] if places.sealed else [])]
        argv += ["--settings", json.dumps(self._settings()), self._command, "exec", "--json", "--skip-git-repo-check"]
        argv += ["--dangerously-bypass-approvals-and-sandbox"]
        if not places.sealed:
            argv += ["--dangerously-bypass-hook-trust"]
        argv += ["-C", str(places.workspace), "-"]
        return Launch(tuple(argv), stdin=places.instruction, sessions=home / "sessions")

    def _settings(self) -> dict[str, Any]:
        """config.toml, but for what codex_start.py adds."""
        manifest = self._manifest
        patterns = [pattern for handler in manifest.handlers for pattern in handler.patterns]
        return codex_settings(manifest.runner, manifest.models, manifest.sandbox, patterns, manifest.permissions.deny)
