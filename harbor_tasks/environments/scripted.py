"""A scripted endpoint in place of a model: the agent program proposes recorded calls (`run --scripted`, probes).

It runs for as long as the job does. Each trial, and each step of it, has a script and a URL of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harbor_tasks.agents.base import solution_dir
from harbor_tasks.endpoint import Endpoint, Recorded, Script, Turn, script_of
from harbor_tasks.endpoint.codex_items import own_entries
from harbor_tasks.endpoint.script import Asked
from harbor_tasks.errors import AuthorError
from harbor_tasks.resources import script_module

KEY = "no-key-is-needed-here"
"""What the agent program sends as its key: it does not start without one."""
REQUESTS = "model.jsonl"
"""In a trial's folder: what the program asked its model, one request a line. ``texts`` are those that are new in it."""

Scripts = Callable[[Path, str | None], Script]
"""The script for a task directory and one of its steps; AuthorError when there is none."""


def recorded_calls(task: Path, step: str | None) -> Script:
    """The case's recorded calls (replay.yaml), as the agent `replay` plays them."""
    return script_of(recorded_entries(task, step), "replay" if step is None else f"replay_{step}")


def recorded_calls_of_codex(task: Path, step: str | None) -> Script:
    """The same as the calls that Codex makes; what it has no call for is left out, and said (recordings.py)."""
    own, _ = own_entries(recorded_entries(task, step))
    return script_of(own, "replay" if step is None else f"replay_{step}")


def recorded_entries(task: Path, step: str | None) -> list[dict[str, Any]]:
    """The entries of replay.yaml for a task or step; AuthorError when there are none that can be played."""
    replay = script_module("replay")
    path = solution_dir(task, step) / "replay.json"
    try:
        entries: list[dict[str, Any]] = replay.entries_of(json.loads(path.read_bytes()), step)
    except FileNotFoundError:
        raise AuthorError("no replay.yaml") from None
    except (OSError, ValueError, replay.ScriptError) as error:
        raise AuthorError(f"a replay.yaml that cannot be played: {error}") from None
    return entries


class StepsScript(Script):
    """The scripts of all steps of a trial, for a program that has one URL for all of them.

    Which step asks is told by the calls in the history, and in the beginning by the step's instruction.
    """

    def __init__(self, steps: Mapping[str, tuple[str, Script]]) -> None:
        """``steps``: instruction and script of each step."""
        super().__init__(())
        object.__setattr__(self, "steps", dict(steps))

    steps: dict[str, tuple[str, Script]]

    def step_of(self, asked: Asked) -> str | None:
        """The step that a request belongs to, the last that it tells of; None where nothing tells."""
        made, told = set(asked.made), {text.strip() for text in (*asked.first, *asked.texts)}
        for step, (instruction, script) in reversed(self.steps.items()):
            calls = (call for turns in _turns(script) for turn in turns for call in turn.calls)
            if instruction.strip() in told or any(call.id in made for call in calls):
                return step
        return None

    def conversation(self, asked: Asked) -> str:
        """As the step's own script says it."""
        return self._script(asked).conversation(asked)

    def answer(self, asked: Asked) -> Turn:
        """The next turn of the step's own script."""
        return self._script(asked).answer(asked)

    def _script(self, asked: Asked) -> Script:
        step = self.step_of(asked)
        return Script(()) if step is None else self.steps[step][1]


def _turns(script: Script) -> Iterator[tuple[Turn, ...]]:
    yield script.main
    yield from script.subagents.values()


class ScriptedModel:
    """The endpoint of a job, while it is open."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts
        self._endpoint: Endpoint | None = None
        self._joined: dict[str, StepsScript] = {}

    def lacks(self, task: Path, steps: tuple[str, ...]) -> str | None:
        """Why this task has no script, or None."""
        for step in steps or (None,):
            try:
                self.scripts(task, step)
            except AuthorError as error:
                return f"{error}{f' for the step {step}' if step is not None else ''}"
        return None

    @contextmanager
    def listening(self, host: str) -> Iterator[str]:
        """Its URL without a script, while it listens there."""
        with Endpoint(host) as endpoint:
            self._endpoint = endpoint
            yield f"http://{host}:{endpoint.port}"

    def variables(self, trial: str, task: Path, step: str | None, base: str | None = None) -> dict[str, str]:
        """The variables by which the agent program finds the script of a trial or step.

        ``base``: the URL under which it knows the endpoint, when that is another one than the endpoint's own.
        """
        return self._added(_name(trial, step), self.scripts(task, step), base)

    def joined_variables(self, trial: str, task: Path, steps: Sequence[str]) -> dict[str, str]:
        """The same for a program that is told once for all steps; AuthorError when two could not be told apart."""
        if not steps:
            return self.variables(trial, task, None)
        texts = {step: (task / "steps" / step / "instruction.md").read_text(encoding="utf-8") for step in steps}
        if len({text.strip() for text in texts.values()}) < len(texts):
            raise AuthorError("steps with the same instruction cannot be told apart by a script; reword one of them")
        self._joined[trial] = StepsScript({step: (text, self.scripts(task, step)) for step, text in texts.items()})
        return self._added(trial, self._joined[trial], None)

    def _added(self, name: str, script: Script, base: str | None) -> dict[str, str]:
        assert self._endpoint is not None
        url = self._endpoint.add(name, script)
        url = f"{base.rstrip('/')}/{name}" if base else url
        return {
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": KEY
        }  # fmt: skip

    def keep(self, trial: str, step: str | None, folder: Path) -> None:
        """Write what a trial or step asked into its folder, and forget the rest."""
        assert self._endpoint is not None
        joined = self._joined.get(trial)
        if joined is None:
            recorded = self._endpoint.remove(_name(trial, step))
        else:
            all_steps = self._endpoint.recorded(trial)
            recorded = [one for one in all_steps if one.asked is not None and joined.step_of(one.asked) == step]
        seen: set[str] = set()
        lines = (json.dumps(_summary(one, seen), ensure_ascii=False) for one in recorded)
        text = "".join(f"{line}\n" for line in lines)
        (folder / REQUESTS).write_text(text, encoding="utf-8", errors="backslashreplace")


def _name(trial: str, step: str | None) -> str:
    return trial if step is None else f"{trial}-{step}"


def _summary(one: Recorded, seen: set[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {"number": one.number, "kind": one.kind, "path": one.path, "status": one.status}
    if one.asked is not None:
        results = {call: {"text": text, "is_error": failed} for call, (text, failed) in one.asked.results.items()}
        new = [text for text in dict.fromkeys(one.asked.texts) if text not in seen]
        seen.update(new)
        found |= {
            "conversation": one.conversation, "model": one.asked.model, "tools": list(one.asked.tools), "texts": new,
            "results": results,
        }  # fmt: skip
    if one.answer is not None:
        calls = [{"id": call.id, "tool": call.tool, "input": dict(call.input)} for call in one.answer.calls]
        found |= {"say": one.answer.say, "calls": calls}
    return found
