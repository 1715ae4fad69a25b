"""What a scripted model proposes. Where a conversation is in its script is read from its own history.

So a request that is sent twice gets the same answer twice, and side requests (a title, a count of tokens, the summary
of a page) use nothing up: they hold none of the script's calls, and offer no tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harbor_tasks.errors import AuthorError

MAIN = "main"
SUBAGENT_TOOLS = ("Agent", "Task")
DONE = "Done."
"""What is said at the end of a script that says nothing itself."""


@dataclass(frozen=True)
class Call:
    """One tool call, as it is proposed."""

    id: str
    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """One message of the model's: a text, then calls, which the agent may run at the same time."""

    say: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Asked:
    """A request for a message, without what belongs to the wire.

    ``kind``: ``turn`` of an agent's conversation, ``forced`` when the caller names the tool that must be called,
    ``side`` for everything else. ``results`` is what the agent says of each call in the history: text, and whether it
    is an error.
    """

    kind: Literal["turn", "forced", "side"]
    model: str
    stream: bool
    tools: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    """The texts of the first message of the user: a subagent is known by its prompt, which is one of them."""
    made: tuple[str, ...] = ()
    """The ids of the calls in the history."""
    results: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    """All texts of instructions and messages, but for the results of calls."""


@dataclass(frozen=True)
class Script:
    """The turns of each conversation: the agent's own (`MAIN`), and each subagent's by the prompt it is given."""

    main: tuple[Turn, ...]
    subagents: Mapping[str, tuple[Turn, ...]] = field(default_factory=dict)

    def conversation(self, asked: Asked) -> str:
        """`MAIN`, or the prompt of the subagent that asks. What the script has proposed tells more than any text."""
        for prompt, turns in self.subagents.items():
            if any(call.id in asked.made for turn in turns for call in turn.calls):
                return prompt
        if any(call.id in asked.made for turn in self.main for call in turn.calls):
            return MAIN
        told = {text.strip() for text in asked.first}
        return next((prompt for prompt in self.subagents if prompt.strip() in told), MAIN)

    def answer(self, asked: Asked) -> Turn:
        """The next turn: the one after the last whose calls are in the history; at the end a text."""
        where = self.conversation(asked)
        turns = self.main if where == MAIN else self.subagents[where]
        done = [n for n, turn in enumerate(turns, 1) if any(call.id in asked.made for call in turn.calls)]
        following = turns[max(done, default=0) :]
        return following[0] if following else Turn(DONE)


def script_of(entries: Sequence[Mapping[str, Any]], name: str = "script") -> Script:
    """The script of recorded calls (interceptor/replay.py says how entries look).

    A text goes out together with the calls after it. One key more than there: ``parallel: true`` puts a call into the
    message of the one before. AuthorError when a subagent's calls could not be told from others.
    """
    calls = [_numbered(entry, number, name) for number, entry in enumerate(entries, 1)]
    prompts = {str(entry.get("id")): str(entry["input"].get("prompt", "")) for entry in entries if _starts(entry)}
    _check_prompts(entries, prompts, name)
    own: dict[str | None, list[Turn]] = {}
    for entry, call in zip(entries, calls, strict=True):
        turns = own.setdefault(_agent(entry), [])
        if call is None:
            turns.append(Turn(str(entry["say"])))
        elif turns and (not turns[-1].calls or entry.get("parallel") is True):
            turns[-1] = Turn(turns[-1].say, (*turns[-1].calls, call))
        else:
            turns.append(Turn(calls=(call,)))
    subagents = {prompts[agent]: tuple(turns) for agent, turns in own.items() if agent is not None}
    silent = {prompt: () for prompt in prompts.values() if prompt and prompt not in subagents}
    return Script(tuple(own.get(None, ())), {**silent, **subagents})


def _numbered(entry: Mapping[str, Any], number: int, name: str) -> Call | None:
    if "say" in entry:
        return None
    own = entry.get("id")
    return Call(
        str(own) if str(own).startswith("toolu_") else f"toolu_{name}_{number:04d}", entry["tool"], entry["input"]
    )


def _starts(entry: Mapping[str, Any]) -> bool:
    return entry.get("tool") in SUBAGENT_TOOLS


def _agent(entry: Mapping[str, Any]) -> str | None:
    agent = entry.get("agent")
    return None if agent is None else str(agent)


def _check_prompts(entries: Sequence[Mapping[str, Any]], prompts: Mapping[str, str], name: str) -> None:
    """A subagent is known by its prompt alone, so its call must be in the script, with a prompt of its own."""
    for agent in {_agent(entry) for entry in entries} - {None}:
        prompt = prompts.get(str(agent), "")
        if not prompt:
            raise AuthorError(f"{name}: calls of the agent {agent!r}, but no Agent call with this id and a prompt")
        others = [str(entry["input"].get("prompt", "")) for entry in entries if _starts(entry)]
        if others.count(prompt) > 1:
            raise AuthorError(f"{name}: two Agent calls have the prompt {json.dumps(prompt)}; give each its own")
