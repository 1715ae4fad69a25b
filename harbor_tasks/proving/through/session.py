"""One run of an agent program whose calls are forced: what all programs have in common.

What differs is a `Subject`: how a program is started so that no tool of it reaches anything, how it names its tools,
and how its words tell what became of a call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from harbor_tasks.agents.base import Agent
from harbor_tasks.endpoint import Call, Script, Turn
from harbor_tasks.endpoint.script import Asked
from harbor_tasks.environments.base import Event, RunOptions, read_trials, trial_dir
from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.environments.scratch import scratch_folder
from harbor_tasks.errors import InterruptedRun, MachineError
from harbor_tasks.proving.calls import SAME, Forced, Outcome
from harbor_tasks.proving.sandbox import probe_build
from harbor_tasks.proving.through.bench import Bench, Fixture, bench_for
from harbor_tasks.proving.through.passages import Passage, Refusal, misses, notes
from harbor_tasks.proving.through.programs import IDS, Results
from harbor_tasks.tasks.manifest import BuildManifest, read_manifest

TOO_LONG = "it took too long"
"""How the hook's reason ends when its time is up."""
NO_WAY_OUT = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
"""Variables that close the way to the network for a program on this machine."""


@dataclass(frozen=True)
class Stage:
    """Where sessions are held, and with which build."""

    environment: str
    source: Path
    manifest: BuildManifest
    caller: Mapping[str, str]
    options: RunOptions
    say: Callable[[str], None]

    def heard(self, event: Event) -> None:
        """What a user must know of a session's job: what is built for it."""
        if event.kind == "ready":
            self.say(str(event))


@dataclass(frozen=True)
class Spot:
    """Where a program might not ask its hook, or not get its answer: a denied call is forced there once more."""

    id: str
    """Of the call."""
    where: str
    prepared: tuple[str, ...] = ()
    """The calls that lead there. Where one of them did not run, nothing is shown."""
    fails_open: bool = False
    """What is not sealed does not hold here: the program lets the call through, and that is found afterwards."""
    late: bool = False
    """The hook denies by itself, since its time is up."""
    nested: bool = False
    """The call is not the program's own, but that of another one which the last of ``prepared`` starts."""
    told: str | None = None
    """The call whose result says how often the attack was tried."""
    mode: str | None = None
    """The mode in which it is; None: the first."""


class Subject(Protocol):
    """An agent program through which calls are forced."""

    name: str
    modes: tuple[str, ...]
    """The modes in which every call is forced; the first is that of most runs."""
    samples: tuple[str, ...]
    """The modes in which one call for each decision is forced."""
    spots: tuple[Spot, ...]
    """Where a program might not ask its hook, in the order in which `elsewhere` comes to them."""
    keep: str
    """Commands that hold this text are run: they are the probes' own."""

    def agent(self, manifest: BuildManifest, bench: Bench, mode: str) -> Agent:
        """The agent; on this machine its tools note in ``bench.marks`` what they are asked for, and do nothing else.

        Commands go to the file ``commands``, each ended by a null byte.
        """

    def adapt(self, manifest: BuildManifest, mode: str) -> BuildManifest:
        """The build's manifest for this mode."""

    def call(self, forced: Forced) -> Call:
        """The call as the program's model proposes it."""

    def own(self, forced: Forced) -> Forced | str:
        """The call by the tools that the program has, or why it has none for it."""

    def possible(self, forced: Forced) -> bool:
        """Whether the call can be made without reaching anything outside the workspace."""

    def proposed(self, turn: Turn, mode: str) -> Turn:
        """A message of the model's as it is in this mode; what its calls bring comes back by `told`."""

    def told(self, results: Results) -> tuple[Results, tuple[str, ...]]:
        """What the model read, by call, and the tools that it found by a call of theirs."""

    def logged(self, line: Mapping[str, Any], turns: Sequence[tuple[float, Call]]) -> str:
        """The id of the call that a line of the log is about; ``turns`` are the calls, and when they were proposed."""

    def elsewhere(self, calls: Sequence[Call], folder: Path, mode: str) -> Script:
        """The calls in the `spots` of this mode, in their order; ``folder`` is where commands find the helpers."""

    def elsewhere_fixture(self, fixture: Fixture) -> Fixture:
        """What that script needs of its bench: helpers, a hook that takes its time."""

    def writes(self, call: Call) -> tuple[str, str] | None:
        """The file of the workspace that a call is to write, and what it holds then; None for any other call."""

    def leaves_marks(self, tool: str) -> bool:
        """Whether an instrument notes what the tool is asked for."""

    def read(self, text: str) -> str:
        """What the model read as a call's result, without what the program adds to any."""

    def refusal(self, read: str) -> Refusal:
        """Whether the program itself would not have the call."""

    def entered(self, tool: str, done: Sequence[Any], read: str, failed: bool, reason: str | None) -> bool | None:
        """Whether the tool got to work; ``done`` is what the instruments noted, ``reason`` the log's."""

    def answered(self, call: Call, read: str, question: str, answer: Any) -> bool:
        """Whether what the model read of a question's call holds this answer."""


