"""Shows a job: tables for a terminal, plain data for programs, one HTML file for people.

All texts of a job come from models, tools and files of others: what would drive a terminal is made visible first.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harbor_tasks.environments.base import JudgeResult, Trial
from harbor_tasks.environments.costs import Spent
from harbor_tasks.errors import printable
from harbor_tasks.pricing import CACHE_READ, CACHE_WRITE, INPUT, OUTPUT
from harbor_tasks.resources import resource
from harbor_tasks.results.collect import (
    Costs,
    Intercepted,
    JobSummary,
    collect_job,
    missing_steps,
    outcome,
    trial_label,
)
from harbor_tasks.results.questions import WORDS, question_table
from harbor_tasks.results.thresholds import JudgeSummary, judges_of

MAX_CALLS = 200
"""Rows of the table of calls in a terminal; `--json` and the page have all."""
HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_KINDS = {INPUT: "input", OUTPUT: "output", CACHE_WRITE: "cache write", CACHE_READ: "cache read"}
"""Columns of tokens."""
LIMITS = {"min_mean": "mean ≥", "min_pass_rate": "passed ≥", "max_error_rate": "errors ≤"}
STYLES = {
    "scored": "green", "unjudged": "yellow", "pending": "yellow", "interrupted": "yellow", "error": "red",
    "vanished": "red", "deny": "red", "ask": "red", "answer": "cyan", "rewrite": "magenta", "allow": "green",
}  # fmt: skip


def job_tables(summary: JobSummary) -> list[RenderableType]:
    """The trials, the intercepted calls and what they add up to, readable at 80 columns."""
    shown: list[RenderableType] = [_trial_table(summary)]
    if len(summary.judges) > 0:
        shown.append(_judge_table(summary))
    if summary.questions:
        shown.append(_question_table(summary))
    if not summary.costs.total.nothing:
        shown.append(_cost_table(summary))
    if summary.calls:
        shown.append(_call_table(summary))
        if len(summary.calls) > MAX_CALLS:
            shown.append(_text(f"… and {len(summary.calls) - MAX_CALLS} more calls; --json shows all"))
    shown += [_text(f"warning: {line}", "yellow") for line in summary.warnings]
    shown += [_text(f"fault: {line}", "red") for line in summary.faults]
    shown += [_text(line) for line in summary_lines(summary)]
    return shown


def summary_lines(summary: JobSummary) -> Iterator[str]:
    """What the job comes to, in words."""
    part = " (partial: only these count)" if summary.partial else ""
    mean = f", mean reward {_score(summary.mean_reward)}{part}" if summary.mean_reward is not None else ""
    yield f"{summary.scored} of {_plural(summary.expected, 'trial')} scored{mean}"
    total = sum(trial.calls.total for trial in summary.trials)
    counts = [_plural(total, "call"), f"{summary.denied} denied"]
    counts.append(
        f"{sum(trial.calls.answered for trial in summary.trials)} answered, {summary.guessed} of them guessed"
    )
    yield ", ".join(counts)
    if summary.not_enforced:
        yield f"{_plural(len(summary.not_enforced), 'rule')} not enforced: " + "; ".join(
            map(_one_line, summary.not_enforced)
        )
    if not summary.job.sealed:
        yield "not sealed: the policy was within the agent's reach"


def job_json(summary: JobSummary) -> dict[str, Any]:
    """The same facts as plain data, for `--json`; control characters in texts are spelled out, as in ``\\x1b``."""
    job = summary.job
    data = {
        "job": job.id, "name": job.name, "folder": str(summary.folder), "source": job.source, "agent": job.agent,
        "scripted": job.scripted, "server": job.server,
        "environment": job.environment, "sealed": job.sealed, "created": job.created, "status": job.status,
        "exit_code": summary.exit_code, "faults": list(summary.faults), "warnings": list(summary.warnings),
        "expected": summary.expected, "scored": summary.scored, "mean_reward": summary.mean_reward,
        "partial": summary.partial, "denied": summary.denied, "guessed": summary.guessed,
        "not_enforced": list(summary.not_enforced),
        "tasks": [
            {
                "task": task.task, "case_id": task.case_id, "mean_reward": task.mean_reward,
                "trials": [
                    trial.model_dump(mode="json") | {"missing_steps": list(missing_steps(trial))}
                    for trial in task.trials
                ],
            }
            for task in summary.tasks
        ],
        "judges": [dataclasses.asdict(judge) for judge in summary.judges],
        "thresholds": [threshold.as_json() for threshold in summary.thresholds],
        "calls": [dataclasses.asdict(call) for call in summary.calls],
        "questions": [dataclasses.asdict(question) for question in summary.questions],
        "answers": {WORDS[tier]: sum(one.tier == tier for one in summary.questions) for tier in WORDS},
        "cost": {
            **{who: spent.as_json() for who, spent in spenders(summary.costs)}, "usd": summary.costs.total.usd,
            "earlier_usd": summary.costs.earlier_usd, "max_usd": job.max_cost_usd,
        },
    }  # fmt: skip
    clean: dict[str, Any] = _clean(data)
    return clean


def report_html(summary: JobSummary) -> str:
    """The same facts as one self-contained HTML page: no script, nothing loaded from elsewhere."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(score=_score, rate=_rate, seconds=_seconds, usd=_usd, number=_number)
    environment.globals.update(
        question_table=question_table,
        spenders=spenders,
        words=WORDS,
        unpriced=_unpriced,
        kinds=_KINDS,
        counts=lambda spent: dict(spent.tokens),
        judges_of=judges_of,
        judge_value=_judge_value,
        missing_steps=missing_steps,
        outcome=outcome,
        label=trial_label,
    )
    template = environment.from_string(resource("templates", "report.html.j2").read_text(encoding="utf-8"))
    page = template.render(summary=summary, job=summary.job, lines=list(summary_lines(summary)))
    return _spelled_out(page)


