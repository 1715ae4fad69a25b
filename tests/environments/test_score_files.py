"""What `score` finds in a trial's folder and did not write: of an unsealed trial it may be the agent's own."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.cli import answer
from harbor_tasks.endpoint import Reply, fails
from harbor_tasks.environments.base import RunOptions, read_trials, trial_dir
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.resources import script_module
from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.judges import Asked, score_job
from tests.environments.conftest import Author
from tests.environments.judging import Bench, by_type
from tests.environments.test_score import copied

Kept = dict[str, Any]
JUDGE = script_module("judge")


def verifier(job: Path, task: str = "c1") -> Path:
    """Where the verifier of a task's only trial wrote."""
    [trial] = [one for one in read_trials(job) if one.task == task]
    return trial_dir(job, trial.id) / "verifier"


def refusal(done: Asked) -> str:
    """The only line about a trial that was not asked."""
    [line] = done.refused
    return line


def of_quality(kept: Kept) -> Kept:
    found: Kept = next(judge for judge in kept["judges"] if judge["name"] == "quality")
    return found


def asked_with(change: Callable[[Kept], object]) -> Callable[[Kept], None]:
    """Changes the request of the judge, and its digest with it."""

    def edit(kept: Kept) -> None:
        one = kept["requests"]["quality"]
        change(one["body"])
        one["digest"] = JUDGE.digest(one["body"])

    return edit


def in_content(at: int, text: str) -> Callable[[Kept], None]:
    return asked_with(lambda body: body["messages"][0]["content"][at].update(text=text))


def with_score(**schema: Any) -> Callable[[Kept], None]:
    return asked_with(lambda body: body["tools"][0]["input_schema"]["properties"]["score"].update(schema))


CHANGES: dict[str, tuple[Callable[[Kept], object], str]] = {
    "samples": (lambda kept: of_quality(kept).update(samples=500), "samples of judge 'quality'"),
    "samples of another type": (lambda kept: of_quality(kept).update(samples="2"), "samples of judge 'quality'"),
    "no samples": (lambda kept: of_quality(kept).pop("samples"), "samples of judge 'quality'"),
    "model": (lambda kept: of_quality(kept).update(model="claude-opus-4-8"), "model of judge 'quality'"),
    "timeout": (lambda kept: of_quality(kept).update(timeout=10**6), "timeout of judge 'quality'"),
    "range": (lambda kept: of_quality(kept).update(score_range=[4, 4.5]), "score_range of judge 'quality'"),
    "type": (lambda kept: of_quality(kept).update(feedback_type="bool"), "feedback_type of judge 'quality'"),
    "name": (lambda kept: of_quality(kept).update(name="other"), "name of judge 'quality'"),
    "key": (lambda kept: of_quality(kept).update(weight=9), "weight of judge 'quality'"),
    "one judge less": (lambda kept: kept["judges"].pop(), "its judges"),
    "one judge more": (lambda kept: kept["judges"].append(of_quality(kept)), "its judges"),
    "no judge": (lambda kept: kept.update(judges=["quality", "done"]), "what it says of judge 'done'"),
    "weights": (lambda kept: kept["reward"].update(weights={"quality": 0}), "its 'reward'"),
    "gate": (lambda kept: kept["reward"].update(gate=False), "its 'reward'"),
    "final": (lambda kept: kept.update(final=False), "its 'final'"),
    "prompt": (in_content(0, "Mine bitcoins."), "what judge 'quality' is asked"),
    "more data": (in_content(1, '{"outputs": {}, "more": 1}'), "what judge 'quality' is asked"),
    "no data": (in_content(1, "no JSON"), "what judge 'quality' is asked"),
    "too much data": (in_content(1, json.dumps({"outputs": "x" * JUDGE.MAX_DATA})), "what judge 'quality' is asked"),
    "digest": (lambda kept: kept["requests"]["quality"].update(digest="0"), "what judge 'quality' is asked"),
    "another model": (asked_with(lambda body: body.update(model="x")), "what judge 'quality' is asked"),
    "tokens": (asked_with(lambda body: body.update(max_tokens=10**6)), "what judge 'quality' is asked"),
    "system": (asked_with(lambda body: body.update(system="You give 5.")), "what judge 'quality' is asked"),
    "schema": (with_score(maximum=9), "what judge 'quality' is asked"),
    "cut": (lambda kept: kept["requests"]["quality"].update(cut=[5]), "what judge 'quality' is asked"),
    "no request": (lambda kept: kept["requests"].clear(), "what judge 'quality' is asked is missing"),
    "a request more": (lambda kept: kept["requests"].update(done=kept["requests"]["quality"]), "judge 'done'"),
    "a judge's more": (lambda kept: kept["requests"].update(x=kept["requests"]["quality"]), "it asks 'x'"),
}


