"""Writes the answers that a model gave in a job into the cases' answers.yaml, so that the next job needs no model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import Job, Trial, read_job, read_trials, trial_dir
from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.environments.plan import require_at_rest, require_same_eval
from harbor_tasks.errors import AuthorError, MachineError, Problem, Problems, Where, display_path
from harbor_tasks.evalspec.answers_file import answer_key, can_be_key, is_answer, own_answers, with_answers
from harbor_tasks.evalspec.dataset import ANSWERS, Case, list_cases, read_case
from harbor_tasks.evalspec.fields import folded, shown
from harbor_tasks.evalspec.load import Eval, load_eval
from harbor_tasks.evalspec.reader import load_yaml
from harbor_tasks.results.questions import WORDS, Answered, questions_of

INCOMPLETE = 1
"""Exit code: an answer that was to be frozen is not, since trials do not agree or the file cannot take it."""


@dataclass(frozen=True)
class Choice:
    """What the trials of a case answered to a question: one answer, or several that differ."""

    case: str
    question: str
    answers: tuple[str | list[str], ...]
    tier: str
    model: str | None
    attempts: tuple[int, ...]


@dataclass
class FreezeReport:
    """What was frozen, and what was not and why.

    ``there`` are answers that the file has already, ``kept`` are questions for which it has something else.
    """

    job: Path
    eval: Path
    dry_run: bool
    written: list[Choice] = field(default_factory=list)
    kept: list[Choice] = field(default_factory=list)
    there: list[Choice] = field(default_factory=list)
    differing: list[Choice] = field(default_factory=list)
    guessed: list[Choice] = field(default_factory=list)
    refused: list[Choice] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 when all answers that a model gave are in the files now."""
        return INCOMPLETE if self.differing or self.refused else 0

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        lists = {
            name: [asdict(choice) for choice in getattr(self, name)]
            for name in ("written", "there", "kept", "differing", "guessed", "refused")
        }
        return {
            "job": display_path(self.job), "eval": display_path(self.eval), "dry_run": self.dry_run, **lists,
            "files": [display_path(path) for path in self.files], "warnings": self.warnings,
            "exit_code": self.exit_code,
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """What a person reads."""
        verb = "would write" if self.dry_run else "wrote"
        for one in self.written:
            by = one.model if one.tier == "model" else WORDS[one.tier]
            yield f"case {one.case}: {verb} {_said(one)} ({by})"
        for one in self.kept:
            yield f"case {one.case}: kept what {ANSWERS} has for {shown(one.question)}, not {_answers(one)}"
        for one in self.guessed:
            yield f"case {one.case}: left out {_said(one)}, a guess; --guessed takes guesses"
        for one in self.differing:
            tries = ", ".join(map(str, one.attempts))
            yield (
                f"case {one.case}: took none of {_answers(one)} for {shown(one.question)} (attempts {tries}); choose "
                f"by --attempt N, or write it into {ANSWERS} yourself"
            )
        for one in self.refused:
            yield f"case {one.case}: {_said(one)} cannot be written into {ANSWERS} as it is; write it there yourself"
        count, files = len(self.written), len(self.files)
        more = f", {len(self.there)} there already" if self.there else ""
        more += " (dry run)" if self.dry_run else ""
        yield f"{count} answer{'s' * (count != 1)} in {files} file{'s' * (files != 1)}{more}"


def freeze(
    job: Path, eval_path: Path | None = None, *, attempt: int | None = None, guessed: bool = False,
    cases: Sequence[str] = (), dry_run: bool = False,
) -> FreezeReport:  # fmt: skip
    """Write what the model answered in a job into the cases of its eval; AuthorError when it cannot be known where.

    ``attempt``: only the answers of this one. ``guessed``: what nobody answered, too, as it was guessed.
    """
    record = read_job(job)
    require_at_rest(job)
    ev = _eval_of(record, job, eval_path)
    trials = _trials(record, job, attempt, cases)
    report = FreezeReport(job, ev.file, dry_run)
    by_case: dict[str, list[Answered]] = {}
    for trial in trials:
        if trial.error is not None and trial.error.kind in ("tampered", "record"):  # an unreadable one may be void too
            why = "the trial is void" if trial.error.kind == "tampered" else trial.error.message
            report.warnings.append(f"case {trial.case_id} (attempt {trial.attempt}): left out, {why}")
            continue
        log = json_lines(trial_dir(job, trial.id) / "interceptions.jsonl")
        by_case.setdefault(trial.case_id, []).extend(questions_of(trial, log))
    problems = Problems()
    folders = {path.name: path for path in list_cases(ev, problems)}
    new: list[tuple[Path, bytes, list[Choice]]] = []
    for case_id, answered in by_case.items():
        choices = list(_choices(case_id, answered, report, guessed=guessed))
        if not choices:
            continue
        if case_id not in folders:
            report.warnings.append(f"case {case_id}: the eval has no such case any more; its answers are left out")
            continue
        case = read_case(ev, folders[case_id], problems)
        if case is not None and not problems.errors:
            report.warnings += _changes(record, case)
            new += _for_case(case, choices, report, record)
    problems.raise_errors()
    report.warnings += [str(one) for one in problems.warnings if one.code == "file-name"]  # answers.yml is not read
    for path, content, chosen in new:
        if not dry_run:
            _replace(path, content)
        report.files.append(path)
        report.written += chosen
    return report


def _eval_of(job: Job, folder: Path, named: Path | None) -> Eval:
    if named is None and job.eval is None:
        raise AuthorError(
            f"{display_path(folder)}: this job ran built tasks, whose cases are not known; name the eval by --eval EVAL"
        )
    path = named if named is not None else Path(str(job.eval))
    if not path.exists():
        raise AuthorError(f"{display_path(path)}: the eval of this job is not there; name it by --eval EVAL")
    problems = Problems()
    ev = load_eval(path, problems)
    problems.raise_errors()
    assert ev is not None
    require_same_eval(job, ev.spec.name, folder)
    return ev


def _trials(job: Job, folder: Path, attempt: int | None, cases: Sequence[str]) -> list[Trial]:
    """The trials whose answers are asked for; AuthorError when the job has none such."""
    known = {one.case_id for one in job.expected}
    faults = [
        Problem(
            f"the job has no case {case!r}",
            Where(folder),
            f"it has {', '.join(sorted(known)[:10])}",
            code="no-such-case",
        )
        for case in cases
        if case not in known
    ]
    if attempt is not None and attempt not in {one.attempt for one in job.expected}:
        hint = f"it has {job.attempts} of each task"
        faults.append(Problem(f"the job has no attempt {attempt}", Where(folder), hint, code="no-such-attempt"))
    if faults:
        raise AuthorError(faults)
    return [
        trial
        for trial in read_trials(folder)
        if attempt in (None, trial.attempt) and (not cases or trial.case_id in cases)
    ]


def _choices(
    case: str, answered: Iterable[Answered], report: FreezeReport, *, guessed: bool
) -> Iterator[Choice]:  # fmt: skip
    """One answer a question; what cannot be taken goes into the report. A model's answer beats guesses."""
    groups: dict[str, list[Answered]] = {}
    for one in answered:
        if one.tier != "override":
            groups.setdefault(folded(one.question), []).append(one)
    for same in groups.values():
        modelled = [one for one in same if one.tier == "model"]
        found = modelled or same
        different = {answer_key(one.answer): one for one in reversed(found)}
        choice = Choice(
            case, found[0].question, tuple(one.answer for one in reversed(different.values())), found[0].tier,
            found[0].model if modelled else None, tuple(dict.fromkeys(one.attempt for one in found)),
        )  # fmt: skip
        if not modelled and not guessed:
            report.guessed.append(choice)
        elif len(different) > 1:
            report.differing.append(choice)
        else:
            yield choice


def _for_case(
    case: Case, choices: Iterable[Choice], report: FreezeReport, job: Job
) -> list[tuple[Path, bytes, list[Choice]]]:  # fmt: skip
    """The new content of the case's answers.yaml, if it gets one."""
    path = Path(os.path.realpath(case.directory / ANSWERS))  # a link within the case stays one
    content, data = b"", None
    if case.answers_file is not None:
        document = load_yaml(path, Problems(), texts=True)
        content, data = path.read_bytes(), None if document is None else document.data
    own, chosen = own_answers(data), list[Choice]()
    for choice in choices:
        if folded(choice.question) in own:
            same = is_answer(own[folded(choice.question)], choice.answers[0])
            (report.there if same else report.kept).append(choice)
        elif not can_be_key(choice.question):
            report.refused.append(choice)
        else:
            chosen.append(choice)
    comment = f"answers of a job, by harbor-pack freeze: {job.id}"
    made = with_answers(content, _answers_of(chosen), comment) if chosen else None
    if made is None and len(chosen) > 1:  # one that cannot be written must not keep the others from it
        fine = [one for one in chosen if with_answers(content, _answers_of([one]), comment) is not None]
        made = with_answers(content, _answers_of(fine), comment) if fine else None
        report.refused += [one for one in chosen if one not in fine]
        chosen = fine
    if made is None:
        report.refused += chosen
        return []
    return [(path, made, chosen)]


def _answers_of(chosen: Iterable[Choice]) -> Mapping[str, str | list[str]]:
    return {one.question: one.answers[0] for one in chosen}


def _changes(job: Job, case: Case) -> Iterator[str]:
    """Is the case still what the agent worked on? Told by what the job's task holds of it."""
    task = next((one.task for one in job.expected if one.case_id == case.id), "")
    built = Path(job.source) / task / "environment"
    if not (built / "input.yaml").is_file():
        yield f"case {case.id}: the task that ran is gone, so it is not known whether the case has changed since"
        return
    changed = _text(built / "input.yaml") != _text(case.input_file)
    given = [file for file in case.files if not file.is_dir]
    changed = changed or any(_text(built / "files" / file.path) != _text(file.source) for file in given)
    if changed:
        yield f"case {case.id} has changed since this job: its answers may be to questions that it no longer has"


def _text(path: Path) -> bytes | None:
    """A file's content, line ends and byte order mark aside."""
    try:
        return path.read_bytes().removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    except OSError:
        return None


def _replace(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it into place; its mode stays."""
    beside = None
    try:
        mode = path.stat().st_mode & 0o7777 if path.exists() else 0o644
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        beside = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        beside.chmod(mode)
        beside.replace(path)
    except OSError as error:
        if beside is not None:
            with suppress(OSError):
                beside.unlink()
        raise MachineError(f"{display_path(path)}: cannot be written ({error.strerror})") from None


def _said(choice: Choice) -> str:
    return f"{shown(choice.question)} → {_shown(choice.answers[0])}"


def _answers(choice: Choice) -> str:
    return " or ".join(map(_shown, choice.answers))


def _shown(answer: str | list[str]) -> str:
    """An answer as a message shows it; of a list one sees which labels it has."""
    return f"[{', '.join(map(shown, answer))}]" if isinstance(answer, list) else shown(answer)
