"""Probes through the agent program itself: a scripted endpoint makes it propose each call, on this machine.

No tool reaches anything. Commands of the model come to a prefix of ours, which notes and does not run them; MCP servers
are stand-ins with the same names (interceptor/instrument.py); files are only touched inside the workspace, which is
temporary; the way to the network is closed. What cannot be forced so is said.

One call that the policy denies is forced again where a program might not ask its hook: beside another call, after `cd`,
after somebody wrote settings that switch hooks off, by a subagent.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harbor_tasks.agents.base import Launch, Places
from harbor_tasks.agents.claude_code import ClaudeCodeAgent
from harbor_tasks.endpoint import Call, Script, Turn
from harbor_tasks.endpoint.script import Asked
from harbor_tasks.environments.base import RunOptions, read_trials, trial_dir
from harbor_tasks.environments.evidence import NEVER_RAN, json_lines
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.errors import AuthorError, InterruptedRun, MachineError
from harbor_tasks.evalspec.schema import McpServer
from harbor_tasks.proving.calls import SAME, Forced, Outcome
from harbor_tasks.proving.sandbox import TASK, probe_build
from harbor_tasks.resources import resource
from harbor_tasks.tasks.manifest import BuildManifest, manifest_path, read_manifest

AGENTS = ("claude-code",)
MODES = ("bypassPermissions", "dontAsk")
NOT_OFFERED = "<tool_use_error>Error: No such tool available"
BAD_INPUT = "<tool_use_error>InputValidationError"
BY_MODE = ("because Claude Code is running in don't ask mode", "Claude requested permissions")
_FILES = {"Read": "file_path", "Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path",
          "Glob": "path", "Grep": "path"}  # fmt: skip
_REALLY = ": harbor-pack-really; "
"""How those commands begin that are run, since they are ours."""
_TAMPER = """mkdir -p .claude "$CLAUDE_CONFIG_DIR"
for file in .claude/settings.json .claude/settings.local.json "$CLAUDE_CONFIG_DIR/settings.json"; do
    echo '{"disableAllHooks": true, "env": {"CLAUDE_CODE_SIMPLE": "1", "CLAUDE_CODE_SAFE_MODE": "1"}}' >"$file"
done
sleep 6 # the program reads settings again
"""
_PREFIX = """#!/bin/sh
while IFS= read -r registered <&3; do
    [ "$1" = "$registered" ] && exec /bin/sh -c "$1" 3<&-
done 3<{registered}
case $1 in *{really}*) exec /bin/bash -c "$1" ;; esac
printf '%s\\0' "$1" >>{marks}
"""
_NO_WAY_OUT = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}


@dataclass(frozen=True)
class Passage:
    """What became of one call in the program: a row of the table.

    ``hook``: was the hook entered; ``decision`` is the log's; ``entered``: did the tool get to work, None where nothing
    could tell; ``given`` is what it was called with; ``read`` is what the model was shown.
    """

    name: str
    tool: str
    mode: str
    expected: str
    hook: bool
    decision: str
    entered: bool | None
    read: str
    given: Any = None
    ok: bool = True
    notes: tuple[str, ...] = ()
    call: str = ""


class WatchedScript(Script):
    """A script that notes, when it is asked for a turn, what the tools have done until then and what was read."""

    def __init__(self, script: Script, marks: Path) -> None:
        super().__init__(script.main, script.subagents)
        object.__setattr__(self, "watch", _Watch(marks))

    watch: _Watch

    def answer(self, asked: Asked) -> Turn:
        """The next turn; everything that was done since the last one belongs to the last one's call."""
        turn = super().answer(asked)
        self.watch.note(asked, turn)
        return turn


@dataclass
class _Watch:
    marks: Path
    at: str | None = None
    seen: tuple[int, int] = (0, 0)
    done: dict[str, list[Any]] = field(default_factory=dict)
    read: dict[str, tuple[str, bool]] = field(default_factory=dict)
    offered: dict[str, None] = field(default_factory=dict)

    def note(self, asked: Asked, turn: Turn) -> None:
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


class InstrumentedClaudeCode(ClaudeCodeAgent):
    """Claude Code whose commands are noted and not run."""

    def __init__(self, manifest: BuildManifest, marks: Path, servers: Sequence[McpServer]) -> None:
        super().__init__(manifest)
        self._marks, self._servers = marks, servers

    def launch(self, places: Places) -> Launch:
        """As always, with another prefix and no way out."""
        launch = super().launch(places)
        home = places.home / ".claude"
        with (home / "registered").open("a", encoding="utf-8") as file:
            file.writelines(f"{shlex.join([str(one.command), *one.args])}\n" for one in self._servers)
        prefix = _PREFIX.format(
            really=shlex.quote(_REALLY),
            registered=shlex.quote(str(home / "registered")),
            marks=shlex.quote(str(self._marks / "commands")),
        )
        (home / "prefix").write_text(prefix, encoding="utf-8")
        return replace(launch, env={**launch.env, **_NO_WAY_OUT})


