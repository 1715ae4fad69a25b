"""Probes through the agent program itself: a scripted endpoint makes it propose each call, on this machine.

No tool reaches anything. Commands of the model come to a stand-in of ours, which notes and does not run them; MCP
servers are stand-ins with the same names (interceptor/instrument.py); files are only touched inside the workspace,
which is temporary; the way to the network is closed. What cannot be forced so is said.

One call that the policy denies is forced again where a program might not ask its hook: beside another call, after `cd`,
after somebody wrote settings that switch hooks off, by a subagent.

- passages.py: what became of a call, and what is not as it must be
- session.py: one run of a program, and what a program must tell of itself (`Subject`)
- claude_code.py: Claude Code
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harbor_tasks.errors import AuthorError
from harbor_tasks.proving.calls import Forced, Outcome
from harbor_tasks.proving.through.claude_code import ClaudeCode
from harbor_tasks.proving.through.passages import Passage, misses
from harbor_tasks.proving.through.session import Session, Subject, by_env
from harbor_tasks.tasks.manifest import BuildManifest

__all__ = ["AGENTS", "Passage", "misses", "through"]

SUBJECTS: Mapping[str, Callable[[], Subject]] = {"claude-code": ClaudeCode}
AGENTS = tuple(SUBJECTS)


def through(
    source: Path, manifest: BuildManifest, caller: Mapping[str, str], forced: Sequence[Forced],
    alone: Mapping[str, Outcome], agent: str, say: Callable[[str], None] | None,
) -> tuple[list[Passage], tuple[str, ...]]:  # fmt: skip
    """What the program makes of each call, and the tools that it offered; ``alone`` is what the hook says by itself."""
    if agent not in SUBJECTS:
        raise AuthorError(f"--through {agent}: probes go through {', '.join(AGENTS)}")
    subject = SUBJECTS[agent]()
    found: list[Passage] = []
    offered: dict[str, None] = {}
    possible = [one for one in forced if subject.possible(one)]
    for mode in subject.modes:
        for env, group in by_env(possible):
            if say is not None:
                say(f"{agent}, {mode}: {len(group)} call{'s' if len(group) != 1 else ''}")
            session = Session(subject, source, manifest, caller, group, mode, env)
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
    found.sort(key=lambda one: (order[one.call], subject.modes.index(one.mode)))
    denied = next((one for one in possible if _is_denied(one, alone[one.id])), None)
    if denied is not None:
        if say is not None:
            say(f"{agent}, where a hook might not be asked: {denied.probe.name}")
        again = [
            replace(denied, id=ident, probe=replace(denied.probe, name=f"{denied.probe.name}: {where}"))
            for ident, where in subject.places.items()
        ]
        env = denied.probe.env
        session = Session(subject, source, manifest, caller, again, subject.modes[0], env, elsewhere=True)
        found += session.passages(dict.fromkeys(subject.places, alone[denied.id]))
    return found, tuple(offered)


def _is_denied(forced: Forced, alone: Outcome) -> bool:
    """Whether the hook denies it, and an instrument would tell if it ran all the same."""
    covered = alone["reason"] != "no hook covers the tool"
    return alone["got"] == "deny" and covered and (forced.probe.tool == "Bash" or forced.probe.tool.startswith("mcp__"))