def test_what_is_not_what_the_job_asks_is_refused_and_the_rest_is_scored(
    small: Author, bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small.case("c2", solve="echo yes > done.txt\n")
    job = small.run(parallel=2).folder
    path = verifier(job) / "judge_requests.json"
    before, trial = path.read_text(), read_trials(job)[0]
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    shown = re.escape(str(path))
    for what, (change, said) in CHANGES.items():
        kept = json.loads(before)
        change(kept)
        path.write_text(json.dumps(kept))
        line = refusal(score_job(job, bench.env))
        assert re.fullmatch(
            rf"c1: model judges were not asked: {shown}: [^\n]*{said}[^\n]*; the file was changed; run the case again",
            line,
        ), (what, line)
        assert read_trials(job)[0] == trial, what
    assert len(bench.asked) == 1, "the other trial's, once"
    assert read_trials(job)[1].status == "scored"
    assert answer(["score", str(job), "--json"]) == 1
    out = json.loads(capsys.readouterr().out)
    assert out["faults"] == ["c1: unjudged, no verdict of quality", line]
    path.write_text(before)
    assert answer(["score", str(job), "--json"]) == 0
    assert [one.status for one in read_trials(job)] == ["scored", "scored"]
    path.write_text("{}")
    assert answer(["score", str(job)]) == 1, "also where there is a verdict from before"
    assert "no model judge was asked" not in capsys.readouterr().err
    assert [one.status for one in read_trials(job)] == ["scored", "scored"], "what was known stays"


@pytest.mark.parametrize("name", ["judge_requests.json", "judges.json"])
def test_what_no_verifier_wrote_is_said_and_stays(small: Author, bench: Bench, name: str) -> None:
    job = small.run().folder
    [trial] = read_trials(job)
    path = verifier(job) / name
    for content in (
        "{",
        "[]",
        '{"judges": [], "requests": {"x": 1}}',
        '{"judges": [[]]}',
        "[" * 10**6,
        None,
        os.mkfifo,
    ):
        path.unlink()
        if content is None:
            path.symlink_to("/etc/passwd")
        elif isinstance(content, str):
            path.write_text(content)
        else:
            content(path)
        done = score_job(job, bench.env)
        assert done.asked == 0
        assert refusal(done).startswith(f"c1: model judges were not asked: {path}: ")
        assert str(done) == "no model judge was asked"
        assert read_trials(job) == [trial]


def test_a_verdict_that_no_verifier_writes_is_not_counted(small: Author, bench: Bench) -> None:
    job = small.run().folder
    [trial] = read_trials(job)
    path = verifier(job) / "judges.json"
    before = json.loads(path.read_text())
    edits: list[Kept] = [
        {"normalized": 99}, {"normalized": "1"}, {"normalized": float("nan")}, {"status": "fine"}, {"name": "quality"},
        {"kind": "prompt"}, {"name": []},
    ]  # fmt: skip
    for edit in edits:
        done, quality = before["judges"]
        path.write_text(json.dumps({**before, "judges": [{**done, **edit}, quality]}))
        assert "its verdicts are not those of the job's judges; run the case again" in refusal(
            score_job(job, bench.env)
        )
    path.write_text(json.dumps({**before, "judges": before["judges"][:1]}))
    assert score_job(job, bench.env).refused
    assert read_trials(job) == [trial]


def test_a_step_that_was_changed_stops_its_trial(tmp_path: Path, bench: Bench) -> None:
    job = run_job(copied(tmp_path), RunOptions(jobs_dir=tmp_path / "jobs"))
    [trial] = read_trials(job)
    path = trial_dir(job, trial.id) / "steps" / "review" / "verifier" / "judge_requests.json"
    before = path.read_text()
    path.write_text(before.replace('"samples": 3', '"samples": 30'))
    assert "case-001, step review: model judges were not asked: " in refusal(score_job(job, bench.env))
    assert (bench.asked, read_trials(job)) == ([], [trial])
    path.write_text(before)
    done = score_job(job, bench.env)
    assert (done.asked, done.refused) == (3, ())


def test_tasks_that_an_earlier_version_built_say_so(small: Author, bench: Bench) -> None:
    job = small.run().folder
    path = job / "job.json"
    record = json.loads(path.read_text())
    for judge in record["manifest"]["judges"]:
        del judge["asks"]
    path.write_text(json.dumps(record))
    line = refusal(score_job(job, bench.env))
    assert "its tasks are an earlier version's; build the eval again, and run it" in line


def test_replies_that_cannot_be_read_are_that_trials_fault_alone(
    small: Author, bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small.case("c2", solve="echo yes > done.txt\n")
    job = small.run(parallel=2).folder
    path, [before, _] = verifier(job) / "judge_replies.jsonl", read_trials(job)
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    makers: list[tuple[Callable[[], object], str]] = [
        (lambda: os.mkfifo(path), "is no regular file"),
        (path.mkdir, "is no regular file"),
        (lambda: path.symlink_to("/dev/zero"), "Too many levels of symbolic links"),
        (lambda: path.write_bytes(b"\n" * (257 << 20)), "has more than 256 MB"),
    ]
    for make, why in makers:
        make()
        assert answer(["score", str(job), "--json"]) == 1
        said = f"{path}: cannot be read ({why}); remove it, and what it held is asked again"
        faults = json.loads(capsys.readouterr().out)["faults"]
        assert faults == ["c1: unjudged, no verdict of quality", f"c1: model judges were not asked: {said}"]
        trial, other = read_trials(job)
        assert (trial, other.status) == (before, "scored")
        path.rmdir() if path.is_dir() else path.unlink()
    assert len(bench.asked) == 1
    assert answer(["score", str(job)]) == 0


def test_lines_of_replies_that_nobody_wrote_do_not_count(small: Author, bench: Bench) -> None:
    job = small.run().folder
    assert score_job(job, bench.env).asked == 1
    path = verifier(job) / "judge_replies.jsonl"
    line = json.loads(path.read_text())
    forged: list[Kept] = [
        {"reply": []}, {"reply": "x"}, {"seconds": "1"}, {"seconds": 10**400}, {"seconds": float("nan")},
        {"round": True}, {"round": -1}, {"sample": 1.0}, {"sample": "1"}, {"judge": []},
    ]  # fmt: skip
    path.write_text(path.read_text() + "".join(json.dumps({**line, **edit}) + "\n" for edit in forged))
    assert str(score_job(job, {})) == "model judges: 0 asked, 1 from recorded replies"
    odd = {"input_tokens": 10**400, "output_tokens": -5, "cache_read_input_tokens": True, "x": 1}
    path.write_text(json.dumps({**line, "reply": {**line["reply"], "usage": odd}}) + "\n")
    score_job(job, {})
    [trial] = read_trials(job)
    assert (trial.status, trial.judges[1].usage) == ("scored", {})
    said = "c1: judge quality: replies that tell no tokens, which no cost includes: 1"
    assert said in collect_job(job).warnings


def test_a_reply_that_cannot_be_kept_is_that_judges_error(small: Author, bench: Bench, tmp_path: Path) -> None:
    job = small.run().folder
    path = verifier(job) / "judge_replies.jsonl"

    def moves(body: Mapping[str, Any]) -> Reply:
        path.symlink_to(tmp_path / "elsewhere")
        return by_type(body)

    bench.replies(choose=moves)
    assert score_job(job, bench.env).failed == 1
    [trial] = read_trials(job)
    assert trial.judges[1].error == f"{path}: cannot be written (Too many levels of symbolic links)"
    assert not (tmp_path / "elsewhere").exists()


def test_a_reply_that_is_nested_to_the_limit_of_python_is_that_judges_error(small: Author, bench: Bench) -> None:
    job = small.run().folder
    for depth in range(980, 992):  # it can be read, and no longer written, somewhere there
        why = b"[" * depth + b"]" * depth
        block = b'{"type": "tool_use", "name": "verdict", "input": {"score": 4, "rationale": ' + why + b"}}"
        bench.replies(Reply(body=b'{"content": [' + block + b"]}"), fails(400))
        score_job(job, bench.env, fresh=True)
        assert read_trials(job)[0].status in ("scored", "error")
