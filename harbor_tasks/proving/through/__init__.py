"""Probes through the agent program itself: a scripted endpoint makes it propose each call.

No tool reaches anything. Commands of the model come to a stand-in of ours, which notes and does not run them; MCP
servers are stand-ins with the same names (interceptor/instrument.py); the way to the network is closed. On this machine
files are only touched inside the workspace, which is temporary: what cannot be forced so is said.

One call for each decision is forced in the other modes of the program, too. One that the policy denies is forced again
where a program might not ask its hook, or not get its answer (`Spot`): beside another call, after `cd`, after somebody
wrote settings that switch hooks off, by a subagent, by another program that the model starts, when the hook is killed,
stopped, or its time is up.

- passages.py: what became of a call, and what is not as it must be
- bench.py: where the instruments stand, on this machine or in a sealed sandbox
- session.py: one run of a program, and what a program must tell of itself (`Subject`)
- attacks.py: what is done to the hook of any program
- claude_code.py, codex.py: the programs
- programs.py: calls in programs that Codex has its newer models write
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from harbor_tasks.errors import AuthorError
from harbor_tasks.proving.calls import SAME, Forced, Outcome
from harbor_tasks.proving.here import ask_here
from harbor_tasks.proving.through.claude_code import ClaudeCode
from harbor_tasks.proving.through.codex import Codex
from harbor_tasks.proving.through.passages import Passage, misses
from harbor_tasks.proving.through.session import Session, Spot, Stage, Subject, by_env
from harbor_tasks.tasks.manifest import BUILD_DIR, BuildManifest

__all__ = ["AGENTS", "Passage", "Stage", "known", "misses", "require", "through"]

SUBJECTS: Mapping[str, Callable[[], Subject]] = {"claude-code": ClaudeCode, "codex": Codex}
AGENTS = tuple(SUBJECTS)
ENVIRONMENTS = ("local", "docker")


def known(agent: str) -> str:
    """The name of a program through which probes go; AuthorError for another."""
    if agent not in SUBJECTS:
        raise AuthorError(f"--through {agent}: probes go through {', '.join(AGENTS)}")
    return agent


def require(agent: str, environments: Sequence[str], manifest: BuildManifest) -> None:
    """AuthorError for a program through which no probes go, or not in one of these environments."""
    known(agent)
    for place in environments:
        if place not in ENVIRONMENTS:
            raise AuthorError(f"--through works with --env {' and '.join(ENVIRONMENTS)}, not {place}")
        if place != "local" and not manifest.sandbox.sealed:
            raise AuthorError(
                f"--through with --env {place}: the instruments need the sealed sandbox, and the eval has "
                "sandbox.sealed: false; use --env local"
            )
    if manifest.runner.type != agent:
        raise AuthorError(
            f"--through {agent}: these tasks were built for {manifest.runner.type}; name the eval itself, from which a "
            f"build for {agent} is made"
        )


def through(
    agent: str, stage: Stage, forced: Sequence[Forced], alone: Mapping[str, Outcome], *,
    modes: Sequence[str] | None = None, standard: bool = True,
) -> tuple[list[Passage], tuple[str, ...]]:  # fmt: skip
    """What the program makes of each call, and the tools that it offered; ``alone`` is what the hook says by itself.

    ``modes``: in which permission modes each call is forced; None: in those of the program, and a sample in its other
    ones. Without ``standard`` no denied call is forced where a program might not ask its hook.
    """
    subject = SUBJECTS[agent]()
    what = f"{agent}, {stage.environment}"
    found: list[Passage] = []
    offered: dict[str, None] = {}
    every, (forced, alone, without, otherwise) = forced, _own(subject, stage, forced, alone)
    possible = [one for one in forced if stage.environment != "local" or subject.possible(one)]
    whole = subject.modes if modes is None else tuple(modes)

    def force(calls: Sequence[Forced], mode: str) -> None:
        for env, group in by_env(calls):
            stage.say(f"{what}, {mode}: {len(group)} call{'s' if len(group) != 1 else ''}")
            session = Session(subject, stage, group, mode, env)
            found.extend(session.passages(alone))
            offered.update(session.offered)

    for mode in whole:
        force(possible, mode)
    seen = {one.call: one for one in found if one.mode == whole[0] and not one.refusal}
    for mode in subject.samples if modes is None else ():
        force(_sample([one for one in possible if one.id in seen], alone, seen), mode)
    without |= {one.id: "it is about a file outside the workspace" for one in forced if one not in possible}
    found += [
        Passage(one.probe.name, one.probe.tool, mode, one.expected, False, "-", None, "", call=one.id,
                notes=(f"not forced: {without[one.id]}",), environment=stage.environment)
        for mode in whole for one in every if one.id in without
    ]  # fmt: skip
    found = [replace(seen, notes=(*seen.notes, *otherwise.get(seen.call, ()))) for seen in found]
    order = {one.id: at for at, one in enumerate(every)}
    ranks = (*whole, *subject.samples)
    found.sort(key=lambda one: (order[one.call], ranks.index(one.mode)))
    candidates = [one for one in possible if one.id in seen and _is_denied(one, alone[one.id])]
    # by the hook, not by a permission rule; of a server, whose stand-in tells what it got
    denied = min(candidates, key=lambda one: (seen[one.id].decision != "deny", one.probe.tool == "Bash"), default=None)
    if denied is None and standard:
        stage.say(
            f"{what}: the hook denies no command and no server's call, so none is forced where it might not be asked"
        )
    elif denied is not None and standard:
        stage.say(f"{what}, where a hook might not be asked: {denied.probe.name}")
        for mode in dict.fromkeys(spot.mode or subject.modes[0] for spot in subject.spots):
            spots = [spot for spot in subject.spots if (spot.mode or subject.modes[0]) == mode]
            again = [_in(spot, denied) for spot in spots]
            session = Session(subject, stage, again, mode, denied.probe.env, elsewhere=True)
            found += session.passages(dict.fromkeys((spot.id for spot in spots), alone[denied.id]))
    return found, tuple(offered)


def _in(spot: Spot, denied: Forced) -> Forced:
    """The denied call, to be made there."""
    probe = replace(denied.probe, name=f"{denied.probe.name}: {spot.where}")
    return replace(denied, id=spot.id, expected="deny", probe=probe)


def _own(
    subject: Subject, stage: Stage, forced: Sequence[Forced], alone: Mapping[str, Outcome]
) -> tuple[list[Forced], dict[str, Outcome], dict[str, str], dict[str, tuple[str, ...]]]:  # fmt: skip
    """The calls by the program's own tools, what the hook says of them, why some have none, and what to say of others.

    A call that must not pass may be denied for another reason where its tool has other fields: that is said. One that
    is no longer denied is not as expected.
    """
    own, without, otherwise = [], dict[str, str](), dict[str, tuple[str, ...]]()
    for one in forced:
        found = subject.own(one)
        if isinstance(found, str):
            without[one.id] = found
        else:
            own.append(found)
    changed = [one for one in own if one not in forced]
    asked = ask_here(stage.source / BUILD_DIR / "probe", stage.manifest, stage.caller, changed) if changed else {}
    for at, one in enumerate(own):
        if one.id not in asked:
            continue
        got = str(asked[one.id]["got"])
        otherwise[one.id] = (f"as {one.probe.tool}",)
        if got == "deny" and one.expected not in (got, SAME):
            own[at] = replace(one, expected=got)
            otherwise[one.id] = (f"as {one.probe.tool} it is denied: {asked[one.id]['reason']}",)
    return own, {**alone, **asked}, without, otherwise


def _sample(
    possible: Sequence[Forced], alone: Mapping[str, Outcome], seen: Mapping[str, Passage]
) -> list[Forced]:  # fmt: skip
    """The first call for each decision, the hook's own if there is one; all with the same variables, those of most."""
    _, group = max(by_env(possible), key=lambda one: len(one[1]), default=({}, []))
    first: dict[str, Forced] = {}
    for one in sorted(group, key=lambda one: seen[one.id].decision != alone[one.id]["got"]):
        outcome = alone[one.id]
        if outcome["got"] == "none" and outcome["reason"] == "no hook covers the tool":
            continue
        first.setdefault(outcome["got"], one)
    return list(first.values())


def _is_denied(forced: Forced, alone: Outcome) -> bool:
    """Whether the hook denies it, and an instrument would tell if it ran all the same."""
    covered = alone["reason"] != "no hook covers the tool"
    return alone["got"] == "deny" and covered and (forced.probe.tool == "Bash" or forced.probe.tool.startswith("mcp__"))
