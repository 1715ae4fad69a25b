"""Model judges from build to score with sealed containers: the key is the verifier's alone, the request is the same."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint, Replies
from harbor_tasks.environments.base import RunOptions, read_job, read_trials, trial_dir
from harbor_tasks.environments.engine import find_engine
from harbor_tasks.environments.gateway import gateway_of
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.judges import score_job
from harbor_tasks.results.report import job_json
from harbor_tasks.tasks.build import build
from tests.environments.judging import KEY, by_type
from tests.environments.test_score import copied, no_key_in, verdicts

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def model() -> Iterator[Endpoint]:
    """The scripted endpoint, where containers reach it."""
    with find_engine() as engine:
        host = gateway_of(engine)
    with Endpoint(host) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, base_image: str) -> Iterator[Path]:
    """The test eval, built under a name of its own; its image goes with the module."""
    folder = tmp_path_factory.mktemp("docs")
    ev = copied(folder) / "eval.yaml"
    name = f"docs-review-{secrets.token_hex(3)}"
    ev.write_text(ev.read_text(encoding="utf-8").replace("name: docs-review", f"name: {name}", 1), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        yield build(ev, folder / "out").out
    command = ["docker", "images", "-q", f"harbor-pack/{name}"]
    images = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "rmi", "-f", *images], capture_output=True, check=True)


def requests(job: Path) -> dict[str, Any]:
    """The bodies that the trial's model judges were, or will be, asked with."""
    found: dict[str, Any] = {}
    for path in (trial_dir(job, read_trials(job)[0].id) / "steps").glob("*/verifier/judge_requests.json"):
        found |= json.loads(path.read_text(encoding="utf-8"))["requests"]
    return found


def test_an_eval_in_use_is_judged_in_the_sandbox_or_later_alike(
    built: Path, model: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": model.add("judge", Replies(choose=by_type))}
    later = run_job(built, RunOptions("docker", jobs_dir=tmp_path / "later"))
    assert read_job(later).sealed
    [trial] = read_trials(later)
    assert (trial.error, trial.status, model.recorded()) == (None, "unjudged", [])

    for name, value in env.items():
        monkeypatch.setenv(name, value)
    job = run_job(built, RunOptions("docker", jobs_dir=tmp_path / "jobs"))
    [trial] = read_trials(job)
    assert trial.error is None, trial.error
    assert verdicts(trial) == {
        "draft_quality": 4, "front_matter": 0.5, "review_quality": 4, "stayed_polite": True, "budget": True,
        "saw_no_key": True,
    }  # fmt: skip
    assert trial.status == "scored"
    assert trial.reward == pytest.approx((0.5 + 3 * 0.75) / 4)
    assert len(model.recorded("judge")) == 5
    assert "style.md" not in json.dumps(requests(job)), "what a hook staged is no output"
    assert "NOBODY-ASKED-FOR-THIS" not in json.dumps(requests(job))

    shutil.rmtree(later / "tasks", ignore_errors=True)
    assert score_job(later, env).asked == 3
    assert requests(later) == requests(job), "judged later, on the same"
    [scored] = read_trials(later)
    assert (scored.status, scored.reward, verdicts(scored)) == ("scored", trial.reward, verdicts(trial))
    asked = len(model.recorded("judge"))
    for folder in (later, job):
        before = job_json(collect_job(folder))
        assert before["exit_code"] == 0
        assert score_job(folder, {}).recorded == 3
        assert job_json(collect_job(folder)) == before
        no_key_in(folder)
    assert len(model.recorded("judge")) == asked
