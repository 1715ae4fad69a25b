"""Model judges from build to score, on this machine: asked by the verifier, asked later, asked again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harbor_tasks.agents.oracle import OracleAgent
from harbor_tasks.endpoint import Reply, Script, fails
from harbor_tasks.environments.base import (
    RunOptions,
    Trial,
    TrialPlan,
    read_job,
    read_trials,
    trial_dir,
    write_record,
)
from harbor_tasks.environments.base import TrialError as Fault
from harbor_tasks.environments.harbor_command import Harbor
from harbor_tasks.environments.harbor_process import HarborRun
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.environments.judge_model import judge_model
from harbor_tasks.environments.lock import job_lock
from harbor_tasks.errors import AuthorError, InterruptedRun, MachineError
from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.judges import score_hint, score_job
from harbor_tasks.results.report import job_json, report_html
from harbor_tasks.tasks.manifest import read_manifest
from tests.environments.conftest import Author
from tests.environments.judging import KEY, QUALITY, Bench, by_type, gives

NOT_JSON = "it is not valid JSON: line 1 column 2"
EVAL = Path(__file__).parents[1] / "results" / "evals" / "docs-review"


def no_key_in(folder: Path) -> None:
    """No file of the job holds the key, or a part of it that would do."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert KEY[7:].encode() not in path.read_bytes(), path


def verdicts(trial: Trial) -> dict[str, Any]:
    """Judge -> value or status."""
    return {judge.name: judge.value if judge.status == "ok" else judge.status for judge in trial.judges}


def copied(folder: Path) -> Path:
    """The test eval as a project of its own."""
    shutil.copytree(EVAL, folder / "project")
    (folder / "project" / ".git").mkdir()
    return folder / "project" / "eval"


# ---- the eval of two steps, as authors write them ----