class WatchedScript(Script):
    """A script that notes, when it is asked for a turn, what was read until then, and when it is answered."""

    def __init__(self, script: Script, bench: Bench, subject: Subject, mode: str) -> None:
        super().__init__(script.main, script.subagents)
        for name, value in (("watch", Watch(bench, subject)), ("mode", mode)):
            object.__setattr__(self, name, value)

    watch: Watch
    mode: str

    def answer(self, asked: Asked) -> Turn:
        """The next turn; everything that was done since the last one belongs to the last one's call."""
        turn = super().answer(asked)
        self.watch.note(asked, turn)
        return self.watch.subject.proposed(turn, self.mode)


@dataclass
class Watch:
    """What was done and read, by the id of the call."""

    bench: Bench
    subject: Subject
    turns: list[tuple[float, Call]] = field(default_factory=list)
    """Each call, and when it was proposed."""
    seen: tuple[int, int] = (0, 0)
    done: dict[str, list[Any]] = field(default_factory=dict)
    read: dict[str, tuple[str, bool]] = field(default_factory=dict)
    offered: dict[str, None] = field(default_factory=dict)

    def note(self, asked: Asked, turn: Turn) -> None:
        """A request of the program's, and what it is answered."""
        read, found = self.subject.told(asked.results)
        self.read.update(read)
        self.offered.update(dict.fromkeys((*asked.tools, *found)))
        if self.bench.marks is not None:
            self.settle(self.bench.marks)
        self.turns += [(time.time(), call) for call in turn.calls]

    def settle(self, place: Path) -> None:
        """What is new among the marks was done by the call at hand, or by the one at whose time it was noted.

        A subagent's call is at hand together with one of the agent's own: the mark shows which of them it is of.
        """
        commands, calls = self.bench.noted(place)
        for mark in (*commands[self.seen[0] :], *calls[self.seen[1] :]):
            noted = mark.pop("time", None)
            before = [call for at, call in self.turns if noted is None or at <= noted]
            fitting = [call for call in before if _fits(call, mark)] or before
            if fitting:
                self.done.setdefault(fitting[-1].id, []).append(mark)
        self.seen = (len(commands), len(calls))


