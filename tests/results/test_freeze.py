"""What is frozen of a job's answers and what is not, by the job's files and the eval's, without running anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.lock import job_lock
from harbor_tasks.errors import AuthorError
from harbor_tasks.results.freeze import FreezeReport, freeze

from .kit import JobFolder, error
from .test_questions import answered, figures, log, one

Freeze = Callable[..., FreezeReport]


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """The cases of an eval: one, named as the kit names those of its jobs."""
    (tmp_path / "eval" / ".git").mkdir(parents=True)
    (tmp_path / "eval" / "eval.yaml").write_text("name: demo\ndataset: {path: cases}\nexecution: {prompt: x}\n")
    add(tmp_path / "eval" / "cases" / "case c1")
    return tmp_path / "eval" / "cases"


def add(case: Path) -> Path:
    case.mkdir(parents=True)
    (case / "input.yaml").write_text("prompt: x\n")
    return case


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    (tmp_path / "job").mkdir()
    return JobFolder(tmp_path / "job", eval=str(tmp_path / "eval"), attempts=2)


def said(answer: Any, question: str = "Q?", tier: str = "model") -> dict[str, Any]:
    return answered(one(question, answer, tier), model=figures())


def answers(cases: Path, name: str = "case c1") -> str:
    path = cases / name / "answers.yaml"
    return path.read_text() if path.exists() else ""


def test_answers_that_differ_only_in_case_and_space_are_one(cases: Path, job: JobFolder) -> None:
    log(job, "c1", said("Yes, now"), said("yes,  NOW", " q? "))
    log(job, "c1", said("Yes, now"), attempt=2)
    report = freeze(job.folder)
    assert [(found.answers, found.attempts) for found in report.written] == [(("Yes, now",), (1, 2))]
    assert answers(cases).endswith('"Q?": "Yes, now"\n')
    assert answers(cases).startswith("# answers of a job, by harbor-pack freeze: job-1\n")
    assert "the task that ran is gone" in report.warnings[0]
    again = freeze(job.folder)
    assert ([found.question for found in again.there], again.kept, again.written) == (["Q?"], [], [])
    assert list(again.lines()) == ["0 answers in 0 files, 1 there already"]


def test_a_models_answer_beats_a_guess_and_an_override_is_nothing_new(cases: Path, job: JobFolder) -> None:
    log(job, "c1", said("a", tier="guessed"), said("b"), said("c", "Own?", "override"))
    report = freeze(job.folder, guessed=True)
    assert [(found.question, found.answers, found.tier) for found in report.written] == [("Q?", ("b",), "model")]
    assert "Own?" not in answers(cases)


@pytest.mark.parametrize(
    ("own", "answer", "same"),
    [
        ("[Red, Blue]", "Red, Blue", True),
        ("[blue, RED]", "Red, Blue", True),
        ("[Red]", "Red", True),
        ("[Red, Green]", "Red, Blue", False),
        ("Red,  blue", "Red, Blue", True),
        ("RED", "Red", True),
        ("Red, Blue", ["Red", "Blue"], True),
        ('[B, "A, x"]', ["A, x", "B"], True),
        ("A, x, B", ["A, x", "B"], False),
        ('[A, "x, B"]', ["A, x", "B"], False),
        ("[A, x, B]", ["A, x", "B"], False),
        ('"A, x"', ["A, x"], True),
        ("[[Red], Blue]", "Red, Blue", False),
        ("{Red: Blue}", "Red, Blue", False),
    ],
)
def test_a_list_is_the_answer_that_has_its_labels(
    cases: Path, job: JobFolder, own: str, answer: Any, same: bool
) -> None:
    (cases / "case c1" / "answers.yaml").write_text(f"Q?: {own}\n")
    log(job, "c1", said(answer))
    report = freeze(job.folder)
    assert (len(report.there), len(report.kept)) == ((1, 0) if same else (0, 1))


def test_answers_of_several_labels_are_one_when_the_labels_are(cases: Path, job: JobFolder) -> None:
    log(job, "c1", said(["A, b", "C"], "Lists?"), said(["x", "y"], "Joined?"), said(["A, b", "C"], "Apart?"))
    more = said(["C", "a,  B"], "Lists?"), said("x, y", "Joined?"), said(["A", "b, C"], "Apart?")
    log(job, "c1", *more, attempt=2)
    report = freeze(job.folder)
    assert [(one.question, one.answers) for one in report.written] == [
        ("Lists?", (["A, b", "C"],)), ("Joined?", (["x", "y"],))
    ]  # fmt: skip
    assert [one.answers for one in report.differing] == [(["A, b", "C"], ["A", "b, C"])]
    lines = "\n".join(report.lines())
    assert "took none of ['A, b', 'C'] or ['A', 'b, C'] for 'Apart?' (attempts 1, 2)" in lines
    assert "wrote 'Lists?' → ['A, b', 'C']" in lines
    assert len(freeze(job.folder).there) == 2


def test_one_trial_that_does_not_agree_with_itself_gives_no_answer(cases: Path, job: JobFolder) -> None:
    log(job, "c1", said("a"), said("b"))
    report = freeze(job.folder, attempt=1)
    assert ([found.answers for found in report.differing], report.exit_code) == ([("a", "b")], 1)
    assert answers(cases) == ""


@pytest.mark.parametrize(
    "own", ["Q?: mine\n", "q?: ''\n", "' Q? ':\n", "case_overrides: {Q?: [x]}\n", "Q?: {not: an answer}\n"]
)
def test_what_the_author_has_for_a_question_stays_whatever_it_is(cases: Path, job: JobFolder, own: str) -> None:
    (cases / "case c1" / "answers.yaml").write_text(own)
    log(job, "c1", said("a"))
    report = freeze(job.folder)
    assert ([found.question for found in report.kept], report.written, report.exit_code) == (["Q?"], [], 0)
    assert answers(cases) == own
    assert "kept what answers.yaml has for 'Q?', not 'a'" in "\n".join(report.lines())


def test_what_the_file_cannot_take_is_said_and_keeps_nothing_else_out(cases: Path, job: JobFolder) -> None:
    log(job, "c1", said("a", "case_overrides"), said("\ud800", "Half?"), said("b"))
    report = freeze(job.folder)
    assert [found.question for found in report.refused] == ["case_overrides", "Half?"]
    assert ([found.question for found in report.written], report.exit_code) == (["Q?"], 1)
    assert answers(cases).endswith('freeze: job-1\n"Q?": "b"\n')
    "\n".join(report.lines()).encode("utf-8", "backslashreplace")


def test_a_link_within_the_case_stays_one_and_one_that_leaves_it_is_an_error(cases: Path, job: JobFolder) -> None:
    log(job, "c1", said("a"))
    case = cases / "case c1"
    (case / "shared.yaml").write_text("A?: b\n")
    (case / "answers.yaml").symlink_to("shared.yaml")
    freeze(job.folder)
    assert (case / "answers.yaml").is_symlink()
    assert (case / "shared.yaml").read_text().endswith('"Q?": "a"\n')
    (case / "answers.yaml").unlink()
    outside = cases.parent / "outside.yaml"
    outside.write_text("A?: b\n")
    (case / "answers.yaml").symlink_to(outside)
    with pytest.raises(AuthorError, match="link that leaves the case"):
        freeze(job.folder)
    assert outside.read_text() == "A?: b\n"


def test_the_mode_of_a_file_stays_and_nothing_else_is_left_in_the_case(cases: Path, job: JobFolder) -> None:
    path = cases / "case c1" / "answers.yaml"
    path.write_text("A?: b\n")
    path.chmod(0o640)
    log(job, "c1", said("a"))
    before = set(path.parent.iterdir())
    freeze(job.folder)
    assert path.stat().st_mode & 0o7777 == 0o640
    assert set(path.parent.iterdir()) == before


def test_a_file_with_a_fault_is_an_error_and_no_case_is_written(cases: Path, job: JobFolder) -> None:
    add(cases / "case c2")
    (cases / "case c2" / "answers.yaml").write_text("A?: x\nA?: y\n")
    log(job, "c1", said("a"))
    log(job, "c2", said("a"))
    with pytest.raises(AuthorError, match=r"answers\.yaml:2"):
        freeze(job.folder)
    assert answers(cases) == ""


def test_void_trials_and_cases_that_are_gone_are_left_out_and_said(cases: Path, job: JobFolder) -> None:
    log(job, "c1", said("a"), status="error", reward=None, error=error("tampered"))
    log(job, "c9", said("a"))
    (cases / "case c1" / "answers.yml").write_text("Q?: x\n")
    log(job, "c1", said("b"), attempt=2)
    report = freeze(job.folder)
    assert [found.answers for found in report.written] == [("b",)]
    words = "\n".join(report.warnings)
    for text in ("case case c1 (attempt 1): left out, the trial is void", "no such case any more", "answers.yml"):
        assert text in words


def test_a_trial_whose_file_cannot_be_read_is_left_out_for_it_may_be_void(cases: Path, job: JobFolder) -> None:
    log(job, "c1", said("a"))
    path = job.folder / "trials" / job.expected[0].trial / "trial.json"
    path.write_text("{")
    report = freeze(job.folder)
    assert (report.written, answers(cases)) == ([], "")
    assert f"case case c1 (attempt 1): left out, {path} cannot be read (" in report.warnings[0]


def test_a_job_that_runs_or_whose_eval_is_gone_is_refused(cases: Path, job: JobFolder) -> None:
    log(job, "c1", said("a"))
    with job_lock(job.folder), pytest.raises(AuthorError, match="is running"):
        freeze(job.folder)
    cases.parent.rename(cases.parent.with_name("moved"))
    with pytest.raises(AuthorError, match="not there; name it by --eval"):
        freeze(job.folder)
    assert freeze(job.folder, cases.parent.with_name("moved")).written
    with pytest.raises(AuthorError, match="not the folder of a job"):
        freeze(cases)
