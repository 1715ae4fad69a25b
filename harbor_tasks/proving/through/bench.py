"""Where the instruments of a session stand: on this machine, or in a sealed sandbox.

A bench makes the build of the probes one whose tools note what they are asked for and reach nothing. On this machine
the agent program is started so (`Subject.agent`); in a sandbox the end of `setup` puts instruments into the seal
(interceptor/instruments.py), which stays as it is for all else.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.evalspec.schema import McpServer
from harbor_tasks.proving.sandbox import TASK
from harbor_tasks.resources import resource, script_text
from harbor_tasks.tasks.manifest import BuildManifest, manifest_path
from harbor_tasks.tasks.sealing import server_command

INSTRUMENTS = "/opt/harbor-pack-probes"
"""The folder of the instruments in a sandbox."""
Servers = Mapping[str, Sequence[str]]
"""Server -> its tools that are called."""
_COPY = """#!/bin/sh
python3 -I "$(dirname -- "$0")/verify.py" "$@"
code=$?
cp -R {instruments}/marks /logs/verifier/
exit "$code"
"""


@dataclass(frozen=True)
class Fixture:
    """What a session asks of its bench: mode and variables of the program, stand-ins, and changes to the hook."""

    mode: str
    env: Mapping[str, str]
    servers: Servers
    keep: str
    """Commands that hold this text are run: they are the probes' own."""
    helpers: Mapping[str, str] = field(default_factory=dict)
    """Name -> text of scripts that those commands start."""
    limit: int | None = None
    """Seconds that the program gives its hook, in place of the usual ones."""
    hook: Mapping[str, str] = field(default_factory=dict)
    """Lines of the hook -> what stands in their place."""


class Bench(Protocol):
    """Where a session's instruments stand."""

    environment: str
    at: Path
    """The folder of helpers, as the program's commands see it."""
    marks: Path | None
    """Where the instruments' notes can be read while the session runs; None when they come afterwards."""

    def servers(self, servers: Servers) -> list[McpServer]:
        """The stand-ins, as the build's manifest names them."""

    def adapt(self, built: Path, manifest: BuildManifest, fixture: Fixture) -> None:
        """Make ``built`` the build of this session; ``manifest`` is its own, in the session's mode."""

    def noted(self, trial: Path) -> tuple[list[Any], list[Any]]:
        """Commands and calls that the instruments noted, by the folder of the trial."""


class LocalBench:
    """On this machine."""

    environment: str = "local"

    def __init__(self, folder: Path) -> None:
        self.at: Path = folder
        self.marks: Path | None = folder / "marks"
        (folder / "marks").mkdir()

    def servers(self, servers: Servers) -> list[McpServer]:
        """A starter for each: one plain word is a command line that everybody writes alike."""
        script = self.at / "instrument.py"
        shutil.copyfile(resource("interceptor", "instrument.py"), script)
        (self.at / "start").mkdir()
        found = []
        for name, tools in servers.items():
            words = [sys.executable, "-I", "-S", str(script), json.dumps(list(tools)), str(self.at / "marks" / "calls")]
            start = self.at / "start" / name
            start.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n", encoding="utf-8")
            start.chmod(0o755)
            found.append(McpServer(name=name, command=str(start)))
        return found

    def adapt(self, built: Path, manifest: BuildManifest, fixture: Fixture) -> None:
        """Mode, variables and servers by the manifest; the variables by the settings, too."""
        servers = self.servers(fixture.servers)
        _rewrite(built, manifest, fixture, servers)
        environment = built / TASK / "environment"
        named = _config({one.name: [str(one.command)] for one in servers})
        for name, text in {**fixture.helpers, "servers.json": named}.items():
            (self.at / name).write_text(text, encoding="utf-8")
        for path in (environment / ".claude" / "settings.json", environment / ".codex" / "hooks.json"):
            if not path.is_file():
                continue
            settings = json.loads(path.read_bytes())
            if path.name == "settings.json":  # the other file may hold nothing but hooks
                settings["env"] = {**settings.get("env", {}), **fixture.env}
            for hook in _hooks(settings) if fixture.limit is not None else ():
                hook["timeout"] = fixture.limit
            path.write_text(json.dumps(settings), encoding="utf-8")
        hook_file = environment / "hooks" / "tools.py"
        if hook_file.is_file():
            text = hook_file.read_text(encoding="utf-8")
            for line, other in fixture.hook.items():
                assert text.count(line) == 1, line
                text = text.replace(line, other)
            hook_file.write_text(text, encoding="utf-8")

    def noted(self, trial: Path) -> tuple[list[Any], list[Any]]:  # noqa: ARG002 - they are here
        """What is in the folder of marks."""
        return read_marks(self.at / "marks")


