"""Claude Code itself, on this machine, made to propose recorded calls by the scripted endpoint."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint
from harbor_tasks.environments import scripted
from harbor_tasks.environments.plan import where_and_who
from harbor_tasks.errors import AuthorError
from harbor_tasks.policy.routes import Permits, routes
from harbor_tasks.results.transcript import read_transcript

from .kit import ANSWERED, CLAUDE_VARIABLES, MEMORY, NO_TOUCH, PROJECT, REWRITE, SERVER, Played, play_with, server_with

pytestmark = pytest.mark.claude

QUESTION = {
    "question": "Which?", "header": "W",
    "options": [{"label": "Lead", "description": "l"}, {"label": "Tin", "description": "t"}],
}  # fmt: skip
SEVERAL = {**QUESTION, "question": "Which ones?", "multiSelect": True}
FREE = {**QUESTION, "question": "What name?"}
ASK = {"tool": "AskUserQuestion", "input": {"questions": [QUESTION, SEVERAL, FREE]}}
REFUSED = "requested permissions|been denied because|requires approval|while in plan mode|could not evaluate"
ANSWERS = "Which?: Tin\nWhich ones?: [Lead, Tin]\nWhat name?: Something of my own\n"


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command, "description": "x"}}


@pytest.fixture
def claude(author: Any, claude_bin: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An author whose PATH leads to the program, and whose own settings and key must not matter."""
    monkeypatch.setenv("PATH", f"{claude_bin}{os.pathsep}{os.environ['PATH']}")
    for name in CLAUDE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDE_CODE_SIMPLE", "1")
    author.spec["judges"] = [{"name": "any", "check": "return True"}]
    return author


def play(author: Any, *entries: dict[str, Any], **files: str) -> Played:
    return play_with("claude-code", author, *entries, **files)


def test_a_deny_reaches_the_model_and_has_no_effect_and_the_rest_runs(claude: Any) -> None:
    claude.handlers(NO_TOUCH)
    found = play(claude, bash("touch forbidden"), bash("echo allowed >allowed"))
    assert found.read_by_model(1) == "Leave it alone."
    assert sorted(path.name for path in (found.folder / "workspace").iterdir()) == ["allowed"]
    assert [(call.decision, call.logged) for call in found.calls] == [("deny", True), ("none", True)]
    assert (found.trial.status, found.trial.calls.total, found.trial.calls.denied) == ("scored", 2, 1)
    assert found.trial.versions["agent"].count(".") == 2
    assert found.trial.cost_usd == 0


def test_questions_are_offered_and_answered_when_a_handler_answers_them(claude: Any) -> None:
    claude.handlers(ANSWERED)
    found = play(claude, ASK, answers_yaml=ANSWERS)
    assert "AskUserQuestion" in found.offered
    for said in ('"Which?"="Tin"', '"Which ones?"="Lead, Tin"', '"What name?"="Something of my own"'):
        assert said in found.read_by_model(1)
    assert (found.trial.calls.answered, found.trial.calls.guessed) == (1, 0)


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "dontAsk", "plan", "auto"])
def test_the_routes_say_what_a_permission_mode_does(claude: Any, mode: str) -> None:
    claude.spec["runner"] = {"permission_mode": mode}
    calls = {
        "Read": {"file_path": "there.txt"}, "Write": {"file_path": "made.txt", "content": "x"},
        "Bash": bash("python3 -c 1")["input"], "WebSearch": {"query": "some words"},
        "WebFetch": {"url": "http://127.0.0.1:9/", "prompt": "x"},
    }  # fmt: skip
    entries = [{"tool": tool, "input": given} for tool, given in calls.items()]
    found = play(claude, *entries, bash("ls"), files__there_txt="x")
    said = {route.tool: route.permission in ("refused", "asks", "judged") for route in routes(None, Permits(mode=mode))}
    refused = [re.search(REFUSED, result) is not None for result in found.results]
    assert dict(zip(calls, refused, strict=False)) == {tool: said[tool] for tool in calls}
    assert not refused[-1]  # a command that only reads


@pytest.mark.parametrize("handlers", [[], [NO_TOUCH], [{"match": "All", "patterns": ["Ask*"]}]])
def test_questions_are_not_offered_when_no_handler_answers_them(claude: Any, handlers: list[dict[str, Any]]) -> None:
    if handlers:
        claude.handlers(*handlers)
    found = play(claude, ASK)
    assert "AskUserQuestion" not in found.offered
    assert found.results[0].startswith("<tool_use_error>Error: No such tool available")


