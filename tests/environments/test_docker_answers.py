"""The hook's model from a sealed container: its budget, its figures, and its key, which no file of the job holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint, Replies
from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.freeze import freeze

from .test_answers import HANDLER, KEY, PLACE, SIZE, ask, last_option

pytestmark = pytest.mark.engine

HUNT = "cat /opt/harbor-pack/model.json /proc/[0-9]*/environ; ls /opt/harbor-pack; env"


def test_answers_in_a_sealed_container(
    engine_author: Callable[[], Any], gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    author = engine_author()
    author.spec |= {"models": {"hook_budget": {"calls": 2}}, "judges": [{"name": "any", "check": "return True"}]}
    author.handlers(HANDLER)
    hunt = {"tool": "Bash", "input": {"command": HUNT}}
    author.case("a", replay=[ask(PLACE, SIZE), hunt, ask(PLACE), ask(("Third?", "x", "y"))])
    with Endpoint(gateway) as endpoint:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", endpoint.add("hook", Replies(choose=last_option)))
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        ran = author.run("replay", environment="docker")
        asked = endpoint.recorded("hook")
    assert ran.trial.error is None
    assert (ran.job.sealed, len(asked)) == (True, 2)
    summary = collect_job(ran.folder)
    assert [(one.question, one.tier, one.input_tokens, one.shared) for one in summary.questions] == [
        ("Deploy where?", "model", 1000, 2), ("How big?", "model", 1000, 2), ("Deploy where?", "model", 1000, 1),
        ("Third?", "guessed", None, 1),
    ]  # fmt: skip
    assert summary.costs.hook.usd == pytest.approx(0.004)
    files = [path for path in ran.folder.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    report = freeze(ran.folder, author.eval)
    assert {(one.question, one.answers) for one in report.written} == {
        ("Deploy where?", ("Production",)), ("How big?", ("Large, red",)),
    }  # fmt: skip
    assert [one.question for one in report.guessed] == ["Third?"]
