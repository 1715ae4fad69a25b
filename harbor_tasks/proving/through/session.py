"""One run of an agent program whose calls are forced: what all programs have in common.

What differs is a `Subject`: how a program is started so that no tool of it reaches anything, how it names its tools,
and how its words tell what became of a call.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from harbor_tasks.agents.base import Agent
from harbor_tasks.endpoint import Call, Script, Turn
from harbor_tasks.endpoint.script import Asked
from harbor_tasks.environments.base import RunOptions, read_trials, trial_dir
from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.errors import InterruptedRun, MachineError
from harbor_tasks.evalspec.schema import McpServer
from harbor_tasks.proving.calls import Forced, Outcome
from harbor_tasks.proving.sandbox import TASK, probe_build
from harbor_tasks.proving.through.passages import Passage, Refusal, misses, notes
from harbor_tasks.resources import resource
from harbor_tasks.tasks.manifest import BuildManifest, manifest_path, read_manifest

NO_WAY_OUT = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
"""Variables that close the way to the network for a program on this machine."""


class Subject(Protocol):
    """An agent program through which calls are forced."""

    name: str
    modes: tuple[str, ...]
    """The modes in which every call is forced; the first is that of most runs."""
    places: Mapping[str, str]
    """Where a program might not ask its hook: the id of the call that is forced there, and what the place is."""

    def agent(self, manifest: BuildManifest, marks: Path, servers: Sequence[McpServer]) -> Agent:
        """The agent whose tools note in ``marks`` what they are asked for, and do nothing else.

        Commands go to the file ``commands``, each ended by a null byte.
        """

    def adapt(self, manifest: BuildManifest, mode: str) -> BuildManifest:
        """The build's manifest for this mode."""

    def call(self, forced: Forced) -> Call:
        """The call as the program's model proposes it."""

    def possible(self, forced: Forced) -> bool:
        """Whether the call can be made without reaching anything outside the workspace."""

    def elsewhere(self, calls: Sequence[Call], folder: Path) -> Script:
        """The calls in `places`, in their order; ``folder`` is for what the script needs."""

    def read(self, text: str) -> str:
        """What the model read as a call's result, without what the program adds to any."""

    def refusal(self, read: str) -> Refusal:
        """Whether the program itself would not have the call."""

    def entered(self, tool: str, done: Sequence[Any], read: str, failed: bool, reason: str | None) -> bool | None:
        """Whether the tool got to work; ``done`` is what the instruments noted, ``reason`` the log's."""


class WatchedScript(Script):
    """A script that notes, when it is asked for a turn, what the tools have done until then and what was read."""

    def __init__(self, script: Script, marks: Path) -> None:
        super().__init__(script.main, script.subagents)
        object.__setattr__(self, "watch", Watch(marks))

    watch: Watch

    def answer(self, asked: Asked) -> Turn:
        """The next turn; everything that was done since the last one belongs to the last one's call."""
        turn = super().answer(asked)
        self.watch.note(asked, turn)
        return turn


@dataclass
class Watch:
    """What was done and read, by the id of the call."""

    marks: Path
    at: str | None = None
    seen: tuple[int, int] = (0, 0)
    done: dict[str, list[Any]] = field(default_factory=dict)
    read: dict[str, tuple[str, bool]] = field(default_factory=dict)
    offered: dict[str, None] = field(default_factory=dict)

    def note(self, asked: Asked, turn: Turn) -> None:
        """A request of the program's, and what it is answered."""
        self.read.update(asked.results)
        self.offered.update(dict.fromkeys(asked.tools))
        self.settle()
        if turn.calls:
            self.at = turn.calls[-1].id

    def settle(self) -> None:
        """What is new among the marks was done by the call at hand."""
        commands, calls = _marks(self.marks)
        if self.at is not None:
            self.done.setdefault(self.at, []).extend([*commands[self.seen[0] :], *calls[self.seen[1] :]])
        self.seen = (len(commands), len(calls))