def through(
    source: Path, manifest: BuildManifest, caller: Mapping[str, str], forced: Sequence[Forced],
    alone: Mapping[str, Outcome], agent: str, say: Callable[[str], None] | None,
) -> tuple[list[Passage], tuple[str, ...]]:  # fmt: skip
    """What the program makes of each call, and the tools that it offered; ``alone`` is what the hook says by itself."""
    if agent not in AGENTS:
        raise AuthorError(f"--through {agent}: probes go through {', '.join(AGENTS)}")
    found: list[Passage] = []
    offered: dict[str, None] = {}
    possible = [one for one in forced if _inside(one)]
    for mode in MODES:
        for env, group in _by_env(possible):
            if say is not None:
                say(f"{agent}, {mode}: {len(group)} call{'s' if len(group) != 1 else ''}")
            session = _Session(source, manifest, caller, group, mode, env)
            found += session.passages(alone)
            offered.update(session.offered)
        left_out = ("not forced: it is about a file outside the workspace",)
        found += [
            Passage(
                one.probe.name, one.probe.tool, mode, one.expected, False, "-", None, "", call=one.id, notes=left_out
            )
            for one in forced if one not in possible
        ]  # fmt: skip
    order = {one.id: at for at, one in enumerate(forced)}
    found.sort(key=lambda one: (order[one.call], MODES.index(one.mode)))
    denied = next((one for one in possible if _is_denied(one, alone[one.id])), None)
    if denied is not None:
        if say is not None:
            say(f"{agent}, where a hook might not be asked: {denied.probe.name}")
        again = [
            replace(denied, id=ident, probe=replace(denied.probe, name=f"{denied.probe.name}: {where}"))
            for ident, where in _WHERE.items()
        ]
        session = _Session(source, manifest, caller, again, MODES[0], denied.probe.env, elsewhere=True)
        found += session.passages(dict.fromkeys(_WHERE, alone[denied.id]))
    return found, tuple(offered)


_WHERE = {
    "toolu_where_0001": "beside another call", "toolu_where_0002": "after cd",
    "toolu_where_0003": "after settings were written", "toolu_where_0004": "by a subagent",
}  # fmt: skip


def _is_denied(forced: Forced, alone: Outcome) -> bool:
    """Whether the hook denies it, and an instrument would tell if it ran all the same."""
    covered = alone["reason"] != "no hook covers the tool"
    return alone["got"] == "deny" and covered and (forced.probe.tool == "Bash" or forced.probe.tool.startswith("mcp__"))


def _one_by_one(calls: Sequence[Call]) -> Script:
    prompts = {str(call.input.get("prompt", "")) for call in calls if call.tool in ("Agent", "Task")}
    return Script(tuple(Turn(calls=(call,)) for call in calls), dict.fromkeys(prompts - {""}, ()))


def _elsewhere(calls: Sequence[Call], tamper: Path) -> Script:
    """The calls in their places (`_WHERE`)."""
    beside, moved, tampered, delegated = calls

    def bash(number: int, command: str) -> Turn:
        given = {"command": _REALLY + command, "description": "Prepare"}
        return Turn(calls=(Call(f"toolu_prepare_{number:04d}", "Bash", given),))

    prompt = "Make the one call."
    start = {"description": "One call", "prompt": prompt, "subagent_type": "general-purpose"}
    turns = (
        Turn(calls=(Call("toolu_prepare_0001", "Read", {"file_path": "nothing"}), beside)), bash(2, "mkdir s && cd s"),
        Turn(calls=(moved,)), bash(3, "cd .."), bash(4, f"sh {shlex.quote(str(tamper))}"), Turn(calls=(tampered,)),
        Turn(calls=(Call("toolu_prepare_0005", "Agent", start),)),
    )  # fmt: skip
    return Script(turns, {prompt: (Turn(calls=(delegated,)),)})


def _inside(forced: Forced) -> bool:
    """Whether a call leaves files outside the workspace alone."""
    name = _FILES.get(forced.probe.tool)
    path = forced.probe.input.get(name) if name is not None else None
    if not isinstance(path, str):
        return True
    return not path.startswith(("/", "~")) and not os.path.normpath(path).startswith("..")


def _by_env(forced: Sequence[Forced]) -> Iterator[tuple[dict[str, str], list[Forced]]]:
    """The calls of one session each: the program's variables are the same for all calls in it."""
    groups: dict[tuple[tuple[str, str], ...], list[Forced]] = {}
    for one in forced:
        groups.setdefault(tuple(sorted(one.probe.env.items())), []).append(one)
    for env, group in groups.items():
        yield dict(env), group


