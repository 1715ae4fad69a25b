"""The command that makes the answers of a job the answers of its cases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harbor_tasks.commands.base import Cases, JobFolder, Json, app
from harbor_tasks.output import print_json, print_lines, warn


@app.command()
def freeze(
    job: JobFolder,
    eval_path: Annotated[
        Path | None, typer.Option("--eval", metavar="EVAL", help="whose cases, where the job ran built tasks")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="only the answers of this attempt")
    ] = None,
    guessed: Annotated[bool, typer.Option("--guessed", help="what nobody answered, too, as it was guessed")] = False,
    case: Cases = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be written; write nothing")] = False,
    as_json: Json = False,
) -> None:
    """Write the answers that a model gave into each case's answers.yaml, so that the next job needs no model."""
    from harbor_tasks.results.freeze import freeze as freeze_job

    report = freeze_job(
        job, eval_path, attempt=attempt, guessed=guessed, cases=tuple(case or ()), dry_run=dry_run
    )  # fmt: skip
    if as_json:
        print_json(report.as_json())
    else:
        for line in report.warnings:
            warn(line)
        print_lines(report.lines())
    raise typer.Exit(report.exit_code)
