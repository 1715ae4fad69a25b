"""Harbor's own agent claude-code, in a sealed sandbox, made to propose recorded calls by the scripted endpoint.

Nothing of harbor-pack runs it: what holds, holds by the task and its image alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint
from harbor_tasks.environments.base import RunOptions
from harbor_tasks.environments.engine import find_engine
from harbor_tasks.environments.evidence import calls_of, json_lines
from harbor_tasks.environments.gateway import gateway_of
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.environments.scripted import recorded_calls
from harbor_tasks.images import ensure_image
from tests.kit import mcp_server, what_became

from .kit import Desk, MakeDesk, Ran, verdicts

pytestmark = [pytest.mark.harbor, pytest.mark.engine, pytest.mark.claude]

OPTIONS = [{"label": label, "description": label} for label in ("Lead", "Tin")]
QUESTIONS = [
    {"question": "Which?", "header": "W", "multiSelect": False, "options": OPTIONS},
    {"question": "Which ones?", "header": "W", "multiSelect": True, "options": OPTIONS},
    {"question": "What name?", "header": "N", "multiSelect": False, "options": OPTIONS},
]
OFF = json.dumps({"disableAllHooks": True})
CALLS = {
    "deny": {"tool": "Bash", "input": {"command": "touch forbidden"}},
    "question": {"tool": "AskUserQuestion", "input": {"questions": QUESTIONS}},
    "skill": {"tool": "Skill", "input": {"skill": "tidy", "args": "AB"}},
    "plugin": {"tool": "Skill", "input": {"skill": "docs:index"}},
    "plant": {
        "tool": "Bash",
        "input": {"command": f"mkdir -p .claude; printf '%s' '{OFF}' >.claude/settings.local.json; sleep 5; id -un"},
    },
    "deny after it": {"tool": "Bash", "input": {"command": "touch forbidden"}},
    "server": {"tool": "mcp__desk__who", "input": {}},
    "variable": {"tool": "Bash", "input": {"command": "env; cat /opt/harbor-pack/servers.json; true"}},
    "work": {"tool": "Write", "input": {"file_path": "/workspace/done.txt", "content": "yes\n"}},
}  # fmt: skip
TOKEN = "desk-token-40312"
SERVER = mcp_server("who", 'getpass.getuser() + " " + os.environ.get("DESK_TOKEN", "no token")')
HANDLERS: list[dict[str, Any]] = [
    {"match": "Questions", "patterns": ["AskUserQuestion"], "on_unanswered": "deny"},
    {"match": "Touching", "patterns": ["Bash"], "input_filters": ["^touch"], "reason": "Leave it alone."},
]


@dataclass
class Played:
    """What Harbor's trial left, and what the model read of each call."""

    desk: Desk
    folder: Path
    read: dict[str, str]
    texts: str


@pytest.fixture(scope="module")
def played(make_desk: MakeDesk, claude_bin: Path) -> Iterator[Played]:
    desk: Desk = make_desk()
    desk.handlers(*HANDLERS)
    skill = desk.folder / "eval" / ".claude" / "skills" / "tidy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: tidy\ndescription: tidies\n---\nTIDY-BODY $ARGUMENTS\n")
    answers = "Which?: Tin\nWhich ones?: [Lead, Tin]\nWhat name?: Something of my own\n"
    plugin = desk.folder / "eval" / "plugin"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": "docs"}')
    (plugin / "skills" / "index").mkdir(parents=True)
    (plugin / "skills" / "index" / "SKILL.md").write_text("---\nname: index\ndescription: indexes\n---\nINDEX-BODY\n")
    desk.spec |= {
        "runner": {"plugin_dirs": ["plugin"], "effort": "low", "system_prompt": "SYSTEM-WORD"},
        "models": {"skill": "claude-haiku-4-5"},
        "mcp_servers": [
            {"name": "desk", "command": "python3", "args": ["server.py"], "env": {"DESK_TOKEN": "${DESK_TOKEN}"}}
        ],
    }  # fmt: skip
    (desk.folder / "eval" / "server.py").write_text(SERVER)
    desk.case("one", replay=list(CALLS.values()), **{"answers.yaml": answers})
    built = desk.build()
    engine = find_engine()
    ensure_image(built, engine, agents=("claude-code",))
    [task] = [path.parent for path in built.glob("*/task.toml")]
    with Endpoint(gateway_of(engine)) as endpoint:
        more = {
            "ANTHROPIC_BASE_URL": endpoint.add("one", recorded_calls(task, None)), "ANTHROPIC_API_KEY": "none-needed",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0", "DESK_TOKEN": TOKEN,
        }  # fmt: skip
        command: list[str | Path] = [
            desk.harbor, "run", "-y", "-q", "-p", task, "-a", "claude-code", "-m", "anthropic/claude-haiku-4-5", "-o",
            desk.folder / "jobs", "--job-name", "j", "-n", "1",
        ]  # fmt: skip
        done = subprocess.run(
            command, env={**os.environ, **more}, capture_output=True, text=True, timeout=300, check=False
        )
        read = endpoint.read_by_model("one")
        texts = json.dumps([one.asked.texts for one in endpoint.recorded("one") if one.asked is not None])
    [result] = (desk.folder / "jobs" / "j").glob("*/result.json")
    assert json.loads(result.read_text())["exception_info"] is None, done.stdout[-2000:]
    ids = [f"toolu_replay_{number:04d}" for number in range(1, len(CALLS) + 1)]
    shown = {name: read[ident][0].partition("\n\n<system-reminder>")[0] for name, ident in zip(CALLS, ids, strict=True)}
    yield Played(desk, result.parent, shown, texts)
    engine.close()