def test_a_rewrite_is_what_the_tool_gets(claude: Any) -> None:
    claude.project({"server.py": SERVER})
    claude.spec["mcp_servers"] = [{"name": "desk", "command": "python3", "args": ["server.py"]}]
    claude.handlers(REWRITE)
    found = play(claude, {"tool": "mcp__desk__send", "input": {"note": "hello", "to": "you"}})
    assert '"note": "checked: hello"' in found.read_by_model(1)
    assert '"to": "you"' in found.read_by_model(1)
    assert found.calls[0].decision == "rewrite"
    assert found.calls[0].input == {"note": "hello", "to": "you"}
    assert found.calls[0].input_as_run == {"note": "checked: hello", "to": "you"}


def test_what_belongs_to_the_project_loads_and_its_settings_do_not(claude: Any) -> None:
    """The settings could switch the hooks off; skills, commands, agents and memory are what is evaluated."""
    claude.project(PROJECT)
    claude.spec["runner"] = {"plugin_dirs": ["plugin"]}
    claude.handlers(NO_TOUCH)
    off = json.dumps({"disableAllHooks": True, "env": {"CLAUDE_CODE_SIMPLE": "1", "FROM_PROJECT": "1"}})
    # as a program that the model wrote would do it: the text of a command does not show it
    name = "'.claude/set' + 'tings.json'"
    plant = f"import os; os.makedirs('.claude', exist_ok=True); open({name}, 'w').write({off!r})"
    look = f'python3 -c "print(open({name}).read())"; sleep 5; echo got $FROM_PROJECT'
    found = play(
        claude, {"tool": "Skill", "input": {"skill": "tidy", "args": "AB"}},
        {"tool": "Skill", "input": {"skill": "greet", "args": "CD"}},
        {"tool": "Skill", "input": {"skill": "docs:index"}},
        {"tool": "Agent", "input": {"prompt": "count", "description": "c", "subagent_type": "counter"}},
        {"tool": "Write", "input": {"file_path": "plant.py", "content": plant}},
        bash("python3 plant.py"), bash(look), bash("touch forbidden"),
    )  # fmt: skip
    assert found.results[:3] == ["Launching skill: tidy", "Launching skill: greet", "Launching skill: docs:index"]
    assert "counter" not in found.results[3]  # no complaint that there is no such agent
    assert not found.calls[3].is_error
    assert off in found.results[6]
    assert found.results[6].endswith("got")
    assert found.read_by_model(8) == "Leave it alone."
    said = found.said
    assert "CODE-BODY" not in said
    for body in ("TIDY-BODY AB", "GREET-BODY CD", "INDEX-BODY", "COUNTER-BODY", *MEMORY):
        assert body in said, body


def test_mode_model_effort_system_prompt_and_permissions_are_the_evals(claude: Any) -> None:
    claude.spec["runner"] = {"permission_mode": "dontAsk", "effort": "low", "system_prompt": "SYSTEM-WORD"}
    claude.spec["models"] = {"skill": "claude-haiku-4-5", "subagent": "claude-sonnet-4-5"}
    claude.spec["permissions"] = {"allow": ["Bash(echo *)"], "deny": ["Read(secret.txt)", "WebFetch"]}
    found = play(
        claude, bash("echo fine"), bash("touch made"), {"tool": "Read", "input": {"file_path": "secret.txt"}},
        {"tool": "Agent", "input": {"prompt": "count", "description": "c", "subagent_type": "general-purpose"}},
        files__secret_txt="hush",
    )  # fmt: skip
    assert found.results[0] == "fine"
    assert "don't ask mode" in found.results[1]
    assert "denied by your permission settings" in found.results[2]
    assert [call.decision for call in found.calls[:3]] == ["none", "deny", "deny"]
    assert "WebFetch" not in found.offered
    models = {one["conversation"]: one["model"] for one in found.requests if one["kind"] == "turn"}
    assert models == {"main": "claude-haiku-4-5", "count": "claude-sonnet-4-5"}
    assert "SYSTEM-WORD" in json.dumps(found.requests[0]["texts"])
    start = json.loads((found.folder / "transcript.jsonl").read_text().splitlines()[0])
    assert start["permissionMode"] == "dontAsk"


def test_neither_commands_nor_servers_get_the_key_and_the_hook_does(claude: Any) -> None:
    """The hook may have to ask a model; it runs a policy, and not what the model wants."""
    claude.project({"server.py": server_with("ANTHROPIC_API_KEY")})
    claude.spec["mcp_servers"] = [{"name": "desk", "command": "python3", "args": ["server.py"]}]
    checks = {"ANTHROPIC_API_KEY": {"must_contain": ["no-key-is-needed"]}}
    claude.handlers({"match": "Sends", "patterns": ["mcp__desk__*"], "env_checks": checks})
    found = play(claude, bash("env"), {"tool": "mcp__desk__send", "input": {}})
    assert "HOME=" in found.results[0]
    assert not {"ANTHROPIC_API_KEY", "CLAUDE_CODE_SHELL_PREFIX"} & {line.partition("=")[0] for line in
                                                                   found.results[0].splitlines()}  # fmt: skip
    assert found.read_by_model(2).startswith("key None")


