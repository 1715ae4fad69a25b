"""Codex itself, on this machine, made to propose recorded calls by the scripted endpoint."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.evalspec.rules import EFFORTS
from harbor_tasks.results.transcript import read_transcript

from .kit import ANSWERED, NO_TOUCH, SERVER, WITHOUT_AGENTS_MD, Played, play_with, server_with

pytestmark = pytest.mark.codex

MODELS = ("gpt-5.5", "gpt-6-sol")
"""One that calls tools, and one that calls them from programs of its own."""
QUESTION = {
    "id": "metal", "question": "Which?", "header": "W",
    "options": [{"label": "Lead", "description": "l"}, {"label": "Tin", "description": "t"}],
}  # fmt: skip
FREE = {**QUESTION, "id": "name", "question": "What name?"}
ASK = {"tool": "request_user_input", "input": {"questions": [QUESTION, FREE]}}
NO_PATCH = {"match": "Secrets", "patterns": ["Write"], "reason": "Not this file.", "input_checks": [
    {"field": "command", "op": "matches", "value": "(?s)(?!.*secret).*"}]}  # fmt: skip


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command, **more}}


def patch(name: str, text: str = "hello") -> dict[str, Any]:
    return {
        "tool": "apply_patch",
        "input": {"command": f"*** Begin Patch\n*** Add File: {name}\n+{text}\n*** End Patch\n"},
    }


def program(code: str) -> dict[str, Any]:
    """What a model proposes that calls its tools from programs (code mode)."""
    return {"tool": "exec", "input": {"code": code}}


@pytest.fixture
def codex(author: Any, codex_bin: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An author whose PATH leads to the program, and whose own home and keys must not matter."""
    monkeypatch.setenv("PATH", f"{codex_bin}{os.pathsep}{os.environ['PATH']}")
    for name in ("OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CODEX_HOME", "/nonexistent")
    author.spec["runner"] = {"type": "codex"}
    author.spec["models"] = {"skill": MODELS[0]}
    author.spec["judges"] = [{"name": "any", "check": "return True"}]
    return author


def play(author: Any, *entries: dict[str, Any], **files: str) -> Played:
    return play_with("codex", author, *entries, **files)


@pytest.mark.parametrize("model", MODELS)
def test_a_deny_reaches_the_model_and_has_no_effect_and_the_rest_runs(codex: Any, model: str) -> None:
    codex.spec["models"] = {"skill": model}
    codex.handlers(NO_TOUCH)
    found = play(codex, bash("touch forbidden"), bash("echo allowed >allowed; exit 3"))
    assert found.read_by_model(1).startswith("Command blocked by PreToolUse hook: Leave it alone.")
    assert sorted(path.name for path in (found.folder / "workspace").iterdir()) == ["allowed"]
    assert [(call.decision, call.logged, call.is_error) for call in found.calls] == [
        ("deny", True, True), ("none", True, True)
    ]  # fmt: skip
    assert (found.trial.status, found.trial.calls.total, found.trial.calls.denied) == ("scored", 2, 1)
    assert found.trial.versions["agent"].count(".") == 2


def test_a_check_that_would_ask_denies(codex: Any) -> None:
    """The program would run the tool: nobody is there to be asked."""
    codex.handlers({**NO_TOUCH, "on_fail": "ask"})
    found = play(codex, bash("touch forbidden"))
    assert "Leave it alone." in found.read_by_model(1)
    assert not (found.folder / "workspace" / "forbidden").exists()


def test_patches_are_guarded_as_writes(codex: Any) -> None:
    codex.handlers(NO_PATCH)
    found = play(codex, patch("fine.txt"), patch("secret.txt"))
    assert "Not this file." in found.read_by_model(2)
    assert [path.name for path in (found.folder / "workspace").iterdir()] == ["fine.txt"]
    assert [call.decision for call in found.calls] == ["none", "deny"]


def test_questions_are_answered_when_a_handler_answers_them(codex: Any) -> None:
    codex.handlers(ANSWERED)
    found = play(codex, ASK, answers_yaml="Which?: Tin\nWhat name?: Something of my own\n")
    assert json.loads(found.read_by_model(1)) == {
        "answers": {"metal": {"answers": ["Tin"]}, "name": {"answers": ["Something of my own"]}}
    }
    assert (found.trial.calls.answered, found.trial.calls.guessed) == (1, 0)


def test_a_question_without_an_answer_is_denied(codex: Any) -> None:
    codex.handlers(ANSWERED)
    found = play(codex, ASK, answers_yaml="Which?: Tin\n")
    assert "answers" not in found.read_by_model(1)
    assert "What name?" in found.read_by_model(1)