def write_html(job: Path, output: Path | None = None) -> Path:
    """Write the page beside the job's files, or to ``output``, a file or a folder; returns its path.

    AuthorError when there is no job.
    """
    page = report_html(collect_job(job))
    path = output or job
    if path.is_dir():
        path /= "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(page, encoding="utf-8", newline="\n")
    beside.replace(path)
    return path


# ---- tables ----


def _table(title: str, *columns: tuple[str, dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_style="bold")
    for header, options in columns:
        table.add_column(header, **{"overflow": "fold", **options})
    return table


def _trial_table(summary: JobSummary) -> Table:
    several = summary.job.attempts > 1 or any(trial.attempt > 1 for trial in summary.trials)
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    attempt = [("try", right)] if several else []
    columns = [("status", {"no_wrap": True}), ("reward", right), ("judges", {}), ("calls", {}), ("s", right)]
    job = summary.job
    title = f"trials of {_one_line(job.name)}: {_one_line(job.who)}, {_one_line(job.environment)}"
    table = _table(printable(title), ("task", {}), *attempt, *columns)
    for trial in summary.trials:
        cells = [_text(trial.task), *([_text(str(trial.attempt))] if several else [])]
        status = trial.status if trial.error is None else f"{trial.status}: {trial.error.kind}"
        cells += [_text(status, STYLES.get(trial.status, "")), _text(_score(trial.reward)), _judge_cell(trial)]
        cells += [_text(_call_counts(trial)), _text(_seconds(trial.duration_s))]
        table.add_row(*cells)
    return table


def _judge_cell(trial: Trial) -> Text:
    """`5/6` that passed or gave a score, then those that did not, by name; skipped ones do not count."""
    found = [judge for judge in judges_of(trial).values() if judge.status != "skipped"]
    bad = [judge for judge in found if judge.status != "ok" or judge.passed is False]
    cell = _text(f"{len(found) - len(bad)}/{len(found)}" if found else "-")
    for judge in bad:
        word = "failed" if judge.status == "ok" else judge.status
        cell.append_text(_text(f"\n{judge.name}: {word}", "yellow" if word == "pending" else "red"))
    return cell


def _call_counts(trial: Trial) -> str:
    calls = trial.calls
    kinds = (
        ("denied", calls.denied),
        ("answered", calls.answered),
        ("guessed", calls.guessed),
        ("rewritten", calls.rewritten),
    )
    return "\n".join([str(calls.total), *(f"{count} {word}" for word, count in kinds if count)])


def _judge_table(summary: JobSummary) -> Table:
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    columns = [(name, right) for name in ("mean", "passed", "reported", "skipped", "pending", "errors")]
    table = _table("judges", ("judge", {}), *columns, ("thresholds", {}))
    for judge in summary.judges:
        numbers = (_score(judge.mean), _rate(judge.pass_rate), f"{judge.reported}/{judge.trials}")
        pending = _text(str(judge.pending), STYLES["pending"] if judge.pending else "")
        counts = (*map(_text, (*numbers, str(judge.skipped))), pending, _text(str(judge.errors)))
        table.add_row(_text(judge.name), *counts, _limits(summary, judge))
    return table


def _limits(summary: JobSummary, judge: JudgeSummary) -> Text:
    cell = Text()
    for limit in (t for t in summary.thresholds if t.judge == judge.name):
        style = {"met": "green", "missed": "red"}.get(limit.word, "yellow")
        line = _text(f"{LIMITS[limit.limit]} {limit.wanted:g}: {limit.word}", style)
        cell = cell.append("\n") if cell else cell
        cell.append_text(line)
    return cell


def _question_table(summary: JobSummary) -> Table:
    """Each question with what was said to it and by whom; equal ones are one row."""
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    rows = question_table(summary.questions)
    table = _table(
        f"questions ({len(summary.questions)})", ("question", {"ratio": 3}), ("answer", {"ratio": 2}), ("by", {}),
        ("times", right), ("tokens", right), ("ms", right),
    )  # fmt: skip
    for row in rows[:MAX_CALLS]:
        style = "yellow" if row.tier == "guessed" else ""
        by = _text(WORDS[row.tier], style)
        if row.model is not None:
            by.append_text(_text(f"\n{_shorten(row.model, 60)}"))
        cells = (str(row.count), _number(row.tokens), "-" if row.mean_ms is None else f"{row.mean_ms:.0f}")
        table.add_row(_text(_shorten(row.question)), _text(_shorten(row.answer)), by, *map(_text, cells))
    if len(rows) > MAX_CALLS:
        table.caption = f"and {len(rows) - MAX_CALLS} more; --json shows all"
    return table


def _cost_table(summary: JobSummary) -> Table:
    """What the agent, the hook's answers and the judges cost: USD where prices are known, else tokens only."""
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    paid = " (a script stood in for the agent's model: not paid)" if summary.job.scripted else ""
    table = _table(f"cost{paid}", ("of", {}), ("USD", right), *((kind, right) for kind in _KINDS.values()), ("", {}))
    costs = summary.costs
    rows = [*spenders(costs), *([("earlier runs", Spent(costs.earlier_usd))] if costs.earlier_usd else [])]
    for who, spent in (*rows, ("all", costs.total)):
        tokens = dict(spent.tokens)
        counts = [_number(tokens.get(kind)) for kind in _KINDS]
        table.add_row(_text(who), _text(_usd(spent.usd)), *map(_text, counts), _text(_unpriced(spent), "yellow"))
    return table


def spenders(costs: Costs) -> tuple[tuple[str, Spent], ...]:
    """Who spent what, apart."""
    return ("agent", costs.agent), ("hook", costs.hook), ("judges", costs.judges)


def _call_table(summary: JobSummary) -> Table:
    """The calls of each trial under its name; equal ones in a row are one line."""
    table = _table(
        f"intercepted calls ({len(summary.calls)})", ("call", {}), ("decision", {}), ("reason", {"ratio": 1})
    )
    shown = summary.calls[:MAX_CALLS]
    for (task, attempt), calls in groupby(shown, key=lambda call: (call.task, call.attempt)):
        several = f" (attempt {attempt})" if summary.job.attempts > 1 else ""
        table.add_row(_text(f"{task}{several}", "bold"))
        for call, same in groupby(calls, key=lambda call: replace(call, trial="")):
            count = len(list(same))
            times = f" x{count}" if count > 1 else ""
            table.add_row(_text(f"  {call.tool}{times}"), _decision(call), _text(_shorten(call.reason)))
    return table


def _decision(call: Intercepted) -> Text:
    word = "passed" if call.decision == "none" else call.decision
    return _text(f"{word}, {call.tier}" if call.tier else word, STYLES.get(call.decision, ""))


# ---- words ----


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shorten(text: str, limit: int = 240) -> str:
    line = _one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _usd(value: float | None) -> str:
    return "-" if value is None else "<0.0001" if 0 < value < 0.0001 else f"{value:.4f}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _unpriced(spent: Spent) -> str:
    return f"no price is known for {', '.join(map(_one_line, spent.unpriced))}" if spent.unpriced else ""


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _judge_value(judge: JudgeResult) -> str:
    if judge.status != "ok":
        return str(judge.status)
    if judge.passed is not None:
        return "passed" if judge.passed else "failed"
    return f"{judge.value:g}" if isinstance(judge.value, int | float) else str(judge.value)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _spelled_out(text: str) -> str:
    """The text with control characters, text direction overrides and lone surrogates as escapes; the rest is data."""
    return HOSTILE.sub(lambda found: found.group().encode("unicode_escape", "surrogatepass").decode("ascii"), text)


def _clean(value: Any) -> Any:
    """The data with every text made safe for a terminal."""
    if isinstance(value, str):
        return _spelled_out(value)
    if isinstance(value, dict):
        return {_spelled_out(str(key)): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value