class _Session:
    """One run of the program, in one mode and with one set of variables."""

    def __init__(
        self, source: Path, manifest: BuildManifest, caller: Mapping[str, str], forced: Sequence[Forced], mode: str,
        env: Mapping[str, str], *, elsewhere: bool = False,
    ) -> None:  # fmt: skip
        self.forced, self.mode = forced, mode
        self.calls = [Call(one.id, _tool(one.probe.tool), _complete(one.probe.tool, one.probe.input)) for one in forced]
        with tempfile.TemporaryDirectory(prefix="hp-") as scratch:
            folder = Path(scratch).resolve()
            marks = folder / "marks"
            marks.mkdir()
            built = probe_build(source, manifest, caller, forced, folder / "built")
            servers = _stand_ins(self.calls, folder)
            _adapt(built, mode, env, servers)
            (folder / "tamper.sh").write_text(_TAMPER, encoding="utf-8")
            plain = _elsewhere(self.calls, folder / "tamper.sh") if elsewhere else _one_by_one(self.calls)
            script = WatchedScript(plain, marks)
            agent = InstrumentedClaudeCode(read_manifest(built), marks, servers)
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
            read, failed = self.watch.read.get(one.id, ("", True))
            read = read.partition("\n\n<system-reminder>")[0]
            done = self.watch.done.get(one.id, [])
            entered = _entered(call.tool, done, read, failed, line)
            passage = Passage(
                one.probe.name, one.probe.tool, self.mode, one.expected, line is not None,
                str(line["decision"]) if line else "none", entered, read, done[0] if done else None, call=one.id,
            )  # fmt: skip
            missed = tuple(misses(one, passage, failed, alone[one.id]))
            yield replace(passage, ok=not missed, notes=missed or tuple(_notes(passage)))


def _tool(name: str) -> str:
    return "Agent" if name == "Task" else name


def _complete(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A question with all that the program demands of one: an author's probe need not spell it out."""
    questions = given.get("questions")
    if tool != "AskUserQuestion" or not isinstance(questions, list):
        return dict(given)
    whole = []
    for question in questions:
        options = [{"label": one} if isinstance(one, str) else one for one in question.get("options") or ()]
        options = [{"description": str(one.get("label")), **one} for one in options]
        whole.append({"header": "Choice", "multiSelect": False, **question, "options": options})
    return {**given, "questions": whole}


def _stand_ins(calls: Sequence[Call], folder: Path) -> list[McpServer]:
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


def _adapt(built: Path, mode: str, env: Mapping[str, str], servers: Sequence[McpServer]) -> None:
    """The build of the probes, for one session."""
    manifest = read_manifest(built)
    execution = manifest.execution.model_copy(update={"env": {**manifest.execution.env, **env}})
    runner = manifest.runner.model_copy(update={"permission_mode": mode})
    update = {"execution": execution, "runner": runner, "mcp_servers": tuple(servers)}
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


def _entered(tool: str, done: list[Any], read: str, failed: bool, line: Mapping[str, Any] | None) -> bool | None:
    if tool == "Bash" or tool.startswith("mcp__"):
        return bool(done)
    if not failed:
        return True
    reason = str((line or {}).get("reason") or "").strip()
    if read.startswith((*NEVER_RAN, "Tool permission request failed")) or any(text in read for text in BY_MODE):
        return False
    return None if not reason or not read.startswith(reason[:100]) else False


def misses(forced: Forced, seen: Passage, failed: bool, alone: Outcome) -> Iterator[str]:
    """What is not as it must be."""
    if seen.read.startswith((NOT_OFFERED, BAD_INPUT)):
        return
    expected = alone["got"] if forced.expected == SAME else forced.expected
    covered = alone["reason"] != "no hook covers the tool"
    by_rule = expected == "deny" and failed and not seen.hook  # a rule of the permissions, which no hook sees
    if covered and not seen.hook and not by_rule:
        yield "the hook was never entered"
    if seen.decision != expected and not by_rule and not (expected == "deny" and seen.decision == "ask"):
        by_rule = expected == "deny" and failed and seen.entered is not True
        if not by_rule:
            yield f"expected {expected}, got {seen.decision}"
    if expected == "deny" and seen.entered:
        yield "the tool ran although the call was denied"
    if seen.hook and seen.decision == "deny" and seen.read.strip() != str(alone["reason"]).strip():
        yield f"the model read {seen.read[:100]!r} and not the reason"
    if expected in ("allow", "answer", "rewrite") and seen.entered is not True:
        yield f"the tool did not run: {seen.read[:200]}"
    if expected == "none" and seen.entered is False and not any(text in seen.read for text in BY_MODE):
        yield f"the tool did not run: {seen.read[:200]}"
    updated = alone["updated_input"] or {}
    if expected == "rewrite" and seen.tool.startswith("mcp__") and (seen.given or {}).get("input") != updated:
        yield f"the tool was called with {json.dumps((seen.given or {}).get('input'))}"
    for question in updated.get("answers") or {} if expected == "answer" else ():
        if f'"{question}"=' not in seen.read:
            yield f"the model did not read the answer to {question!r}"


def _notes(seen: Passage) -> Iterator[str]:
    if seen.read.startswith(NOT_OFFERED):
        yield "the program does not offer the tool"
    elif seen.read.startswith(BAD_INPUT):
        yield "the program refuses the input before any hook"
    elif seen.decision == "none" and seen.entered is False:
        yield "the permission mode refuses it"
