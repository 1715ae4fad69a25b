"""Shows a job: tables for a terminal, plain data for programs, one HTML file for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import RenderableType

from harbor_tasks.results.collect import JobSummary


def job_tables(summary: JobSummary) -> list[RenderableType]:
    """The trials, the intercepted calls and what they add up to, readable at 80 columns."""
    raise NotImplementedError


def job_json(summary: JobSummary) -> dict[str, Any]:
    """The same facts as plain data, for `--json`."""
    raise NotImplementedError


def report_html(summary: JobSummary) -> str:
    """The same facts as one self-contained HTML page."""
    raise NotImplementedError


def write_html(job: Path, output: Path | None = None) -> Path:
    """Write the page beside the job's files, or to ``output``; returns its path."""
    raise NotImplementedError