class Session:
    """One run of the program, in one mode and with one set of variables."""

    def __init__(
        self, subject: Subject, source: Path, manifest: BuildManifest, caller: Mapping[str, str],
        forced: Sequence[Forced], mode: str, env: Mapping[str, str], *, elsewhere: bool = False,
    ) -> None:  # fmt: skip
        self.subject, self.forced, self.mode = subject, forced, mode
        self.calls = [subject.call(one) for one in forced]
        with tempfile.TemporaryDirectory(prefix="hp-") as scratch:
            folder = Path(scratch).resolve()
            marks = folder / "marks"
            marks.mkdir()
            built = probe_build(source, manifest, caller, forced, folder / "built")
            servers = stand_ins(self.calls, folder)
            _adapt(subject, built, mode, env, servers)
            plain = subject.elsewhere(self.calls, folder) if elsewhere else one_by_one(self.calls)
            script = WatchedScript(plain, marks)
            agent = subject.agent(read_manifest(built), marks, servers)
            options = RunOptions("local", agent.name, jobs_dir=folder / "jobs")
            try:
                job = run_job(built, options, scripts=lambda _task, _step: script, agent=agent)
            except InterruptedRun:
                raise InterruptedRun("interrupted: the probes were not all asked") from None
            [trial] = read_trials(job)
            if trial.error is not None and trial.error.kind != "tampered":
                raise MachineError(f"probes do not get through {agent.name}: {trial.error.message}")
            place = trial_dir(job, trial.id)
            self.log = {str(line.get("tool_use_id")): line for line in json_lines(place / "interceptions.jsonl")}
            self.watch = script.watch
            self.watch.settle()
        self.offered = self.watch.offered

    def passages(self, alone: Mapping[str, Outcome]) -> Iterator[Passage]:
        """What became of each call."""
        for one, call in zip(self.forced, self.calls, strict=True):
            line = self.log.get(one.id)
            text, failed = self.watch.read.get(one.id, ("", True))
            read = self.subject.read(text)
            done = self.watch.done.get(one.id, [])
            reason = None if line is None else str(line.get("reason") or "")
            entered = self.subject.entered(call.tool, done, read, failed, reason)
            passage = Passage(
                one.probe.name, one.probe.tool, self.mode, one.expected, line is not None,
                str(line["decision"]) if line else "none", entered, read, done[0] if done else None, call=one.id,
                refusal=self.subject.refusal(read),
            )  # fmt: skip
            missed = tuple(misses(one, passage, failed, alone[one.id]))
            yield replace(passage, ok=not missed, notes=missed or tuple(notes(passage)))


def one_by_one(calls: Sequence[Call]) -> Script:
    """Each call in a message of its own; a subagent says nothing."""
    prompts = {str(call.input.get("prompt", "")) for call in calls if call.tool in ("Agent", "Task")}
    return Script(tuple(Turn(calls=(call,)) for call in calls), dict.fromkeys(prompts - {""}, ()))


def by_env(forced: Sequence[Forced]) -> Iterator[tuple[dict[str, str], list[Forced]]]:
    """The calls of one session each: the program's variables are the same for all calls in it."""
    groups: dict[tuple[tuple[str, str], ...], list[Forced]] = {}
    for one in forced:
        groups.setdefault(tuple(sorted(one.probe.env.items())), []).append(one)
    for env, group in groups.items():
        yield dict(env), group


def stand_ins(calls: Sequence[Call], folder: Path) -> list[McpServer]:
    """A server for each name in the calls, with the tools that are called."""
    script = folder / "instrument.py"
    shutil.copyfile(resource("interceptor", "instrument.py"), script)
    tools: dict[str, dict[str, None]] = {}
    for call in calls:
        if call.tool.count("__") >= 2 and call.tool.startswith("mcp__"):
            _, server, tool = call.tool.split("__", 2)
            tools.setdefault(server, {})[tool] = None
    starter = folder / "start"
    starter.mkdir()
    servers = []
    for name, own in tools.items():
        # one plain word is a command line that everybody writes alike
        words = [sys.executable, "-I", "-S", str(script), json.dumps(list(own)), str(folder / "marks" / "calls")]
        start = starter / name
        start.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n", encoding="utf-8")
        start.chmod(0o755)
        servers.append(McpServer(name=name, command=str(start)))
    return servers


def _adapt(subject: Subject, built: Path, mode: str, env: Mapping[str, str], servers: Sequence[McpServer]) -> None:
    """The build of the probes, for one session."""
    manifest = subject.adapt(read_manifest(built), mode)
    execution = manifest.execution.model_copy(update={"env": {**manifest.execution.env, **env}})
    update = {"execution": execution, "mcp_servers": tuple(servers)}
    manifest_path(built).write_bytes(manifest.model_copy(update=update).to_bytes())
    path = built / TASK / "environment" / ".claude" / "settings.json"
    if path.is_file():
        settings = json.loads(path.read_bytes())
        settings["env"] = {**settings.get("env", {}), **env}
        path.write_text(json.dumps(settings), encoding="utf-8")


def _marks(folder: Path) -> tuple[list[Any], list[Any]]:
    """What the prefix and the stand-ins have noted."""
    commands = folder / "commands"
    texts = commands.read_bytes().decode("utf-8", "replace").split("\0")[:-1] if commands.is_file() else []
    return [{"command": text} for text in texts], list(json_lines(folder / "calls"))