def test_denied_calls_are_denied_before_and_after_tampering(played: Played) -> None:
    assert played.read["deny"] == played.read["deny after it"] == "Leave it alone."
    assert played.read["plant"] == "worker"
    assert not list(played.folder.rglob("forbidden"))


def test_a_server_runs_as_a_user_of_its_own_and_its_key_is_out_of_the_models_reach(played: Played) -> None:
    assert played.read["server"] == f"services {TOKEN}"
    assert TOKEN not in played.read["variable"]
    assert "servers.json: Permission denied" in played.read["variable"]


def test_questions_are_answered(played: Played) -> None:
    for said in ('"Which?"="Tin"', '"Which ones?"="Lead, Tin"', '"What name?"="Something of my own"'):
        assert said in played.read["question"]


def test_skills_of_the_project_and_of_a_plugin_are_found_by_name(played: Played) -> None:
    assert played.read["skill"].startswith("Launching skill: tidy")
    assert played.read["plugin"].startswith("Launching skill: docs:index")
    assert "TIDY-BODY AB" in played.texts
    assert "INDEX-BODY" in played.texts


def test_the_reward_is_that_of_the_judges_and_the_log_has_every_covered_call(played: Played) -> None:
    assert json.loads((played.folder / "verifier" / "reward.json").read_text())["reward"] == 1
    log = {line["tool_use_id"]: line["decision"] for line in json_lines(played.folder / "verifier/interceptions.jsonl")}
    calls = calls_of(played.folder / "agent" / "claude-code.txt")
    covered = [call for call in calls if call.tool in ("Bash", "AskUserQuestion")]
    assert [log[call.id] for call in covered] == ["deny", "answer", "none", "deny", "none"]


@pytest.fixture(scope="module")
def scripted(played: Played) -> Ran:
    """A job of ours: two cases at once, each with its own script and answers."""
    desk = played.desk
    other = [CALLS["question"], {"tool": "Bash", "input": {"command": "touch other"}}, CALLS["work"]]
    desk.case("two", replay=other, **{"answers.yaml": "Which?: Lead\nWhich ones?: Tin\nWhat name?: Me\n"})
    desk.build()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESK_TOKEN", TOKEN)
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"):
            patch.delenv(name, raising=False)
        return desk.run("claude-code", scripted=True)


def test_a_scripted_job_of_ours_needs_no_key_and_plays_each_cases_own_calls(scripted: Ran) -> None:
    one, two = scripted.trials["one"], scripted.trials["two"]
    for trial in (one, two):
        assert trial.error is None
        assert (trial.status, trial.reward, trial.sealed) == ("scored", 1, True)
        assert trial.versions["agent"].count(".") == 2
    assert (one.calls.total, one.calls.denied, one.calls.answered) == (len(CALLS), 2, 1)
    assert (two.calls.total, two.calls.denied, two.calls.answered) == (3, 1, 1)
    assert len(what_became(scripted.folder)["one"]) == len(CALLS)
    asked = json_lines(scripted.kept("two", "model.jsonl"))
    results = {key: text for line in asked for key, text in line.get("results", {}).items()}
    assert '"Which?"="Lead"' in results["toolu_replay_0001"]["text"]
    assert results["toolu_replay_0002"]["text"].startswith("Leave it alone.")


def test_a_job_of_ours_gives_the_program_the_evals_flags(scripted: Ran) -> None:
    [first, *_] = [line for line in json_lines(scripted.kept("one", "model.jsonl")) if line["kind"] == "turn"]
    assert first["model"] == "claude-haiku-4-5"
    assert "SYSTEM-WORD" in json.dumps(first["texts"])


def test_the_same_calls_get_the_same_decisions_in_our_own_sandbox(
    played: Played, scripted: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN", TOKEN)
    options = RunOptions("docker", "claude-code", parallel=2, scripted=True, jobs_dir=played.desk.folder / "jobs")
    job = run_job(played.desk.out, options)
    assert what_became(job) == what_became(scripted.folder)
    assert verdicts(job) == verdicts(scripted.folder)