class Session:
    """One run of the program, in one mode and with one set of variables."""

    def __init__(
        self, subject: Subject, stage: Stage, forced: Sequence[Forced], mode: str, env: Mapping[str, str], *,
        elsewhere: bool = False,
    ) -> None:  # fmt: skip
        self.subject, self.stage, self.forced, self.mode = subject, stage, forced, mode
        self.calls = [subject.call(one) for one in forced]
        with scratch_folder() as folder:
            bench = bench_for(stage.environment, folder)
            built = probe_build(stage.source, stage.manifest, stage.caller, forced, folder / "built")
            fixture = Fixture(mode, env, called_servers(self.calls), subject.keep)
            if elsewhere:
                fixture = subject.elsewhere_fixture(fixture)
            manifest = subject.adapt(read_manifest(built), mode)
            bench.adapt(built, manifest, fixture)
            plain = subject.elsewhere(self.calls, bench.at, mode) if elsewhere else one_by_one(self.calls)
            script = WatchedScript(plain, bench, subject, mode)
            agent = subject.agent(read_manifest(built), bench, mode)
            options = RunOptions(stage.environment, agent.name, jobs_dir=folder / "jobs", host=stage.options.host)
            try:
                job = run_job(built, options, scripts=lambda _task, _step: script, agent=agent, on_event=stage.heard)
            except InterruptedRun:
                raise InterruptedRun("interrupted: the probes were not all asked") from None
            [trial] = read_trials(job)
            if trial.error is not None and trial.error.kind != "tampered":
                raise MachineError(f"probes do not get through {agent.name}: {trial.error.message}")
            self.void = trial.error.message if trial.error is not None else ""
            place = trial_dir(job, trial.id)
            self.watch = script.watch
            lines = json_lines(place / "interceptions.jsonl")
            self.log = {subject.logged(line, self.watch.turns): line for line in lines}
            self.watch.settle(place)
            self.written = self._written(place / "workspace")
        self.offered = self.watch.offered

    def passages(self, alone: Mapping[str, Outcome]) -> Iterator[Passage]:
        """What became of each call."""
        spots = {spot.id: spot for spot in self.subject.spots}
        for one, call in zip(self.forced, self.calls, strict=True):
            passage, failed = self._passage(one, call)
            spot = spots.get(one.id)
            outcome = alone[one.id]
            if spot is not None and spot.late:
                outcome = {**outcome, "reason": self._given_up(one.id)}
            missed = (*misses(one, passage, failed, outcome), *self._unanswered(one, call, passage, outcome))
            passage = replace(passage, ok=not missed, notes=missed or tuple(notes(passage)))
            passage = passage if spot is None else self._judged(passage, spot)
            yield passage if passage.ok else replace(passage, verdict="missed")

    def _unanswered(self, one: Forced, call: Call, seen: Passage, alone: Outcome) -> Iterator[str]:
        """The questions whose answer the model did not read."""
        expected = alone["got"] if one.expected == SAME else one.expected
        if expected != "answer" or seen.refusal in ("not offered", "bad input"):
            return
        for question, answer in ((alone["updated_input"] or {}).get("answers") or {}).items():
            if not self.subject.answered(call, seen.read, question, answer):
                yield f"the model did not read the answer to {question!r}"

    def _written(self, workspace: Path) -> dict[str, bool]:
        """By the id of a call that is to write a file: does it hold that now? Not where two would write the same."""
        updated = {ident: line.get("updated_input") for ident, line in self.log.items()}
        calls = [replace(call, input=updated.get(call.id) or call.input) for call in self.calls]
        wanted = {call.id: written for call in calls if (written := self.subject.writes(call)) is not None}
        alone = [ident for ident, what in wanted.items() if list(wanted.values()).count(what) == 1]
        return {ident: _holds(workspace / wanted[ident][0], wanted[ident][1]) for ident in alone}

    def _given_up(self, ident: str) -> str:
        """The reason of a hook whose time was up; nothing when it gave another one."""
        reason = str(self.log.get(ident, {}).get("reason") or "")
        return reason if reason.endswith(TOO_LONG) else f"... {TOO_LONG}"

    def _judged(self, passage: Passage, spot: Spot) -> Passage:
        """A passage in a spot: was it tried at all, did it hold, is it found?"""
        read = {call: self.watch.read.get(call, ("it was not proposed", True)) for call in spot.prepared}
        failed = next((self.subject.read(text) for text, error in read.values() if error), None)
        if failed is not None and (passage.ok or spot.nested):
            return replace(passage, ok=True, notes=(f"not tried: {' '.join(failed.split())[:200]}",))
        if spot.nested:
            said = self.subject.read(read[spot.prepared[-1]][0])
            done = self.watch.done.get(spot.prepared[-1], [])
            missed = ("a program that the model started made the call",) if done else ()
            return replace(
                passage, read=said, entered=bool(done), effect=bool(done), decision="-", ok=not done,
                given=done[0] if done else None, notes=missed or (f"that program {self._asked(passage.call)}: {said}",),
            )  # fmt: skip
        told = self.watch.read.get(spot.told or "", ("", True))
        tried = tuple(self.subject.read(told[0]).split("\n")[:1]) if not told[1] else ()
        found = spot.id in self.void or (spot.mode is not None and f"({IDS}" in self.void)
        if spot.fails_open and not passage.ok and self.stage.environment == "local" and found:
            note = "not held on this machine, and found afterwards: such a trial is void"
            return replace(passage, ok=True, verdict="found", notes=(note, *tried))
        return replace(passage, notes=(*passage.notes, *tried))

    def _asked(self, call: str) -> str:
        """Whether a nested program came to propose the call."""
        return "had a model, and its call was stopped" if call in self.watch.read else "had no model"

    def _passage(self, one: Forced, call: Call) -> tuple[Passage, bool]:
        """What became of a call, and whether the model read an error."""
        line = self.log.get(one.id)
        text, failed = self.watch.read.get(one.id, ("", True))
        read = self.subject.read(text)
        done = self.watch.done.get(one.id, [])
        reason = None if line is None else str(line.get("reason") or "")
        passage = Passage(
            one.probe.name, one.probe.tool, self.mode, one.expected, line is not None,
            str(line["decision"]) if line else "none", self.subject.entered(call.tool, done, read, failed, reason),
            read, done[0] if done else None, call=one.id, refusal=self.subject.refusal(read),
            environment=self.stage.environment, effect=self.written.get(one.id, bool(done) if done else None),
        )  # fmt: skip
        if passage.effect is None and self.subject.leaves_marks(call.tool):
            passage = replace(passage, effect=False)
        return passage, failed


def _fits(call: Call, mark: Mapping[str, Any]) -> bool:
    """Whether an instrument's note may be of this call."""
    if "command" in mark:
        return call.tool == "Bash" and str(call.input.get("command")) in mark["command"]
    return call.tool.startswith("mcp__") and call.tool.endswith(f"__{mark.get('tool')}")


def _holds(path: Path, text: str) -> bool:
    try:
        return text == path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


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


def called_servers(calls: Sequence[Call]) -> dict[str, list[str]]:
    """Each server in the calls, with the tools that are called."""
    tools: dict[str, dict[str, None]] = {}
    for call in calls:
        if call.tool.count("__") >= 2 and call.tool.startswith("mcp__"):
            _, server, tool = call.tool.split("__", 2)
            tools.setdefault(server, {})[tool] = None
    return {server: list(own) for server, own in tools.items()}
