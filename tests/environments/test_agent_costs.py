"""What the agents' own programs tell of tokens and money, with a scripted model that counts as a real one would."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint
from harbor_tasks.environments import scripted
from harbor_tasks.pricing import INPUT, OUTPUT
from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.report import job_json

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY")


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command}}


@pytest.fixture
def counted(author: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An author whose scripted endpoint says that tokens were used."""
    monkeypatch.setattr(scripted, "Endpoint", partial(Endpoint, tokens=True))
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    author.spec["judges"] = [{"name": "any", "check": "return True"}]
    return author


@pytest.fixture
def claude(counted: Any, claude_bin: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PATH", f"{claude_bin}{os.pathsep}{os.environ['PATH']}")
    counted.spec["models"] = {"skill": "claude-sonnet-4-5"}
    return counted


@pytest.fixture
def codex(counted: Any, codex_bin: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PATH", f"{codex_bin}{os.pathsep}{os.environ['PATH']}")
    counted.spec |= {"runner": {"type": "codex"}, "models": {"skill": "gpt-5.5"}}
    return counted


@pytest.mark.claude
def test_claude_codes_own_sum_and_tokens_are_kept_and_limit_the_job(claude: Any) -> None:
    for name in "abc":
        claude.case(name, replay=[bash("echo a")])
    ran = claude.run("claude-code", scripted=True, max_cost=0.001, parallel=1)
    assert [trial.status for trial in ran.trials] == ["scored", "pending", "pending"]
    trial = ran.trials[0]
    assert trial.cost_usd is not None
    assert trial.cost_usd > 0.001
    assert trial.tokens["claude-sonnet-4-5"][INPUT] > 1000
    assert trial.unpriced == ()
    summary = collect_job(ran.folder)
    assert (ran.job.status, summary.exit_code) == ("partial", 1)
    assert "--scripted --resume" in summary.faults[0]
    assert job_json(summary)["cost"]["agent"]["usd"] == pytest.approx(trial.cost_usd)


@pytest.mark.claude
def test_one_that_is_ended_before_it_tells_its_cost_is_priced_by_its_messages(claude: Any) -> None:
    claude.spec["execution"]["timeout"] = 8
    claude.case(replay=[bash("sleep 60")])
    trial = claude.run("claude-code", scripted=True).trial
    assert trial.error is not None
    assert trial.error.kind == "timeout"
    used = trial.tokens["claude-sonnet-4-5"]
    assert trial.cost_usd == pytest.approx((used[INPUT] * 3 + used.get(OUTPUT, 0) * 15) / 1e6)
    assert trial.cost_usd > 0.001


@pytest.mark.claude
def test_steps_share_the_budget_of_their_trial(claude: Any) -> None:
    steps = [{"id": name, "prompt": "go", "on_failure": "continue"} for name in ("a", "b")]
    claude.spec["execution"] = {"steps": steps, "max_budget_usd": 0.01}
    claude.case(replay={"steps": {"a": [bash("echo a")] * 3, "b": [bash("echo b")]}})
    trial = claude.run("claude-code", scripted=True).trial
    first, second = trial.steps
    assert first.error is not None
    assert "error_max_budget_usd" in first.error.message
    assert second.error is not None
    assert second.error.message.startswith("execution.max_budget_usd 0.01 is used up")
    assert second.error.message.endswith("the step was not started")
    assert trial.reward is None
    assert any(line.startswith("execution.max_budget_usd 0.01 was passed: ") for line in trial.warnings)


@pytest.mark.claude
def test_a_step_gets_what_the_steps_before_it_left(claude: Any) -> None:
    """Two requests make a step; with the whole budget the second step alone would have cost one and a half of them."""
    claude.case(replay=[bash("true")])
    once = claude.run("claude-code", scripted=True).trial.cost_usd
    claude.spec["execution"] = {
        "steps": [{"id": name, "prompt": "go"} for name in ("a", "b")],
        "max_budget_usd": once * 1.5,
    }
    claude.case(replay={"steps": {name: [bash("true")] * (1 + 9 * (name == "b")) for name in ("a", "b")}})
    trial = claude.run("claude-code", scripted=True).trial
    first, second = trial.steps
    assert first.error is None
    assert second.error is not None
    assert "error_max_budget_usd" in second.error.message
    assert once * 1.5 < trial.cost_usd < once * 2.4


@pytest.mark.codex
def test_codex_tells_tokens_only_and_that_is_said(codex: Any) -> None:
    codex.spec["execution"]["max_budget_usd"] = 0.01
    codex.case(replay=[bash("echo a")])
    ran = codex.run("codex", scripted=True, max_cost=1.0)
    trial = ran.trial
    assert (trial.cost_usd, trial.unpriced) == (None, ("gpt-5.5",))
    assert trial.tokens["gpt-5.5"][INPUT] > 1000
    assert trial.warnings == ("execution.max_budget_usd cannot be compared: the price of gpt-5.5 is not known",)
    assert [str(e) for e in ran.events if "--max-cost" in str(e)] == [
        "warning: the price of gpt-5.5 is not known: --max-cost cannot count its tokens"
    ]
    cost = job_json(collect_job(ran.folder))["cost"]
    assert (cost["usd"], cost["agent"]["usd"], cost["agent"]["unpriced"]) == (None, None, ["gpt-5.5"])
    assert cost["agent"]["tokens"][INPUT] > 1000
