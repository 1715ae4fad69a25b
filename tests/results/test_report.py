"""Reports: what stands in them, and that what a job holds cannot drive a terminal or a browser."""

from __future__ import annotations

import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harbor_tasks.errors import AuthorError
from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.report import job_json, job_tables, report_html, write_html

from .kit import JobFolder, error, judge, write_lines

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe <script>alert(1)</script> & [red]x[/red]"


def shown(job: JobFolder, width: int = 80) -> str:
    """The tables as they are printed on a terminal of this width."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, force_terminal=False)
    for part in job_tables(collect_job(job.folder)):
        console.print(part)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    """A job with a scored trial, a failed one, an unjudged one, calls, thresholds."""
    (tmp_path / "job").mkdir()
    manifest = {
        "judges": [{"name": "made"}, {"name": "quality"}],
        "thresholds": {"made": {"min_pass_rate": 1.0}},
        "handlers": [{"match": "Pushes of\nany kind", "enforced": False}],
    }
    folder = JobFolder(tmp_path / "job", manifest=manifest, attempts=2, sealed=False)
    calls = {"total": 7, "denied": 2, "answered": 1, "guessed": 1, "rewritten": 0}
    said = [judge("made", True, reason="all there"), judge("quality", 0.5, normalized=0.5)]
    place = folder.trial("late-parcel", reward=0.5, judges=said, calls=calls, duration_s=12.34, cost_usd=0.5)
    folder.trial(
        "late-parcel", attempt=2, status="error", error=error("agent", "exit code 3"), judges=[judge("made", False)]
    )
    folder.trial("sofa", status="unjudged", unjudged=["quality"], judges=[judge("quality", status="pending")])
    blocks = [{"type": "tool_use", "id": f"t{at}", "name": "mcp__desk__refund", "input": {}} for at in range(3)]
    write_lines(place / "transcript.jsonl", {"type": "assistant", "message": {"content": blocks}})
    deny = {"tool": "mcp__desk__refund", "decision": "deny", "handler": 0, "reason": "Too much."}
    lines = [
        {**deny, "tool_use_id": "t0"},
        {**deny, "tool_use_id": "t1"},
        {**deny, "tool_use_id": "t2", "decision": "none"},
    ]
    write_lines(place / "interceptions.jsonl", *lines)
    return folder


def test_the_tables_show_trials_judges_calls_and_what_they_come_to(job: JobFolder) -> None:
    text = shown(job)
    for wanted in (
        "late-parcel", "error: agent", "made: failed", "2 denied", "1 guessed", "12.3",
        "mcp__desk__refund x2", "Too much.", "passed ≥ 1: missed", "1 of 3 trials scored, mean reward 0.50 (partial",
        "quality: pending", "fault: late-parcel (attempt 2): agent error: exit code 3",
        "1 rule not enforced: Pushes of any kind",
        "fault: sofa: unjudged, no verdict of quality", "not sealed",
    ):  # fmt: skip
        assert wanted in text, wanted


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_column_is_lost(job: JobFolder, width: int) -> None:
    text = shown(job, width)
    assert max(map(len, text.splitlines())) <= width
    for header in (
        "task",
        "try",
        "status",
        "reward",
        "judges",
        "calls",
        "judge",
        "mean",
        "pending",
        "errors",
        "decision",
        "reason",
    ):
        assert header in text


def test_a_job_of_one_attempt_does_not_number_them(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    folder.trial(reward=1.0)
    assert "try" not in shown(folder)
    assert "1 of 1 trial scored, mean reward 1.00\n" in shown(folder)


def test_many_calls_are_cut_on_a_terminal_and_whole_in_json(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    place = folder.trial(reward=1.0)
    lines = [{"tool_use_id": f"t{n}", "tool": f"tool-{n}", "decision": "deny", "reason": "no"} for n in range(300)]
    write_lines(place / "interceptions.jsonl", *lines)
    assert "and 100 more calls" in shown(folder)
    assert len(job_json(collect_job(tmp_path))["calls"]) == 300


def test_json_holds_the_same_facts(job: JobFolder) -> None:
    data = job_json(collect_job(job.folder))
    again = json.loads(json.dumps(data))
    assert again == data
    assert (data["expected"], data["scored"], data["partial"], data["mean_reward"]) == (3, 1, True, 0.5)
    assert (data["exit_code"], data["denied"], data["guessed"]) == (1, 2, 1)
    assert data["not_enforced"] == ["Pushes of\nany kind"]
    first, second = data["tasks"]
    assert [trial["attempt"] for trial in first["trials"]] == [1, 2]
    assert (first["mean_reward"], second["mean_reward"]) == (0.5, None)
    assert data["thresholds"] == [
        {"judge": "made", "limit": "min_pass_rate", "wanted": 1.0, "actual": 0.5, "met": False, "pending": 0}
    ]
    assert data["calls"][0]["decision"] == "deny"


# ---- hostile texts ----


@pytest.fixture
def hostile(tmp_path: Path) -> JobFolder:
    """A job in which every text tries to drive what shows it."""
    manifest = {"judges": [{"name": HOSTILE}], "handlers": [{"match": HOSTILE, "enforced": False}]}
    folder = JobFolder(tmp_path, name=HOSTILE, agent=HOSTILE, manifest=manifest, errors=(HOSTILE,))
    said = [judge(HOSTILE, status="error", error=HOSTILE), judge("b", True, reason=HOSTILE)]
    place = folder.trial(HOSTILE.replace("/", ""), status="error", error=error("agent", HOSTILE), judges=said,
                         warnings=[HOSTILE])  # fmt: skip
    line = {"tool_use_id": "t1", "tool": HOSTILE, "decision": "deny", "tier": HOSTILE, "reason": HOSTILE + "\ud800"}
    write_lines(place / "interceptions.jsonl", line)
    return folder


def test_a_terminal_is_not_driven_by_what_a_job_holds(hostile: JobFolder) -> None:
    text = shown(hostile)
    assert not [ch for ch in text if not ch.isprintable() and ch != "\n"]
    assert "[red]x" in text.replace("\n", "").replace(" ", "")


def test_json_spells_control_characters_out(hostile: JobFolder) -> None:
    data = job_json(collect_job(hostile.folder))
    raw = json.dumps(data, ensure_ascii=False)
    raw.encode("utf-8")
    assert not set("\x1b\x07\x9b\u202e") & set(raw)
    assert "\\x1b[2J" in data["tasks"][0]["trials"][0]["error"]["message"]


class Page(HTMLParser):
    """What a browser would make of a page: its elements, its texts, and whether they are closed in order."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """An element ends: the one that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text between the tags."""
        self.text += f"{data} "

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of this name."""
        return [attrs for name, attrs in self.tags if name == tag]


