"""A model judge under Harbor: asked by the verifier with a key that is its alone, and again by score."""

from __future__ import annotations

import pytest

from harbor_tasks.endpoint import Endpoint, Replies, uses
from harbor_tasks.environments.base import read_trials
from harbor_tasks.environments.engine import find_engine
from harbor_tasks.environments.gateway import gateway_of
from harbor_tasks.results.judges import Asked, score_job

from .kit import MakeDesk

pytestmark = [pytest.mark.harbor, pytest.mark.engine]

KEY = "sk-ant-harbor-judge-0123456789"
SPY = "cat /proc/[0-9]*/environ 2>/dev/null; env; ls /logs/verifier; ! env | grep -q sk-ant"


def test_a_model_is_asked_from_the_sandbox_with_a_key_that_nothing_else_sees(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk()
    desk.spec["judges"] += [
        {"name": "quality", "prompt": "Rate {{ outputs }}.", "score_range": [1, 5]}, {"name": "spy", "command": SPY}
    ]  # fmt: skip
    desk.case("one", solve="echo yes > done.txt; env; cat /proc/[0-9]*/environ 2>/dev/null; true\n")
    desk.build()
    with find_engine() as engine, Endpoint(gateway_of(engine)) as model:
        url = model.add("judge", Replies(*(uses("verdict", {"rationale": "fair", "score": n}) for n in (4, 2))))
        env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url}
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        job = desk.run().folder
        [trial] = read_trials(job)
        assert trial.error is None
        assert {judge.name: judge.value for judge in trial.judges} == {"done": True, "quality": 4, "spy": True}
        assert (trial.reward, trial.judges[1].reason) == (0.75, "fair")
        assert len(model.recorded()) == 1
        assert score_job(job, {}).recorded == 1
        assert read_trials(job) == [trial]
        assert score_job(job, env, fresh=True).asked == 1
        [again] = read_trials(job)
        assert score_job(job, {}) == Asked(asked=0, recorded=1, failed=0)
        assert (again.reward, again.judges[1].value) == (0.25, 2)
    for path in job.rglob("*"):  # Harbor's own files are among them
        assert not path.is_file() or KEY[7:].encode() not in path.read_bytes(), path
