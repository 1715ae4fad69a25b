"""A job put together: means that say what they leave out, thresholds, and the exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.costs import folder_spent
from harbor_tasks.environments.lock import job_lock
from harbor_tasks.errors import AuthorError
from harbor_tasks.results.collect import collect_job, missing_steps
from harbor_tasks.results.report import job_json, report_html

from .kit import JobFolder, error, judge, write_lines


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    """A finished job without trials."""
    return JobFolder(tmp_path)


def with_manifest(folder: Path, **manifest: Any) -> JobFolder:
    """A finished job of an eval with these judges, thresholds …"""
    return JobFolder(folder, manifest=manifest)


# ---- rewards ----


def test_the_mean_of_one_trial_is_its_reward(job: JobFolder) -> None:
    job.trial(reward=0.5)
    found = collect_job(job.folder)
    assert (found.mean_reward, found.partial, found.exit_code, found.faults) == (0.5, False, 0, ())


def test_a_low_reward_alone_is_no_fault(job: JobFolder) -> None:
    job.trial(reward=0.0)
    assert collect_job(job.folder).exit_code == 0


def test_a_trial_that_left_nothing_is_still_expected(job: JobFolder) -> None:
    job.trial("c1", reward=1.0)
    job.trial("c2", recorded=False)
    found = collect_job(job.folder)
    assert (found.expected, found.scored, found.exit_code) == (2, 1, 1)
    assert [trial.status for trial in found.trials] == ["scored", "vanished"]
    assert found.faults == ("c2: vanished, the job expected it and it left nothing",)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is empty"),
        ('{"id": "t0",\n', "it is not valid JSON: line 2 column 1"),
        ("{}", "id: Field required"),
        (("1.0", '"lots"'), "reward: Input should be a valid number"),
        (("1.0", "NaN"), "NaN is no number that can be counted with"),
        (("1.0", "-Infinity"), "-Infinity is no number that can be counted with"),
        (("1.0", "1e999"), "1e999 is no number that can be counted with"),
        (b"\xff{}", "it is not UTF-8"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_trial_whose_file_cannot_be_read_is_an_error_that_names_it(
    job: JobFolder, content: str | bytes | tuple[str, str], why: str
) -> None:
    place = job.trial("c1", reward=1.0) / "trial.json"
    if isinstance(content, tuple):
        place.write_text(place.read_text().replace(*content))
    else:
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    found = collect_job(job.folder)
    assert (found.scored, found.mean_reward, found.exit_code) == (0, None, 1)
    [fault] = found.faults
    assert fault.startswith(f"c1: record error: {place} cannot be read ({why}")
    assert "\n" not in fault
    json.dumps(job_json(found), allow_nan=False)
    assert folder_spent(place.parent).usd is None


def test_a_mean_beside_an_errored_trial_is_said_to_be_partial(job: JobFolder) -> None:
    job.trial("c1", reward=1.0)
    job.trial("c2", status="error", error=error("agent", "exit code 3"))
    found = collect_job(job.folder)
    assert (found.mean_reward, found.scored, found.expected, found.partial) == (1.0, 1, 2, True)
    assert found.exit_code == 1
    assert found.faults == ("c2: agent error: exit code 3",)


def test_without_any_reward_there_is_no_mean(job: JobFolder) -> None:
    job.trial(status="unjudged", unjudged=["quality"])
    found = collect_job(job.folder)
    assert (found.mean_reward, found.exit_code) == (None, 1)
    assert found.faults == ("c1: unjudged, no verdict of quality",)


def test_attempts_of_a_task_belong_together(job: JobFolder) -> None:
    job.trial("c1", attempt=1, reward=1.0)
    job.trial("c2", attempt=1, reward=0.0)
    job.trial("c1", attempt=2, reward=0.0)
    found = collect_job(job.folder)
    assert [(task.task, len(task.trials), task.mean_reward) for task in found.tasks] == [("c1", 2, 0.5), ("c2", 1, 0.0)]
    assert found.mean_reward == pytest.approx(1 / 3)


def test_a_step_without_a_result_is_named_and_is_no_zero(job: JobFolder) -> None:
    steps = [
        {"id": "s1", "status": "scored", "reward": 1.0, "judges": [judge("a", True)]},
        {"id": "s2", "status": "pending"},
    ]
    job.trial(status="error", error=None, reward=None, steps=steps)
    found = collect_job(job.folder)
    (trial,) = found.trials
    assert (trial.reward, missing_steps(trial), found.mean_reward) == (None, ("s2",), None)
    assert "without a result: step s2" in found.faults[0]


def test_a_step_that_has_no_judges_is_not_missing(job: JobFolder) -> None:
    steps = [{"id": "s1", "status": "unjudged"}, {"id": "s2", "status": "scored", "reward": 1.0}]
    job.trial(reward=1.0, steps=steps)
    found = collect_job(job.folder)
    assert (missing_steps(found.trials[0]), found.exit_code, found.warnings) == ((), 0, ())


def test_a_step_that_was_allowed_to_fail_is_a_warning(job: JobFolder) -> None:
    steps = [{"id": "s1", "status": "error"}, {"id": "s2", "status": "scored", "reward": 1.0}]
    job.trial(reward=1.0, steps=steps)
    found = collect_job(job.folder)
    assert (found.exit_code, found.warnings) == (0, ("c1: without a result: step s1",))


# ---- judges ----


def test_a_judge_is_summed_up_on_its_own_scale(job: JobFolder) -> None:
    job.trial("c1", reward=1, judges=[judge("stars", 5, normalized=1.0), judge("made", True)])
    job.trial("c2", reward=0, judges=[judge("stars", 2, normalized=0.25), judge("made", False)])
    stars, made = collect_job(job.folder).judges
    assert (stars.name, stars.mean, stars.pass_rate, stars.reported, stars.error_rate) == ("stars", 3.5, None, 2, 0.0)
    assert (made.name, made.mean, made.pass_rate) == ("made", 0.5, 0.5)


def test_skipped_ones_do_not_count_and_whoever_did_not_report_does(tmp_path: Path) -> None:
    job = with_manifest(tmp_path, judges=[{"name": "a"}, {"name": "never"}])
    job.trial("c1", reward=1, judges=[judge("a", True)])
    job.trial("c2", reward=1, judges=[judge("a", status="skipped")])
    job.trial("c3", status="error", error=error("verifier"), judges=[judge("a", status="error", error="KeyError")])
    job.trial("c4", status="unjudged", judges=[judge("a", status="pending")])
    job.trial("c5", status="error", error=error("agent"))
    first, never = collect_job(job.folder).judges
    assert (first.trials, first.reported, first.skipped, first.pending, first.errors) == (5, 1, 1, 1, 2)
    assert (first.error_rate, first.pass_rate) == (2 / 3, 1.0)
    assert (never.name, never.reported, never.errors, never.mean, never.error_rate) == ("never", 0, 5, None, 1.0)


def test_judges_of_steps_count_once(job: JobFolder) -> None:
    steps = [
        {"id": "s1", "status": "scored", "judges": [judge("early", True)]},
        {"id": "s2", "status": "scored", "judges": [judge("late", False)]},
    ]
    job.trial(reward=0.0, steps=steps, judges=[judge("early", True), judge("late", False)])
    assert [(j.name, j.reported, j.mean) for j in collect_job(job.folder).judges] == [
        ("early", 1, 1.0),
        ("late", 1, 0.0),
    ]


# ---- thresholds ----


@pytest.mark.parametrize(
    ("limits", "values", "met"),
    [
        ({"min_mean": 3.5}, [5, 2], True),
        ({"min_mean": 3.6}, [5, 2], False),
        ({"min_mean": 0.3}, [0.1 + 0.2], True),
        ({"min_mean": 0.3}, [0.2, 0.4], True),
        ({"min_pass_rate": 0.5}, [True, False], True),
        ({"min_pass_rate": 0.51}, [True, False], False),
        ({"min_pass_rate": 0.0}, [5], False),
        ({"min_mean": 0.5}, [True, False], True),
        ({"max_error_rate": 0}, [1, 1], True),
        ({"max_error_rate": 0}, [1, "error"], False),
        ({"max_error_rate": 0.5}, [1, "error"], True),
        ({"max_error_rate": 1}, ["error", "error"], False),
        ({"max_error_rate": 1}, ["skipped"], False),
        ({"min_mean": 0.0}, ["skipped"], False),
        ({"min_mean": 1, "max_error_rate": 0}, [1, "skipped"], True),
        ({"max_error_rate": 0}, [1, "pending"], False),
        ({"min_mean": 0.5}, [1, "pending"], False),
    ],
)
def test_a_threshold_is_on_the_judges_own_scale(
    tmp_path: Path, limits: dict[str, float], values: list[Any], met: bool
) -> None:
    job = with_manifest(tmp_path, judges=[{"name": "a"}], thresholds={"a": limits})
    for at, value in enumerate(values):
        said = judge("a", status=value) if isinstance(value, str) else judge("a", value)
        job.trial(f"c{at}", reward=1.0, judges=[said])
    found = collect_job(job.folder)
    assert all(threshold.met for threshold in found.thresholds) is met
    assert len(found.thresholds) == len(limits)
    assert found.exit_code == (0 if met else 1)
    assert any("threshold a." in fault for fault in found.faults) is not met


def test_a_threshold_on_a_judge_that_never_reported_is_missed(tmp_path: Path) -> None:
    job = with_manifest(tmp_path, judges=[], thresholds={"ghost": {"min_mean": 0.0, "min_pass_rate": None}})
    job.trial(reward=1.0, judges=[judge("a", True)])
    found = collect_job(job.folder)
    assert found.exit_code == 1
    assert [(t.judge, t.limit, t.actual, t.met) for t in found.thresholds] == [("ghost", "min_mean", None, False)]
    assert found.faults == ("threshold ghost.min_mean 0 is missed: nothing was reported",)


@pytest.mark.parametrize(
    ("limits", "judges", "why"),
    [
        ({"max_error_rate": 1}, [judge("a", status="error")] * 2,
         "it never reported: 2 of 2 trials brought no verdict of it; the faults of the trials, and of the judge"),
        ({"max_error_rate": 1}, [judge("a", status="skipped"), judge("a", status="error")],
         "it never reported: 1 of 1 trials brought no verdict of it"),
        ({"min_mean": 0}, [judge("a", status="skipped")] * 2,
         "it never reported: its `if` left it out of every trial; change its `if`, or remove the threshold"),
        ({"min_pass_rate": 0.5}, [judge("a", 0.9)] * 2,
         "its 2 verdicts are numbers, mean 0.9, and a number neither passes nor fails; use min_mean"),
        ({"min_pass_rate": 0.5}, [judge("a", 0.9)], "its verdict is a number, mean 0.9, and a number neither"),
        ({"min_pass_rate": 0.5}, [judge("a", False)], "it is 0"),
        ({"min_mean": 0.95}, [judge("a", 0.9)], "it is 0.9"),
        ({"max_error_rate": 0}, [judge("a", 0.9), judge("a", status="error")], "it is 0.5"),
    ],
)  # fmt: skip
def test_why_a_threshold_is_missed(
    tmp_path: Path, limits: dict[str, float], judges: list[dict[str, Any]], why: str
) -> None:
    job = with_manifest(tmp_path, judges=[{"name": "a"}], thresholds={"a": limits})
    for number, one in enumerate(judges):
        job.trial(f"c{number}", reward=1.0, judges=[one])
    found = collect_job(job.folder)
    [fault] = found.faults
    [(limit, wanted)] = limits.items()
    assert fault.startswith(f"threshold a.{limit} {wanted:g} is missed: {why}")
    assert job_json(found)["faults"] == [fault]


@pytest.mark.parametrize(
    ("judges", "why"),
    [
        ([], "the eval has no judges for it; add judges to eval.yaml, and start a new job"),
        ([judge("a", status="skipped"), judge("b", status="skipped")],
         "its judges were left out by their `if` (a, b); give the eval one that judges every case"),
        ([judge("a", status="skipped"), judge("b", 0.5)],
         "no judge that the reward counts reported (a was left out by `if`); see `reward` in eval.yaml"),
    ],
)  # fmt: skip
def test_an_unjudged_trial_says_why_and_what_to_do(job: JobFolder, judges: list[dict[str, Any]], why: str) -> None:
    job.trial(status="unjudged", judges=judges)
    assert collect_job(job.folder).faults == (f"c1: unjudged, {why}",)


def test_who_has_still_to_be_asked_is_no_error_and_keeps_a_threshold_open(tmp_path: Path) -> None:
    limits = {"min_mean": 3.0, "max_error_rate": 0}
    job = with_manifest(tmp_path, judges=[{"name": "a"}], thresholds={"a": limits})
    job.trial("c1", reward=1.0, judges=[judge("a", status="pending")])
    found = collect_job(job.folder)
    assert [(one.pending, one.errors, one.error_rate) for one in found.judges] == [(1, 0, None)]
    assert found.faults == (
        "threshold a.min_mean 3 is not known yet: 1 pending",
        "threshold a.max_error_rate 0 is not known yet: 1 pending",
    )
    job.trial("c2", reward=1.0, judges=[judge("a", 5, normalized=1.0)])
    found = collect_job(job.folder)
    assert [(one.actual, one.met, one.word) for one in found.thresholds] == [
        (5.0, False, "not known yet"),
        (0.0, False, "not known yet"),
    ]
    assert (found.exit_code, job_json(found)["judges"][0]["errors"]) == (1, 0)
    page = report_html(found)
    assert '<td class="warn">not known yet</td>' in page
    assert re.search(r'<th scope="row">a</th>.*<td class="number">1</td>\n<td class="number">0</td></tr>', page, re.S)


def test_one_errored_case_of_two_misses_an_error_rate_of_zero(tmp_path: Path) -> None:
    job = with_manifest(tmp_path, judges=[{"name": "a"}], thresholds={"a": {"max_error_rate": 0}})
    job.trial("c1", reward=1.0, judges=[judge("a", True)])
    job.trial("c2", status="error", error=error("agent"))
    found = collect_job(job.folder)
    assert (found.thresholds[0].actual, found.thresholds[0].met, found.exit_code) == (0.5, False, 1)


# ---- exit codes ----


@pytest.mark.parametrize(
    ("status", "trials", "code"),
    [
        ("finished", [{"reward": 1.0}], 0),
        ("finished", [{"status": "error", "error": error("agent")}], 1),
        ("finished", [{"status": "error", "error": error("verifier")}], 1),
        ("finished", [{"status": "error", "error": error("timeout")}], 1),
        ("finished", [{"status": "error", "error": error("tampered")}], 1),
        ("finished", [{"recorded": False}], 1),
        ("finished", [{"status": "unjudged"}], 1),
        ("finished", [], 1),
        ("finished", [{"status": "error", "error": error("environment")}], 3),
        (
            "finished",
            [{"status": "error", "error": error("agent")}, {"status": "error", "error": error("environment")}],
            3,
        ),
        ("interrupted", [{"reward": 1.0}, {"recorded": False}], 130),
        ("interrupted", [{"status": "error", "error": error("environment")}], 130),
        ("finished", [{"reward": 1.0}, {"status": "interrupted"}], 130),
    ],
)
def test_the_first_exit_code_that_applies(tmp_path: Path, status: str, trials: list[dict[str, Any]], code: int) -> None:
    job = JobFolder(tmp_path, status=status)
    for at, trial in enumerate(trials):
        job.trial(f"c{at}", **trial)
    found = collect_job(job.folder)
    assert found.exit_code == code
    assert bool(found.faults) is (code != 0)


def test_a_job_that_still_runs_has_not_done_what_was_asked(tmp_path: Path) -> None:
    job = JobFolder(tmp_path, status="running")
    job.trial(recorded=False)
    with job_lock(tmp_path):
        found = collect_job(tmp_path)
    assert (found.exit_code, found.faults) == (1, ("c1: not finished",))


def test_a_fault_of_the_job_itself_counts(tmp_path: Path) -> None:
    job = JobFolder(tmp_path, errors=("after_all: exit code 4",))
    job.trial(reward=1.0)
    found = collect_job(tmp_path)
    assert (found.exit_code, found.faults) == (1, ("after_all: exit code 4",))


def test_a_folder_that_holds_no_job_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(AuthorError, match="not the folder of a job"):
        collect_job(tmp_path)


# ---- calls ----


def test_intercepted_calls_are_those_that_a_handler_or_a_rule_decided(job: JobFolder) -> None:
    place = job.trial(reward=1.0, calls={"total": 6, "denied": 2, "answered": 1, "guessed": 1})
    blocks = [
        {"type": "tool_use", "id": f"t{at}", "name": name, "input": {}}
        for at, name in enumerate(("Bash", "mcp__x__pay", "AskUserQuestion", "Read", "WebFetch"))
    ]
    write_lines(
        place / "transcript.jsonl",
        {"type": "assistant", "message": {"content": blocks}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t4", "content": "No web.",
                                                  "is_error": True}]}},
        {"type": "result", "permission_denials": [{"tool_use_id": "t4"}]},
    )  # fmt: skip
    answers = [{"question": "Which?", "answer": ["a", "b"], "tier": "guessed"}]
    write_lines(
        place / "interceptions.jsonl",
        {"tool_use_id": "t0", "tool": "Bash", "decision": "deny", "handler": 0, "reason": "No pushes."},
        {"tool_use_id": "t1", "tool": "mcp__x__pay", "decision": "none", "handler": 1, "reason": None},
        {"tool_use_id": "t2", "tool": "AskUserQuestion", "decision": "answer", "tier": "guessed", "answers": answers},
        {"tool_use_id": "t3", "tool": "Read", "decision": "none", "handler": None},
        {"tool_use_id": "t9", "tool": "Edit", "decision": "deny", "handler": 0, "reason": "Of a subagent."},
    )
    found = collect_job(job.folder)
    assert [(c.tool, c.decision, c.tier, c.reason) for c in found.calls] == [
        ("Bash", "deny", None, "No pushes."),
        ("mcp__x__pay", "none", None, ""),
        ("AskUserQuestion", "answer", "guessed", "Which? → a, b"),
        ("WebFetch", "deny", None, "No web."),
        ("Edit", "deny", None, "Of a subagent."),
    ]
    assert (found.denied, found.guessed) == (2, 1)


def test_a_rewritten_call_shows_what_became_of_its_input(job: JobFolder) -> None:
    given = {"text": "hi", "to": {"name": "b", "kind": "x"}, "long": "y" * 500}
    updated = {"text": "[bot] hi", "to": {"name": "c", "kind": "x"}, "long": "z" * 500, "more": 1}
    place = job.trial(reward=1.0)
    block = {"type": "tool_use", "id": "t1", "name": "mcp__x__note", "input": given}
    write_lines(place / "transcript.jsonl", {"type": "assistant", "message": {"content": [block]}})
    write_lines(
        place / "interceptions.jsonl",
        {"tool_use_id": "t1", "tool": "mcp__x__note", "decision": "rewrite", "handler": 0, "reason": "Changed",
         "updated_input": updated},
    )  # fmt: skip
    (found,) = collect_job(job.folder).calls
    shown = found.reason.split("; ")
    assert [shown[0], shown[1], shown[3]] == ['text: "hi" → "[bot] hi"', 'to.name: "b" → "c"', "more: 1"]
    assert shown[2].startswith('long: "yyy') and len(shown[2]) < 500
    assert (found.input, found.input_as_run) == (given, updated)
    said = next(call for call in job_json(collect_job(job.folder))["calls"] if call["tool"] == "mcp__x__note")
    assert (said["input"], said["input_as_run"]) == (given, updated)


def test_an_input_of_any_depth_can_be_shown(job: JobFolder) -> None:
    deep = '{"a":' * 700 + "1" + "}" * 700
    place = job.trial(reward=1.0)
    block = f'{{"type": "tool_use", "id": "t1", "name": "mcp__x__note", "input": {deep}}}'
    (place / "transcript.jsonl").write_text(f'{{"type": "assistant", "message": {{"content": [{block}]}}}}\n')
    line = {"tool_use_id": "t1", "tool": "mcp__x__note", "decision": "rewrite", "handler": 0, "updated_input": {"b": 1}}
    write_lines(place / "interceptions.jsonl", line)
    said = job_json(collect_job(job.folder))["calls"]
    assert [(call["decision"], call["input_as_run"]) for call in said] == [("rewrite", {"b": 1})]
    assert '"…"' in json.dumps(said[0]["input"], ensure_ascii=False)


def test_what_a_reader_must_know_of_a_trial_is_a_warning(tmp_path: Path) -> None:
    job = JobFolder(tmp_path, not_enforced=("sandbox.network: none (the network is open here)",))
    place = job.trial(reward=1.0, warnings=["processes were ended"])
    write_lines(place / "transcript.jsonl", "noise")
    assert collect_job(tmp_path).warnings == (
        "sandbox.network: none (the network is open here)",
        "c1: processes were ended",
        "c1: 1 lines of the transcript cannot be read",
    )


def test_rules_that_are_not_enforced_are_listed(tmp_path: Path) -> None:
    handlers = [{"match": "pushes", "enforced": False}, {"match": "payments", "enforced": True}, {"match": "old"}]
    with_manifest(tmp_path, handlers=handlers).trial(reward=1.0)
    assert collect_job(tmp_path).not_enforced == ("pushes",)