def test_the_page_loads_nothing_and_runs_nothing(hostile: JobFolder, job: JobFolder) -> None:
    for folder in (hostile, job):
        page = Page(report_html(collect_job(folder.folder)))
        assert not {"script", "link", "img", "iframe", "object", "form"} & {tag for tag, _ in page.tags}
        for _, attrs in page.tags:
            assert not [name for name in attrs if name.startswith("on") or name in ("src", "style")]
            assert (attrs.get("href") or "#").startswith("#")


def test_the_page_shows_hostile_texts_as_texts(hostile: JobFolder) -> None:
    text = report_html(collect_job(hostile.folder))
    text.encode("utf-8")
    assert not set("\x1b\x07\x9b\u202e") & set(text)
    assert "<script>" not in text
    assert "<script>alert(1)</script>" in Page(text).text


def test_the_page_holds_the_facts_and_can_be_read_without_seeing_it(job: JobFolder) -> None:
    page = Page(report_html(collect_job(job.folder)))
    assert page.named("html")[0]["lang"] == "en"
    assert len(page.named("h1")) == len(page.named("main")) == 1
    assert len(page.named("table")) == len(page.named("caption")) > 3
    assert all(attrs.get("scope") in ("col", "row") for attrs in page.named("th"))
    links = {attrs["href"] for attrs in page.named("a")}
    idents = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert links == {"#trial-1", "#trial-2", "#trial-3"}
    assert len(idents) == len(set(idents))
    named = {attrs[key] for _, attrs in page.tags for key in ("aria-labelledby",) if key in attrs}
    assert named <= set(idents)
    words = " ".join(page.text.split())
    for wanted in (
        "mean reward (partial) 0.50", "trials scored 1 of 3", "agent error: exit code 3", "all there", "Too much.",
        "min_pass_rate", "missed", "no verdict of quality", "0.5000 USD", "case late-parcel",
    ):  # fmt: skip
        assert wanted in words, wanted


def test_the_page_of_a_job_with_nothing_in_it_is_a_page(tmp_path: Path) -> None:
    JobFolder(tmp_path)
    assert "the job has no trials" in Page(report_html(collect_job(tmp_path))).text


def test_a_missing_step_is_named_in_every_report(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    steps: list[dict[str, Any]] = [
        {"id": "first", "status": "scored", "reward": 1.0},
        {"id": "second", "status": "pending"},
    ]
    folder.trial(status="error", steps=steps)
    summary = collect_job(tmp_path)
    assert "without a result: step second" in shown(folder, 200)
    assert job_json(summary)["tasks"][0]["trials"][0]["missing_steps"] == ["second"]
    assert "step second: pending, reward - (without a result)" in " ".join(Page(report_html(summary)).text.split())


def test_the_page_is_written_beside_the_job_or_where_it_is_asked_for(job: JobFolder, tmp_path: Path) -> None:
    before = set(job.folder.iterdir())
    assert write_html(job.folder) == job.folder / "report.html"
    assert set(job.folder.iterdir()) - before == {job.folder / "report.html"}
    other = tmp_path / "deep" / "r.html"
    assert write_html(job.folder, other) == other
    assert write_html(job.folder, other.parent) == other.parent / "report.html"
    assert other.read_bytes() == (job.folder / "report.html").read_bytes()
    assert b"\r" not in other.read_bytes()


def test_a_folder_without_a_job_gets_no_page(tmp_path: Path) -> None:
    with pytest.raises(AuthorError):
        write_html(tmp_path)
    assert not list(tmp_path.iterdir())
