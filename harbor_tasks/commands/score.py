"""The command that asks model judges about a finished job: score."""

from __future__ import annotations

from typing import Annotated

import typer

from harbor_tasks.commands.base import JobFolder, Json, app
from harbor_tasks.output import complain, print_job


@app.command()
def score(
    job: JobFolder,
    judge: Annotated[
        list[str] | None, typer.Option("--judge", metavar="NAME", help="only this model judge (repeatable)")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="ask again, whatever replies are recorded")] = False,
    parallel: Annotated[int, typer.Option("-n", min=1, help="judges that are asked at a time")] = 4,
    as_json: Json = False,
) -> None:
    """Ask the model judges of a job that have no verdict yet, score its trials, print the table."""
    import os

    from harbor_tasks.results.judges import score_job

    done = score_job(job, os.environ, names=tuple(judge or ()), fresh=fresh, parallel=parallel, say=complain)
    complain(str(done))
    raise typer.Exit(print_job(job, as_json, faults=done.refused))
