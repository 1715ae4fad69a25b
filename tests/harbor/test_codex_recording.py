"""A recording of Claude Code's calls, played under Harbor for an eval of Codex's as on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from harbor_tasks.environments.base import RunOptions, Trial, read_trials, trial_dir
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.results.transcript import read_transcript

from .kit import MakeDesk
from .test_codex import HANDLERS

pytestmark = [pytest.mark.harbor, pytest.mark.engine]

ASKED = {"question": "Which?", "header": "Metal", "options": [
    {"label": "Lead", "description": "l"}, {"label": "Tin", "description": "t"}]}  # fmt: skip
CALLS: list[dict[str, Any]] = [
    {"tool": "Read", "input": {"file_path": "done.txt"}},
    {"tool": "Write", "input": {"file_path": "done.txt", "content": "no\n"}},
    {"tool": "Edit", "input": {"file_path": "done.txt", "old_string": "no", "new_string": "yes"}},
    {"tool": "Write", "input": {"file_path": "secret.txt", "content": "x"}},
    {"tool": "AskUserQuestion", "input": {"questions": [ASKED]}},
    {"tool": "Bash", "input": {"command": "touch forbidden"}},
    {"tool": "Agent", "id": "helper", "input": {"prompt": "help"}},
    {"tool": "Bash", "input": {"command": "echo helped >helped.txt"}, "agent": "helper"},
]  # fmt: skip


def test_a_recording_for_codex_is_played_under_harbor_as_on_this_machine(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.handlers(*HANDLERS[:3])
    desk.spec |= {"runner": {"type": "codex"}, "models": {"skill": "gpt-5.5"}, "outputs": [{"path": "."}]}
    desk.case("one", replay=CALLS, **{"answers.yaml": "Which?: Tin\n"})
    built = desk.build()
    ran = desk.run("replay")
    local = run_job(built, RunOptions("local", "replay", jobs_dir=desk.folder / "local"))
    [there], [here] = (read_trials(folder) for folder in (ran.folder, local))
    assert (there.error, there.reward, there.calls.denied, there.calls.answered) == (None, 1, 2, 1)
    assert _became(ran.folder, there) == _became(local, here)
    assert there.warnings == here.warnings == ("replay.yaml: not played: Read, 1 call (codex has no such tool)",)
    assert {path.name for path in (trial_dir(ran.folder, there.id) / "workspace").iterdir()} == {
        "done.txt", "helped.txt"
    }  # fmt: skip


def _became(job: Any, trial: Trial) -> list[tuple[Any, ...]]:
    folder = trial_dir(job, trial.id)
    seen = read_transcript(folder / "transcript.jsonl", folder / "interceptions.jsonl")
    return [(call.name, call.input, call.decision, call.is_error, call.reason) for call in seen.calls]