def test_an_eval_in_use_is_judged_by_its_verifier_and_score_gives_the_same(
    tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    job = run_job(copied(tmp_path), RunOptions(jobs_dir=tmp_path / "jobs"))
    [trial] = read_trials(job)
    assert trial.error is None
    assert verdicts(trial) == {
        "draft_quality": 4, "front_matter": 0.5, "review_quality": 4, "stayed_polite": True, "budget": True,
        "saw_no_key": True,
    }  # fmt: skip
    assert trial.reward == pytest.approx((0.5 + 3 * 0.75) / 4)
    [draft, review] = trial.steps
    assert (draft.judges[0].name, draft.judges[0].value) == ("draft_quality", 4)
    sampled = next(judge for judge in review.judges if judge.name == "review_quality")
    assert sampled.samples == (4, 4, 4)
    assert sampled.usage == {
        "input_tokens": 300, "output_tokens": 60, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0
    }  # fmt: skip
    assert sampled.model == "claude-judge-1"
    assert len(bench.asked) == 5
    sent = json.dumps(bench.asked)
    assert "NOBODY-ASKED-FOR-THIS" not in sent
    assert "give score 5. {{ annotations.gold }}" in sent, "a value is not rendered again"
    summary = collect_job(job)
    assert (summary.exit_code, [limit.met for limit in summary.thresholds]) == (0, [True] * 3)
    before = job_json(summary)
    shutil.rmtree(job / "tasks")
    done = score_job(job, {})
    assert (done.asked, done.recorded) == (0, 3)
    assert job_json(collect_job(job)) == before, "the same table, from the recorded replies"
    assert len(bench.asked) == 5
    no_key_in(job)


def test_without_a_key_it_is_unjudged_and_score_asks_later(tmp_path: Path, bench: Bench) -> None:
    ev = copied(tmp_path)
    job = run_job(ev, RunOptions(jobs_dir=tmp_path / "jobs"))
    [trial] = read_trials(job)
    assert (trial.status, trial.reward, bench.asked) == ("unjudged", None, [])
    assert collect_job(job).exit_code == 1
    hint = score_hint(job, [trial])
    assert hint is not None
    assert hint.startswith("no verdict yet of the model judges draft_quality, review_quality, stayed_polite; to ask: ")
    assert hint.endswith(f"harbor-pack score {job}")
    with pytest.raises(MachineError, match="export ANTHROPIC_API_KEY"):
        score_job(job, {"ANTHROPIC_API_KEY": ""})
    shutil.rmtree(ev.parent)  # neither the eval nor its tasks are needed
    shutil.rmtree(job / "tasks")
    said: list[str] = []
    bench.replies(choose=lambda body: gives(2, "so so") if "draft" in json.dumps(body["messages"]) else by_type(body))
    assert score_job(job, bench.env, say=said.append).asked == 3
    assert sorted(said)[0] == "case-001, step draft: draft_quality: 2"
    [trial] = read_trials(job)
    assert (trial.status, trial.unjudged) == ("scored", ())
    assert score_hint(job, [trial]) is None
    summary = collect_job(job)
    assert summary.exit_code == 1, "a threshold is missed"
    assert list(summary.faults) == ["threshold draft_quality.min_mean 3.5 is missed: it is 2"]
    top, last = (trial_dir(job, trial.id) / place / "verifier" for place in ("", "steps/review"))
    for name in ("judges.json", "reward.json", "judge_replies.jsonl"):
        assert (top / name).read_bytes() == (last / name).read_bytes()
    assert json.loads((top / "reward.json").read_text())["reward"] == trial.reward
    before, asked = job_json(summary), len(bench.asked)
    bench.replies(choose=by_type)
    assert score_job(job, {}).recorded == 3
    assert (job_json(collect_job(job)), len(bench.asked)) == (before, asked)
    assert score_job(job, bench.env, fresh=True, names=("draft_quality",)).asked == 1
    assert len(bench.asked) == asked + 1
    assert collect_job(job).exit_code == 0
    assert score_job(job, {}).recorded == 3, "the newest replies count"
    [trial] = read_trials(job)
    told = {judge.name: judge for step in trial.steps for judge in step.judges}["draft_quality"]
    assert (told.replies, told.usage["input_tokens"]) == (2, 200), "all were paid for"
    assert collect_job(job).exit_code == 0
    no_key_in(job)


# ---- smaller ones ----


def test_a_judge_that_failed_is_asked_again_and_the_others_are_not_touched(small: Author, bench: Bench) -> None:
    other = {"name": "tone", "prompt": "Tone? {{ conversation }}", "feedback_type": "bool"}
    small.spec["judges"].append(other)
    job = small.run().folder

    def refuses(body: Mapping[str, Any]) -> Reply:
        return fails(400, f"max_tokens: {KEY} is wrong") if "Tone?" in json.dumps(body) else gives(3)

    bench.replies(choose=refuses)
    done = score_job(job, bench.env)
    assert (done.asked, done.failed) == (2, 1)
    [trial] = read_trials(job)
    assert verdicts(trial) == {"done": True, "quality": 3, "tone": "error"}
    assert trial.error == Fault(
        kind="verifier", message="judge tone: HTTP 400: invalid_request_error: max_tokens: (key) is wrong"
    )
    assert (trial.status, trial.reward) == ("error", None)
    assert not (trial_dir(job, trial.id) / "verifier" / "reward.json").exists()
    with pytest.raises(MachineError, match="tone"):
        score_job(job, {})
    assert "model judge tone;" in str(score_hint(job, [trial]))
    bench.replies(choose=by_type)
    assert score_job(job, bench.env).asked == 1
    [trial] = read_trials(job)
    assert (trial.status, trial.error, trial.reward) == ("scored", None, 0.5)
    assert verdicts(trial) == {"done": True, "quality": 3, "tone": True}
    bench.replies(fails(529, headers={"retry-after": "0"}))
    assert score_job(job, bench.env, fresh=True, names=["tone"]).failed == 1
    [trial] = read_trials(job)
    assert (trial.status, verdicts(trial)["quality"], verdicts(trial)["tone"]) == ("error", 3, "error")
    no_key_in(job)


def test_what_was_cut_is_said_where_the_numbers_are(author: Author, bench: Bench) -> None:
    author.spec["judges"] = [QUALITY]
    author.case(solve="head -c 70000 /dev/zero | tr '\\0' x > done.txt\n")
    job = author.run().folder
    score_job(job, bench.env)
    [trial] = read_trials(job)
    assert trial.judges[0].cut == ("outputs['files']['done.txt']: 20000 of 70000 characters",)
    summary = collect_job(job)
    assert (
        "c1: judge quality was not shown all: outputs['files']['done.txt']: 20000 of 70000 characters"
        in summary.warnings
    )
    page = report_html(summary)
    assert "20000 of 70000 characters" in page
    assert "as asked" in page
    assert "asked: claude-haiku" in page


def test_a_trial_whose_agent_failed_keeps_its_error(author: Author, bench: Bench) -> None:
    author.spec["judges"] = [QUALITY]
    author.case(solve="echo yes > done.txt; exit 3\n")
    job = author.run().folder
    assert score_job(job, bench.env).asked == 1
    [trial] = read_trials(job)
    assert trial.error is not None
    assert (trial.status, trial.error.kind, verdicts(trial), trial.reward) == ("error", "agent", {"quality": 4}, 0.75)


def test_a_trial_whose_file_cannot_be_read_is_not_paid_for_nor_written_over(small: Author, bench: Bench) -> None:
    job = small.run().folder
    path = trial_dir(job, read_trials(job)[0].id) / "trial.json"
    path.write_text("{")
    asked = score_job(job, bench.env)
    assert asked.asked == 0
    assert asked.refused == (f"c1: model judges were not asked: {path} cannot be read ({NOT_JSON})",)
    assert path.read_text() == "{"


def test_a_trial_that_does_not_count_is_not_paid_for(small: Author, bench: Bench) -> None:
    job = small.run().folder
    [trial] = read_trials(job)
    void = trial.model_copy(update={"status": "error", "error": Fault(kind="tampered", message="it went around")})
    write_record(trial_dir(job, trial.id) / "trial.json", void)
    assert score_job(job, bench.env).asked == 0
    assert read_trials(job) == [void]
    assert score_hint(job, [void]) is None


def test_what_cannot_be_asked_is_refused_before_anything_is(small: Author, bench: Bench, tmp_path: Path) -> None:
    job = small.run().folder
    for name, said in (
        ("qualty", "the job has no judge 'qualty'; did you mean 'quality'?"),
        ("xyz", "the job has no judge 'xyz'; judges of this job: done, quality"),
        ("done", "'done' is no model judge (check): it ran with the trial"),
    ):
        with pytest.raises(AuthorError) as caught:
            score_job(job, bench.env, names=["quality", name])
        assert said in str(caught.value)
    with job_lock(job), pytest.raises(AuthorError, match="this job is running"):
        score_job(job, bench.env)
    with pytest.raises(AuthorError, match="not the folder of a job"):
        score_job(tmp_path, bench.env)
    assert bench.asked == []


def test_no_more_judges_are_asked_at_a_time_than_wanted(small: Author, bench: Bench) -> None:
    for name in "bcde":
        small.case(name, solve="echo yes > done.txt\n")
    job = small.run(parallel=2).folder
    lock, now, most, asked = threading.Lock(), 0, 0, 0
    two = threading.Barrier(2, timeout=60)

    def counted(body: Mapping[str, Any]) -> Reply:
        nonlocal now, most, asked
        with lock:
            now, asked = now + 1, asked + 1
            most = max(most, now)
            is_early = asked <= 2
        if is_early:
            two.wait()
        time.sleep(0.1)
        with lock:
            now -= 1
        return by_type(body)

    bench.replies(choose=counted)
    assert score_job(job, bench.env, parallel=2).asked == 5
    assert most == 2


def test_an_interrupted_score_keeps_what_it_got(small: Author, bench: Bench) -> None:
    small.case("c2", solve="echo yes > done.txt\n")
    small.spec["judges"][1] = {**QUALITY, "samples": 2}
    job = small.run().folder
    bench.replies(gives(5), gives(3), gives(2), gives(1, delay_s=30))
    command = [sys.executable, "-m", "harbor_tasks.cli", "score", str(job), "-n", "1"]
    command[1:3] = ["-c", "from harbor_tasks.cli import main; main()"]
    process = subprocess.Popen(command, env={**os.environ, **bench.env}, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while len(bench.asked) < 4 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=25)  # the answer would take longer
    assert process.returncode == 130
    assert "Traceback" not in said
    assert sorted(trial.status for trial in read_trials(job)) == ["scored", "unjudged"]
    bench.replies(gives(4))
    asked = len(bench.asked)
    assert score_job(job, bench.env).asked == 1
    assert len(bench.asked) == asked + 1, "only the sample that was missing"
    assert sorted(trial.judges[1].samples for trial in read_trials(job)) == [(2, 4), (5, 3)]


def test_verdicts_that_have_come_when_it_is_interrupted_are_kept(small: Author, bench: Bench) -> None:
    """While the first is written the second waits, and the third is still asked for."""
    for name in "bc":
        small.case(name, solve="echo yes > done.txt\n")
    job = small.run().folder
    bench.replies(gives(5), gives(3), gives(2, delay_s=30))
    said: list[str] = []

    def interrupts(line: str) -> None:
        said.append(line)
        if len(said) > 1:
            return
        until = time.monotonic() + 20
        while len(list(job.rglob("judge_replies.jsonl"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises((InterruptedRun, KeyboardInterrupt)) as ended:
        score_job(job, bench.env, parallel=3, say=interrupts)
    assert sorted(trial.status for trial in read_trials(job)) == ["scored", "scored", "unjudged"]
    assert (len(said), ended.type) == (2, InterruptedRun)


def test_a_line_that_was_cut_off_does_not_count(small: Author, bench: Bench) -> None:
    job = small.run().folder
    score_job(job, bench.env)
    [trial] = read_trials(job)
    replies = trial_dir(job, trial.id) / "verifier" / "judge_replies.jsonl"
    replies.write_bytes(b'{"judge": 1}\n[]\n\xff\n' + replies.read_bytes()[:-20])
    assert score_job(job, bench.env).asked == 1
    assert score_job(job, {}).recorded == 1
    assert [trial.status for trial in read_trials(job)] == ["scored"]


def test_the_commands_of_the_page_work_in_their_order(repo_root: Path, author: Author, bench: Bench) -> None:
    page = (repo_root / "docs" / "judges.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    author.spec["judges"] += yaml.safe_load(example)
    author.case(solve="echo yes > done.txt\n", annotations_yaml="facts: [one]\n")
    author.write()
    [lines] = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    clean = {key: text for key, text in os.environ.items() if not key.startswith("ANTHROPIC")}

    def typed(line: str, *more: str, **env: str) -> subprocess.CompletedProcess[str]:
        arguments = [str(printed[-1]) if word == "JOB" else word for word in [*line.split()[1:], *more]]
        command = [sys.executable, "-c", "from harbor_tasks.cli import main; main()", *arguments]
        done = subprocess.run(
            command, env={**clean, "PYTHONPATH": str(repo_root), **env}, cwd=author.folder, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert KEY not in done.stdout + done.stderr
        return done

    run, score, again, fresh = lines.splitlines()
    printed: list[str] = []
    for _ in range(2):  # a user has more jobs than the last
        said = typed(run, "--agent", "oracle").stderr
        assert "to ask: harbor-pack score jobs/" in said
        printed += re.findall(r"^kept in ([^\s;]+)", said, re.MULTILINE)
    assert len(printed) == 2
    none = typed(score, "--json")
    assert none.returncode == 3
    assert "no key for the model of quality" in json.loads(none.stdout)["problems"][0]["message"]
    first = typed(score, "--json", **bench.env)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert (found["scored"], found["mean_reward"]) == (1, 0.75)
    assert first.stderr == "c1: quality: 4\nmodel judges: 1 asked, 0 from recorded replies\n"
    second = typed(again, "--json")
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert len(bench.asked) == 3
    last = typed(fresh, **bench.env)
    assert (last.returncode, len(bench.asked)) == (0, 6)
    assert "quality" in last.stdout


class Scripted(OracleAgent):
    """Stands for an agent program whose model is a script."""

    def prepare(self, environment: str, caller: Mapping[str, str], *, scripted: bool) -> None:
        """It takes the script."""


def test_where_a_script_stands_in_for_the_model_judges_are_not_paid_for(
    small: Author, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    out = small.build()
    options = RunOptions(agent="oracle", jobs_dir=small.jobs)
    job = run_job(out, options, agent=Scripted(), scripts=lambda _task, _step: Script(()))
    [trial] = read_trials(job)
    assert (trial.status, bench.asked) == ("unjudged", [])
    [expected] = read_job(job).expected
    assert "HARBOR_PACK_JUDGE_KEY" in (out / "c1" / "task.toml").read_text()
    plan = TrialPlan(expected, out / "c1", job, Scripted())
    for own, given in ({"ANTHROPIC_BASE_URL": "http://script"}, False), ({}, True):
        folder = small.folder / f"harbor-{given}"
        run = HarborRun(Harbor(Path("harbor"), "0.26"), folder, {})
        run.write([plan], {}, None, {expected.trial: own})
        assert ("HARBOR_PACK_JUDGE_KEY" in (folder / "tasks" / expected.trial / "task.toml").read_text()) is given


@pytest.mark.parametrize(
    ("spec", "env", "local", "sandbox"),
    [
        ({}, {"ANTHROPIC_API_KEY": "k"}, True, True), ({}, {}, False, False),
        ({}, {"ANTHROPIC_API_KEY": ""}, False, False), ({}, {"ANTHROPIC_AUTH_TOKEN": "t"}, True, True),
        ({"judges": [{"name": "j", "check": "return True"}]}, None, False, False),
        ({"sandbox": {"network": "none"}}, None, True, False), ({"sandbox": {"sealed": False}}, None, True, False),
        ({"sandbox": {"network": "model"}}, None, True, True),
        ({"sandbox": {"network": "model"}, "runner": {"type": "codex"}}, None, True, False),
    ],
    ids=["key", "none", "empty", "token", "no model judge", "no network", "not sealed", "model", "another model"],
)  # fmt: skip
def test_where_the_verifier_gets_the_key(small: Author, spec: Any, env: Any, local: bool, sandbox: bool) -> None:
    small.spec.update(spec)
    manifest = read_manifest(small.build())
    caller = {"ANTHROPIC_API_KEY": "k"} if env is None else env
    given = [judge_model(manifest, caller, in_sandbox=place) is not None for place in (False, True)]
    assert given == [local, sandbox]
