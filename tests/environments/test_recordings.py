"""A recorded call that comes to nothing is told of the trial, not in its transcript alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.report import job_json

from .kit import CLAUDE_VARIABLES

PATCH = {"tool": "apply_patch", "input": {"command": "*** Begin Patch\n*** Add File: f\n+x\n*** End Patch\n"}}
SERVER = {"tool": "mcp__no__such", "input": {}}
TOLD = "c1: replay.yaml: no such tool here, nothing was done: apply_patch, 2 calls; mcp__no__such, 1 call"


@pytest.fixture
def recorded(author: Any) -> Any:
    author.case(replay=[PATCH, {"tool": "Bash", "input": {"command": "echo yes"}}, PATCH, SERVER])
    return author


def test_replay_says_which_tools_do_not_exist(recorded: Any) -> None:
    ran = recorded.run("replay")
    summary = collect_job(ran.folder)
    assert job_json(summary)["warnings"] == [TOLD]
    assert ran.trial.warnings == (TOLD.removeprefix("c1: "),)


@pytest.mark.claude
def test_so_does_claude_code_that_follows_a_script(
    recorded: Any, claude_bin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{claude_bin}{os.pathsep}{os.environ['PATH']}")
    for name in CLAUDE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert collect_job(recorded.run("claude-code", scripted=True).folder).warnings == (TOLD,)


def test_the_calls_of_a_step_are_told_with_its_name(recorded: Any) -> None:
    recorded.spec["execution"] = {"steps": [{"id": "plan", "prompt": "plan it"}, {"id": "make", "prompt": "make it"}]}
    recorded.case(replay={"steps": {"plan": [PATCH], "make": []}})
    assert recorded.run("replay").trial.warnings == (
        "replay.yaml, step plan: no such tool here, nothing was done: apply_patch, 1 call",
    )