class SealedBench:
    """In a sealed sandbox on an engine, which reaches its model only."""

    environment: str = "docker"
    at: Path = Path(INSTRUMENTS)
    marks: Path | None = None

    def servers(self, servers: Servers) -> list[McpServer]:
        """As user `services`, like any server of the eval."""
        calls = f"{INSTRUMENTS}/marks/calls"
        argv = ("-I", "-S", f"{INSTRUMENTS}/instrument.py")
        return [
            McpServer(name=name, command="/usr/bin/python3", args=[*argv, json.dumps(list(tools)), calls])
            for name, tools in servers.items()
        ]

    def adapt(self, built: Path, manifest: BuildManifest, fixture: Fixture) -> None:
        """The end of `setup` puts the instruments in; the verifier brings home what they noted."""
        sandbox = manifest.sandbox.model_copy(update={"network": "model"})
        manifest = manifest.model_copy(update={"sandbox": sandbox})
        _rewrite(built, manifest, fixture, self.servers(fixture.servers))
        named = _config({name: server_command(name) for name in fixture.servers})
        given = {
            "files": {**fixture.helpers, "instrument.py": script_text("instrument"), "servers.json": named},
            "keep": fixture.keep,
            "servers": list(fixture.servers), "mode": fixture.mode, "env": dict(fixture.env), "limit": fixture.limit,
            "hook": dict(fixture.hook),
        }  # fmt: skip
        script, data = (_packed(text) for text in (script_text("instruments"), json.dumps(given)))
        program = f"import base64, sys; sys.argv[1] = base64.b64decode(sys.argv[1]); exec(base64.b64decode({script!r}))"
        setup = built / TASK / "environment" / "setup"
        with setup.open("a", encoding="utf-8") as file:
            file.write(f"/usr/bin/python3 -I -S -E -c {shlex.quote(program)} {data}\n")
        test = built / TASK / "tests" / "test.sh"
        test.write_text(_COPY.format(instruments=INSTRUMENTS), encoding="utf-8")

    def noted(self, trial: Path) -> tuple[list[Any], list[Any]]:
        """What the verifier brought home."""
        return read_marks(trial / "verifier" / "marks")


def read_marks(folder: Path) -> tuple[list[Any], list[Any]]:
    """What the stand-ins for commands and for servers have noted; ``time`` where they say when."""
    path = folder / "commands"
    texts = path.read_bytes().decode("utf-8", "replace").split("\0")[:-1] if path.is_file() else []
    return [_command(text) for text in texts], list(json_lines(folder / "calls"))


def _command(text: str) -> dict[str, Any]:
    found = re.match(r"(\d+\.\d*)N? ", text)  # not every `date` knows parts of a second
    when = {} if found is None or found[0].endswith("N ") else {"time": float(found[1])}
    return {**when, "command": text if found is None else text[found.end() :]}


def _rewrite(built: Path, manifest: BuildManifest, fixture: Fixture, servers: Sequence[McpServer]) -> None:
    """The manifest for this session, written."""
    execution = manifest.execution.model_copy(update={"env": {**manifest.execution.env, **fixture.env}})
    changed = manifest.model_copy(update={"execution": execution, "mcp_servers": tuple(servers)})
    manifest_path(built).write_bytes(changed.to_bytes())


def _config(servers: Mapping[str, Sequence[str]]) -> str:
    """The servers as the agent program has them, for a program that the model starts."""
    told = {name: {"type": "stdio", "command": argv[0], "args": list(argv[1:])} for name, argv in servers.items()}
    return json.dumps({"mcpServers": told})


def _hooks(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    groups = [group for event in settings.get("hooks", {}).values() for group in event]
    return [hook for group in groups for hook in group["hooks"]]


def _packed(text: str) -> str:
    """One word that no shell changes."""
    return base64.b64encode(text.encode()).decode()


def bench_for(environment: str, folder: Path) -> Bench:
    """The bench of an environment; ``folder`` is the session's own on this machine."""
    return LocalBench(folder) if environment == LocalBench.environment else SealedBench()