def test_a_subagents_calls_are_guarded_and_stand_in_the_transcript(claude: Any) -> None:
    claude.handlers(NO_TOUCH)
    start = {"prompt": "count the beans", "description": "beans", "subagent_type": "general-purpose"}
    found = play(
        claude, {"tool": "Agent", "id": "beans", "input": start}, {**bash("touch forbidden"), "agent": "beans"},
        {**bash("echo counted"), "agent": "beans"},
    )  # fmt: skip
    own = [call for call in found.calls if call.agent == found.calls[0].id]
    assert (own[0].decision, own[0].result) == ("deny", "Leave it alone.")
    assert str(own[1].result).startswith("counted")
    assert not (found.folder / "workspace" / "forbidden").exists()
    assert all(call.logged for call in own)


def test_parallel_calls_are_decided_one_by_one(claude: Any) -> None:
    claude.handlers(NO_TOUCH)
    found = play(claude, bash("echo a"), *({**bash(c), "parallel": True} for c in ("touch forbidden", "echo b")))
    assert len(found.requests) == 2
    assert found.results == ["a", "Leave it alone.", "b"]


def test_files_named_relative_to_the_workspace_do_not_void_the_trial(claude: Any) -> None:
    """The program shows its hooks another path than its transcript."""
    claude.handlers({"match": "Files", "patterns": ["Write", "Edit"], "input_checks": [
        {"field": "file_path", "op": "matches", "value": "(?!.*forbidden).*"}]})  # fmt: skip
    found = play(
        claude, {"tool": "Write", "input": {"file_path": "a.txt", "content": "x\n"}},
        {"tool": "Edit", "input": {"file_path": "a.txt", "old_string": "x", "new_string": "y"}},
        bash("mkdir -p sub && cd sub"), {"tool": "Write", "input": {"file_path": "../b.txt", "content": "z"}},
        {"tool": "Write", "input": {"file_path": "forbidden.txt", "content": "z"}},
    )  # fmt: skip
    assert [call.decision for call in found.calls] == ["none", "none", "none", "none", "deny"]
    assert all(call.logged for call in found.calls if call.name != "Bash")


def test_steps_have_their_own_scripts_and_variables(claude: Any) -> None:
    claude.spec["execution"] = {"steps": [{"id": name, "prompt": "go", "env": {"STEP": name}} for name in ("a", "b")]}
    claude.case(replay={"steps": {"a": [bash("echo in $STEP >a")], "b": [bash("cat a; echo then $STEP")]}})
    ran = claude.run("claude-code", scripted=True)
    assert ran.trial.error is None
    calls = read_transcript(ran.trial_folder / "transcript.jsonl").calls
    assert str(calls[1].result).startswith("in a\nthen b")


def test_a_spent_budget_is_the_agents_error_and_is_named(claude: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "Endpoint", partial(Endpoint, tokens=True))
    claude.spec["execution"]["max_budget_usd"] = 0.05
    claude.case(replay=[bash("echo a")] * 9)
    trial = claude.run("claude-code", scripted=True).trial
    assert trial.error is not None
    assert (trial.error.kind, trial.error.message) == ("agent", "exit code 1: error_max_budget_usd")
    assert trial.cost_usd is not None
    assert 0.05 < trial.cost_usd < 1


def test_a_scripted_job_says_so_and_is_not_gone_on_with_by_a_model(
    claude: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude.case(replay=[bash("true")])
    ran = claude.run("claude-code", scripted=True)
    assert "agent claude-code (scripted), local" in str(ran.events[0])
    assert ran.job.scripted
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-somebody")
    with pytest.raises(AuthorError, match="ran with --scripted"):
        claude.run("claude-code", resume=ran.folder)
    assert where_and_who(None, None, ran.folder) == ("local", "claude-code", True)
    assert where_and_who("docker", None, None, scripted=True) == ("docker", "replay", True)


def test_a_case_without_recorded_calls_has_no_script(claude: Any) -> None:
    claude.case("a", replay=[bash("true")])
    claude.case("b")
    ran = claude.run("claude-code", scripted=True)
    assert {trial.case_id: trial.status for trial in ran.trials} == {"a": "scored", "b": "error"}
    assert any("case b: no replay.yaml" in str(event) for event in ran.events)