def test_questions_do_not_work_when_no_handler_answers_them(codex: Any) -> None:
    codex.handlers(NO_TOUCH)
    found = play(codex, ASK)
    assert "unavailable" in found.results[0]


def test_a_rewrite_is_what_the_tool_gets_and_names_with_hyphens_match(codex: Any) -> None:
    """The program writes `_` for what is no letter or digit in the name of a server."""
    codex.project({"server.py": server_with("OPENAI_API_KEY")})
    codex.spec["mcp_servers"] = [{"name": "my-desk", "command": "python3", "args": ["server.py"]}]
    rewrite = {"match": "Notes", "patterns": ["mcp__my-desk__send"], "rewrite": {"note": {"prefix": "checked: "}}}
    codex.handlers(rewrite, NO_TOUCH)
    send = {"tool": "mcp__my-desk__send", "input": {"note": "hello", "to": "you"}}
    found = play(codex, send, bash("touch forbidden"))
    assert "key None" in found.read_by_model(1)
    assert '"note": "checked: hello"' in found.read_by_model(1)
    assert '"to": "you"' in found.read_by_model(1)
    assert (found.calls[0].name, found.calls[0].decision) == ("mcp__my_desk__send", "rewrite")
    assert found.calls[0].input == {"note": "hello", "to": "you"}
    assert found.calls[0].input_as_run == {"note": "checked: hello", "to": "you"}
    assert found.calls[1].input_as_run is None


def test_a_denied_server_call_does_not_reach_the_server(codex: Any) -> None:
    codex.project({"server.py": SERVER})
    codex.spec["mcp_servers"] = [{"name": "desk", "command": "python3", "args": ["server.py"]}]
    codex.handlers({"match": "Desk", "patterns": ["mcp__desk__*"], "reason": "No desk."})
    found = play(codex, {"tool": "mcp__desk__send", "input": {}})
    assert found.read_by_model(1).startswith("Tool call blocked by PreToolUse hook: No desk.")
    assert "got" not in found.read_by_model(1)
    assert found.calls[0].decision == "deny"


def test_nothing_is_typed_into_a_command_that_runs(codex: Any) -> None:
    """No hook would see it."""
    codex.handlers(NO_TOUCH)
    typed = {"session_id": 1, "chars": "touch forbidden\n"}
    found = play(codex, bash("bash -i", tty=True), bash("cat; sleep 2", yield_time_ms=300),
                 {"tool": "write_stdin", "input": typed})  # fmt: skip
    assert "TTY execution is disabled" in found.results[0]
    assert found.results[2].startswith("write_stdin failed")
    assert not (found.folder / "workspace" / "forbidden").exists()


def test_calls_from_a_program_of_the_models_are_guarded_and_stand_in_the_transcript(codex: Any) -> None:
    codex.spec["models"] = {"skill": MODELS[1]}
    codex.handlers(NO_TOUCH)
    code = "for (const cmd of ['echo one', 'touch forbidden']) { try { text(await tools.exec_command({cmd})) }" \
           " catch (error) { text(String(error)) } }"  # fmt: skip
    found = play(codex, program(code))
    assert "Leave it alone." in json.dumps(found.requests[-1]["results"])
    assert not (found.folder / "workspace" / "forbidden").exists()
    assert [(call.name, call.input, call.logged) for call in found.calls] == [("Bash", {"command": "echo one"}, True)]
    assert [(line["tool"], line["decision"]) for line in found.log] == [("Bash", "none"), ("Bash", "deny")]
    assert (found.trial.calls.total, found.trial.calls.denied) == (2, 1)


def test_parallel_calls_are_decided_one_by_one(codex: Any) -> None:
    codex.handlers(NO_TOUCH)
    found = play(codex, bash("echo a"), *({**bash(c), "parallel": True} for c in ("touch forbidden", "echo b")))
    assert len(found.requests) == 2
    assert [call.decision for call in found.calls] == ["none", "deny", "none"]
    assert not (found.folder / "workspace" / "forbidden").exists()


def test_commands_get_neither_keys_nor_another_path(codex: Any) -> None:
    codex.spec["execution"]["env"] = {"OWN": "of the eval"}
    found = play(codex, bash("env"))
    lines = dict(line.partition("=")[::2] for line in found.results[0].splitlines())
    assert lines["OWN"] == "of the eval"
    assert not {"OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"} & set(lines)
    assert lines["PATH"].endswith(os.environ["PATH"])


