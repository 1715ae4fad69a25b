"""Claude Code itself in a sealed container, made to propose recorded calls by the scripted endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .kit import ANSWERED, CLAUDE_VARIABLES, MEMORY, NO_TOUCH, PROJECT, REWRITE, SERVER_WITH_TOKEN, TOKEN, PlayedByName
from .test_claude_code import ANSWERS, ASK, bash

pytestmark = [pytest.mark.engine, pytest.mark.claude]

OFF = json.dumps({"disableAllHooks": True, "env": {"FROM_PROJECT": "1"}})
NESTED = "claude --bare -p hello; claude -p hello --settings '{\"disableAllHooks\": true}'"
PLANT = (
    f"mkdir -p .claude && for name in settings settings.local; do printf '%s' '{OFF}' >.claude/$name.json; done; "
    "sleep 5; echo got $FROM_PROJECT"
)
HUNT = (
    "cat /opt/harbor-pack/servers.json /opt/harbor-pack-agent/run/* /proc/[0-9]*/environ /proc/[0-9]*/cmdline; ps aux; "
    "sudo -n -u services /usr/local/lib/harbor-pack/serve desk </dev/null; "
    "/usr/local/lib/harbor-pack/prefix '/usr/bin/sudo -n -u services /usr/local/lib/harbor-pack/serve desk' </dev/null"
)
CALLS: dict[str, dict[str, Any]] = {
    "deny": bash("touch forbidden"),
    "who": bash("id -un; env"),
    "question": ASK,
    "rewrite": {"tool": "mcp__desk__send", "input": {"note": "hello"}},
    "hunt": bash(HUNT),
    "read": {"tool": "Read", "input": {"file_path": "/opt/harbor-pack/servers.json"}},
    "read more": {"tool": "Read", "input": {"file_path": "/opt/harbor-pack-agent/run/mcp.json"}},
    "tidy": {"tool": "Skill", "input": {"skill": "tidy", "args": "AB"}},
    "greet": {"tool": "Skill", "input": {"skill": "greet", "args": "CD"}},
    "index": {"tool": "Skill", "input": {"skill": "docs:index"}},
    "agent": {"tool": "Agent", "id": "c", "input": {"prompt": "count", "description": "c", "subagent_type": "counter"}},
    "denied in a subagent": {**bash("touch forbidden"), "agent": "c"},
    "write": {"tool": "Write", "input": {"file_path": "made.txt", "content": "x\n"}},
    "plant": bash(PLANT),
    "nested": bash(NESTED),
    "cd": bash("mkdir -p sub && cd sub"),
    "deny after all": bash("touch forbidden"),
}  # fmt: skip


@pytest.fixture(scope="module", params=["public", "model"])
def played(request: pytest.FixtureRequest, engine_author: Callable[[], Any], claude_bin: Path) -> PlayedByName:
    """All calls in one container, which reaches everything, or its model only."""
    author = engine_author()
    author.spec |= {
        "sandbox": {"network": request.param}, "runner": {"plugin_dirs": ["plugin"]},
        "judges": [{"name": "made", "check": "return 'made.txt' in outputs['files']"}], "outputs": [{"path": "."}],
        "mcp_servers": [
            {"name": "desk", "command": "python3", "args": ["server.py"], "env": {"DESK_TOKEN": "${DESK_TOKEN}"}}
        ],
    }  # fmt: skip
    author.project({**PROJECT, "server.py": SERVER_WITH_TOKEN})
    author.handlers(ANSWERED, NO_TOUCH, REWRITE)
    author.case(replay=list(CALLS.values()), answers_yaml=ANSWERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESK_TOKEN", TOKEN)
        for name in CLAUDE_VARIABLES:
            patch.delenv(name, raising=False)
        found = PlayedByName(author.run("claude-code", environment="docker", scripted=True), CALLS)
    assert list(found.read) == list(found.decisions) == list(CALLS)
    return found


def test_denied_calls_have_no_effect_and_the_model_reads_why(played: PlayedByName) -> None:
    for name in ("deny", "denied in a subagent", "deny after all"):
        assert (played.decisions[name], played.read[name]) == ("deny", "Leave it alone."), name
    assert not list((played.folder / "workspace").rglob("forbidden*"))


def test_what_the_model_runs_is_worker_and_has_no_key(played: PlayedByName) -> None:
    who, *env = played.read["who"].splitlines()
    assert who == "worker"
    assert not [line for line in env if line.startswith(("ANTHROPIC_", "CLAUDE_CODE_OAUTH"))]


def test_questions_are_answered_and_rewrites_reach_the_tool(played: PlayedByName) -> None:
    for said in ('"Which?"="Tin"', '"Which ones?"="Lead, Tin"', '"What name?"="Something of my own"'):
        assert said in played.read["question"]
    assert '"note": "checked: hello"' in played.read["rewrite"]
    assert (played.decisions["question"], played.decisions["rewrite"]) == ("answer", "rewrite")
    runs = {call.name: call.input_as_run for call in played.transcript.calls if call.decision in ("answer", "rewrite")}
    assert runs["mcp__desk__send"] == {"note": "checked: hello"}
    assert runs["AskUserQuestion"]["answers"]["Which ones?"] == "Lead, Tin"


def test_a_server_has_a_user_of_its_own_and_nobody_else_what_it_is_given(played: PlayedByName) -> None:
    assert played.read["rewrite"].startswith(f"904 {TOKEN} ")
    assert played.read["hunt"]
    for name, said in played.read.items():
        assert TOKEN not in said or name == "rewrite", name
    assert "permission" in played.read["read"].lower()
    assert "denied by your permission settings" in played.read["read more"]


def test_skills_commands_agents_plugins_and_memory_are_found_by_name(played: PlayedByName) -> None:
    assert played.read["tidy"].startswith("Launching skill: tidy")
    assert played.read["greet"].startswith("Launching skill: greet")
    assert played.read["index"].startswith("Launching skill: docs:index")
    assert "CODE-BODY" not in played.said
    for body in ("TIDY-BODY AB", "GREET-BODY CD", "INDEX-BODY", "COUNTER-BODY", *MEMORY):
        assert body in played.said, body


def test_settings_that_the_model_writes_and_a_nested_program_change_nothing(played: PlayedByName) -> None:
    assert played.read["plant"] == "got"
    assert played.decisions["plant"] == "none"
    assert "touch" not in played.read["nested"]
    models = {one["conversation"] for one in played.requests if one["kind"] == "turn"}
    assert models == {"main", "count"}  # the nested ones have no key and did not get there


def test_the_trial_is_sealed_scored_and_says_what_ran(played: PlayedByName) -> None:
    trial = played.trial
    assert (trial.status, trial.reward, trial.sealed) == ("scored", 1, True)
    assert trial.versions["agent"].count(".") == 2
    assert trial.calls.total == len(CALLS)
    assert played.transcript.not_logged == ()
    assert played.transcript.changed == ()
