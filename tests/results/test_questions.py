"""The table of questions and the totals of cost, as a job's folder tells them, hostile lines included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.questions import question_table
from harbor_tasks.results.report import job_json, job_tables, report_html

from .kit import JobFolder, judge, write_lines
from .test_report import Page

HAIKU = "claude-haiku-4-5-20251001"


def answered(*answers: dict[str, Any], model: Any = None, **more: Any) -> dict[str, Any]:
    found = {"tool_use_id": "t", "tool": "AskUserQuestion", "decision": "answer", "answers": list(answers), **more}
    return found if model is None else {**found, "model": model}


def one(question: str, answer: Any, tier: Any = "model", **more: Any) -> dict[str, Any]:
    return {"question": question, "answer": answer, "tier": tier, "free_text": False, **more}


def figures(given: Any = 100, written: Any = 20, ms: Any = 500.0, model: Any = HAIKU) -> dict[str, Any]:
    return {"model": model, "input_tokens": given, "output_tokens": written, "ms": ms}


def log(folder: JobFolder, task: str, *lines: Any, **trial: Any) -> None:
    write_lines(folder.trial(task, **{"reward": 1.0, **trial}) / "interceptions.jsonl", *lines)


def shown(folder: JobFolder, width: int = 100) -> str:
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as found:
        for part in job_tables(collect_job(folder.folder)):
            console.print(part)
    return found.get()


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path, attempts=2)


def test_equal_questions_are_one_row_and_the_tokens_of_a_request_are_shared_out(job: JobFolder) -> None:
    both = (one("Where?", "Here"), one("Which ones?", ["a", "b, c"]), one("Own?", "x", "override"))
    log(job, "c1", answered(*both, model=figures()), answered(one(" where? ", "here"), model=figures(10, 2, 100)))
    log(job, "c2", answered(one("Where?", "There", "guessed"), model=figures(None, None, 90)), attempt=2)
    summary = collect_job(job.folder)
    rows = [
        (r.question, r.answer, r.tier, r.model, r.count, r.tokens, r.mean_ms) for r in question_table(summary.questions)
    ]
    assert rows == [
        ("Where?", "Here", "model", HAIKU, 2, 72, 300), ("Which ones?", "a, b, c", "model", HAIKU, 1, 60, 500),
        ("Own?", "x", "override", None, 1, None, None), ("Where?", "There", "guessed", HAIKU, 1, None, 90),
    ]  # fmt: skip
    data = job_json(summary)
    assert data["answers"] == {"overridden": 1, "modelled": 3, "guessed": 1}
    assert data["questions"][1]["answer"] == ["a", "b, c"]
    assert (data["questions"][4]["task"], data["questions"][4]["attempt"]) == ("c2", 2)
    text = shown(job)
    assert "questions (5)" in text
    for word in ("overridden", "modelled", "guessed", "Which ones?", HAIKU):
        assert word in text


def test_lines_that_an_agent_may_have_written_break_nothing(job: JobFolder) -> None:
    nothing: list[Any] = [5, None, {}, one("Q?", 5), one("Q?", [5]), one("Q?", []), {**one("Q?", "x"), "question": 5}]
    odd: list[Any] = [
        answered(), answered(*nothing), answered(one("Q?", "x", "god")),
        answered(one("Q?", "x"), model="m"), answered(one("Q?", "x"), model={"model": ["m"]}),
        answered(one("Q?", "x"), model=figures("9", True, -1, "m")), answered(one("Q?", "x"), decision="deny"),
        answered(one("Q?", "x"), model=figures(1 << 60, 1e300, 1e300, "m")), {"decision": "answer", "answers": "all"},
        answered(one("Q?", "x", ["model"])),
    ]  # fmt: skip
    log(job, "c1", *odd)
    summary = collect_job(job.folder)
    assert [(found.question, found.input_tokens, found.ms) for found in summary.questions] == [("Q?", None, None)] * 4
    assert summary.costs.total.nothing
    shown(job)
    Page(report_html(summary))


def test_texts_of_a_model_drive_no_terminal_and_no_page(job: JobFolder) -> None:
    evil = "\x1b[2J\x07<script>alert(1)</script>\u202e[red]x"
    log(job, "c1", answered(one(evil, evil), model=figures(model=f"m{evil}")))
    summary = collect_job(job.folder)
    page = report_html(summary)
    for text in (shown(job), page, json.dumps(job_json(summary), ensure_ascii=False)):
        assert not set("\x1b\x07\u202e") & set(text)
    assert "<script>" not in page
    Page(page)


def test_the_totals_are_apart_in_every_report(job: JobFolder) -> None:
    asked = judge(
        "quality", 1.0, model="claude-sonnet-4-5", usage={"input_tokens": 2000, "output_tokens": 100}, samples=[1]
    )
    log(job, "c1", answered(one("Q?", "x"), model=figures(1000, 100)), judges=[asked], cost_usd=0.25,
        tokens={"claude-opus-4-5": {"input_tokens": 9, "cache_read_input_tokens": 12345}})  # fmt: skip
    log(job, "c2", answered(one("Q?", "x"), model=figures(5, 5, 5, "house-1")), judges=[])
    cost = job_json(collect_job(job.folder))["cost"]
    assert {who: cost[who]["usd"] for who in ("agent", "hook", "judges")} == {
        "agent": 0.25, "hook": pytest.approx(0.0015), "judges": pytest.approx(0.0075),
    }  # fmt: skip
    assert cost["usd"] == pytest.approx(0.259)
    assert (cost["hook"]["unpriced"], cost["agent"]["tokens"]["cache_read_input_tokens"]) == (["house-1"], 12345)
    words = " ".join(shown(job, 120).split())
    for row in ("agent 0.2500 9 - - 12,345", "hook 0.0015 1,005 105 - - no price is known for house-1",
                "judges 0.0075 2,000 100", "all 0.2590"):  # fmt: skip
        assert row in words, row
    page = Page(report_html(collect_job(job.folder)))
    for row in ("agent 0.2500 9 - - 12,345", "judges 0.0075 2,000 100", "no price is known for house-1"):
        assert row in " ".join(page.text.split()), row
    assert len(page.named("table")) == len(page.named("caption"))
    assert all(attrs.get("scope") in ("col", "row") for attrs in page.named("th"))


def test_a_job_that_cost_nothing_says_nothing_of_cost(job: JobFolder) -> None:
    log(job, "c1", cost_usd=0.0)
    assert "cost" not in shown(job)
    assert 'id="cost"' not in report_html(collect_job(job.folder))


def test_what_a_script_made_is_not_called_paid(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, scripted=True)
    log(folder, "c1", cost_usd=0.5)
    assert "not paid" in shown(folder)
    assert "not paid" in report_html(collect_job(tmp_path))


def test_a_partial_job_is_one_fault_and_names_no_trial_that_was_not_to_start(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, status="partial", errors=["the job is partial: …"], max_cost_usd=1.0, earlier_usd=0.5)
    folder.trial("c1", reward=1.0)
    folder.trial("c2", recorded=False)
    folder.trial("c3", started="2026-01-01T00:00:00Z", status="pending")
    summary = collect_job(tmp_path)
    assert summary.faults == ("c3: vanished, the job expected it and it left nothing", "the job is partial: …")
    assert (summary.exit_code, summary.partial) == (1, True)
    assert "earlier runs" in shown(folder)
    assert "0.5000 USD of it for trials that were run again" in report_html(summary)