def test_what_belongs_to_the_project_loads_and_its_settings_do_not(codex: Any) -> None:
    """A project's .codex could bring hooks and servers of its own; skills and memory are what is evaluated."""
    codex.project(WITHOUT_AGENTS_MD)
    codex.spec["runner"] = {"type": "codex", "plugin_dirs": ["plugin"], "system_prompt": "SYSTEM-WORD"}
    del codex.spec["execution"]["prompt"]
    codex.spec["execution"] |= {"skill": "tidy", "arguments": "AB"}
    codex.handlers(NO_TOUCH)
    own = '[shell_environment_policy]\nset = { FROM_PROJECT = "1" }\n[features]\nhooks = false\n'
    found = play(codex, bash("echo got $FROM_PROJECT"), bash("touch forbidden"), **{"files__.codex__config_toml": own})
    assert found.results[0].endswith("got\n")
    assert "Leave it alone." in found.read_by_model(2)
    for body in ("TIDY-BODY", "AB", "indexes", "MEMORY-BODY", "SYSTEM-WORD"):
        assert body in found.said, body


@pytest.mark.parametrize("model", MODELS)
def test_a_subagents_calls_are_guarded_and_stand_in_the_transcript(codex: Any, model: str) -> None:
    codex.spec["models"] = {"skill": model}
    codex.handlers(NO_TOUCH)
    start = {"tool": "Agent", "id": "beans", "input": {"prompt": "count the beans"}}
    found = play(codex, start, {**bash("touch forbidden"), "agent": "beans"}, {**bash("echo x"), "agent": "beans"},
                 bash("sleep 3"))  # fmt: skip
    own = [call for call in found.calls if call.agent == found.calls[0].id]
    name = "spawn_agent" if model == MODELS[0] else "collaborationspawn_agent"  # as its hooks are told
    assert (found.calls[0].name, own[0].decision) == (name, "deny")
    assert str(own[1].result).endswith("x\n")
    assert not (found.folder / "workspace" / "forbidden").exists()


@pytest.mark.parametrize("model", MODELS)
def test_rules_for_usual_names_hold_for_those_of_newer_models(codex: Any, model: str) -> None:
    codex.spec["models"] = {"skill": model}
    codex.handlers(ANSWERED, {"match": "Helpers", "patterns": ["Agent"], "reason": "Alone."})
    put = {"questions": [{"title": "Which?", "options": ["Lead", "Tin"]}]}
    later = {"tool": "request_user_input_async", "input": put}
    found = play(codex, {"tool": "Agent", "input": {"prompt": "help"}}, later, answers_yaml="Which?: Tin\n")
    assert found.results[0].startswith("Tool call blocked by PreToolUse hook: Alone.")
    assert {one["conversation"] for one in found.requests if one["kind"] == "turn"} == {"main"}
    if model == MODELS[0]:
        assert found.results[1].startswith("unsupported call")
    else:
        assert json.loads(found.results[1]) == {"answers": {"Which?": {"answers": ["Tin"]}}}
        assert (found.trial.calls.answered, found.trial.calls.denied) == (1, 1)
        assert found.calls[1].decision == "answer"


def test_steps_have_their_own_scripts_and_sessions(codex: Any) -> None:
    codex.spec["execution"] = {"steps": [{"id": name, "prompt": "go", "env": {"STEP": name}} for name in ("a", "b")]}
    codex.case(replay={"steps": {"a": [bash("echo in $STEP >a")], "b": [bash("cat a; echo then $STEP")]}})
    ran = codex.run("codex", scripted=True)
    assert ran.trial.error is None
    calls = read_transcript(ran.trial_folder / "transcript.jsonl").calls
    assert len(calls) == 2
    assert str(calls[1].result).endswith("in a\nthen b\n")


def test_a_server_that_does_not_start_is_the_agents_error(codex: Any) -> None:
    codex.spec["mcp_servers"] = [{"name": "desk", "command": "false"}]
    codex.case(replay=[bash("true")])
    trial = codex.run("codex", scripted=True).trial
    assert trial.error is not None
    assert trial.error.kind == "agent"
    assert "desk" in trial.error.message


def test_every_effort_of_the_programs_own_models_is_known(codex_bin: Path, tmp_path: Path) -> None:
    """It passes on whatever it is told, so a word that is not known here can only be a misspelling."""
    hello = {"clientInfo": {"name": "test", "version": "1"}}
    asked: list[dict[str, Any]] = [{"id": 1, "method": "initialize", "params": hello}, {"method": "initialized"},
             {"id": 2, "method": "model/list", "params": {"includeHidden": True}}]  # fmt: skip
    with subprocess.Popen(
        [codex_bin / "codex", "app-server"], env={**os.environ, "CODEX_HOME": str(tmp_path)}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked)
        process.stdin.flush()
        answer = next(one for line in process.stdout if (one := json.loads(line)).get("id") == 2)
        process.kill()
    efforts = {
        one["reasoningEffort"] for model in answer["result"]["data"] for one in model["supportedReasoningEfforts"]
    }
    assert {"low", "high", "max"} <= efforts <= set(EFFORTS["codex"])
