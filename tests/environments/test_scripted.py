"""The script of a trial that has one URL for all its steps: which step asks, and what is kept of each."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.endpoint import Call, Script, Turn
from harbor_tasks.environments.scripted import ScriptedModel
from harbor_tasks.errors import AuthorError

TOOLS = [{"name": "Bash", "input_schema": {}}]


def task_with(folder: Path, **instructions: str) -> Path:
    for step, text in instructions.items():
        (folder / "steps" / step).mkdir(parents=True)
        (folder / "steps" / step / "instruction.md").write_text(text)
    return folder


def scripts(_task: Path, step: str | None) -> Script:
    return Script((Turn(calls=(Call(f"toolu_{step}_1", "Bash", {"command": f"echo {step}"}),)),))


def ask(url: str, *messages: dict[str, Any]) -> list[str]:
    """The commands that the endpoint proposes."""
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        body = {"model": "m", "messages": messages, "tools": TOOLS}
        connection.request("POST", f"/{path}/v1/messages", json.dumps(body))
        content = json.loads(connection.getresponse().read())["content"]
        return [block["input"]["command"] for block in content if block["type"] == "tool_use"]
    finally:
        connection.close()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "a reminder"}, {"type": "text", "text": text}]}


def made(ident: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": ident, "name": "Bash", "input": {}}]}


def test_each_step_gets_its_own_calls_and_its_own_record(tmp_path: Path) -> None:
    task, model = task_with(tmp_path / "task", plan="plan it\n", make="make it\n"), ScriptedModel(scripts)
    with model.listening("127.0.0.1"):
        url = model.joined_variables("t", task, ["plan", "make"])["ANTHROPIC_BASE_URL"]
        assert ask(url, user("plan it")) == ["echo plan"]
        assert ask(url, user("plan it"), made("toolu_plan_1")) == []
        assert ask(url, user("make it")) == ["echo make"]
        assert ask(url, user("make it"), made("toolu_make_1")) == []
        assert ask(url, user("something else")) == []
        kept = {}
        for step in ("plan", "make"):
            model.keep("t", step, tmp_path)
            lines = [json.loads(line) for line in (tmp_path / "model.jsonl").read_text().splitlines()]
            kept[step] = [call["id"] for line in lines for call in line.get("calls", [])]
    assert kept == {"plan": ["toolu_plan_1"], "make": ["toolu_make_1"]}


def test_a_program_may_go_on_with_the_conversation_of_the_step_before(tmp_path: Path) -> None:
    task, model = task_with(tmp_path / "task", plan="plan it\n", make="make it\n"), ScriptedModel(scripts)
    with model.listening("127.0.0.1"):
        url = model.joined_variables("t", task, ["plan", "make"])["ANTHROPIC_BASE_URL"]
        before = (user("plan it"), made("toolu_plan_1"), user("make it"))
        assert ask(url, *before) == ["echo make"]
        assert ask(url, *before, made("toolu_make_1")) == []


def test_steps_that_no_script_could_tell_apart_are_refused(tmp_path: Path) -> None:
    task, model = task_with(tmp_path / "task", plan="do it\n", make="do it \n"), ScriptedModel(scripts)
    with model.listening("127.0.0.1"), pytest.raises(AuthorError, match="cannot be told apart"):
        model.joined_variables("t", task, ["plan", "make"])


def test_a_trial_without_steps_has_its_own_script(tmp_path: Path) -> None:
    model = ScriptedModel(scripts)
    with model.listening("127.0.0.1"):
        url = model.joined_variables("t", tmp_path, [])["ANTHROPIC_BASE_URL"]
        assert ask(url, user("do it")) == ["echo None"]
