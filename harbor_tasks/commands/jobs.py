"""Commands about jobs: run, probe, report, and what they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harbor_tasks.commands.base import (
    Attempts,
    Ca,
    Cases,
    HarborOptions,
    HarborPath,
    Host,
    JobFolder,
    JobsDir,
    Json,
    Parallel,
    PlainHttp,
    Source,
    SourceOrRef,
    Trust,
    app,
)
from harbor_tasks.commands.registry import tasks_of
from harbor_tasks.errors import display_path, printable
from harbor_tasks.output import (
    building,
    complain,
    plural,
    print_event,
    print_job,
    print_json,
    print_lines,
    print_place,
    print_rich,
    warn,
)


@app.command(context_settings={"allow_interspersed_args": True})
def run(
    given: SourceOrRef,
    harbor_options: HarborOptions = None,
    environment: Annotated[
        str | None,
        typer.Option("--env", metavar="NAME", help="where the trials run: local, docker, harbor (default: local)"),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="who works: claude-code, codex, oracle (the solutions), replay (recorded calls) (default: replay)",
        ),
    ] = None,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="no model: the agent program proposes the recorded calls of each case")
    ] = False,
    parallel: Parallel = None,
    attempts: Attempts = 1,
    case: Cases = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", metavar="JOB", help="go on with this job, where and by whom it ran: finished trials are kept"
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", metavar="USD", help="start no new trial when the job has cost as much"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say which trials would run; run none")] = False,
    host: Host = None,
    harbor: HarborPath = None,
    jobs_dir: JobsDir = Path("jobs"),
    trust: Trust = False,
    plain_http: PlainHttp = False,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Run a job: one trial of each task by one agent, scored; then print the table of trials."""
    from harbor_tasks.environments import jobs
    from harbor_tasks.environments.base import RunOptions
    from harbor_tasks.environments.plan import where_and_who

    environment, agent, scripted = where_and_who(environment, agent, resume, scripted=scripted)
    options = RunOptions(
        environment=environment, agent=agent, parallel=parallel, attempts=attempts, cases=tuple(case or ()),
        resume=resume, jobs_dir=jobs_dir, host=host, harbor=harbor, harbor_options=tuple(harbor_options or ()),
        scripted=scripted, max_cost=max_cost, trust=trust,
    )  # fmt: skip
    source = tasks_of(given, options, plain_http=plain_http, ca=ca, dry=dry_run)
    if dry_run:
        plan = jobs.dry_run(source, options, on_event=print_event, building=building)
        if as_json:
            print_json(plan.as_json())
        else:
            print_lines(f"would run {plan.label(wanted)}" for wanted in plan.todo)
        return
    try:
        job = jobs.run_job(source, options, on_event=print_event, building=building)
    except jobs.InterruptedJob as interrupted:
        print_job(interrupted.folder, as_json)
        complain(str(interrupted))
        raise typer.Exit(interrupted.exit_code) from None
    code = print_job(job, as_json)
    print_place(job)
    raise typer.Exit(code)


@app.command()
def probe(
    source: Source,
    harbor_options: HarborOptions = None,
    environment: Annotated[
        str, typer.Option("--env", metavar="A,B", help="where: local, docker, harbor; several are compared")
    ] = "local",
    through: Annotated[
        str | None,
        typer.Option(
            "--through", metavar="AGENT", help="also through this agent program (claude-code, codex); no key, no cost"
        ),
    ] = None,
    host: Host = None,
    harbor: HarborPath = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Force each probe's call through the built policy and compare the decision; list the routes around it."""
    from harbor_tasks.environments.base import RunOptions
    from harbor_tasks.environments.sources import built_tasks
    from harbor_tasks.proving import prove
    from harbor_tasks.proving.through import known

    options = RunOptions(host=host, harbor=harbor, harbor_options=tuple(harbor_options or ()), trust=trust)
    places = [name.strip() for name in environment.split(",")]
    runner = None if through is None else known(through)
    with built_tasks(source, warn, building, runner=runner) as tasks:
        report = prove(tasks, environments=places, options=options, say=complain, agent=through)
    if as_json:
        print_json(report.as_json())
    else:
        print_rich(report.tables())
    raise typer.Exit(report.exit_code)


@app.command()
def report(
    job: JobFolder,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="default: report.html in the job")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML file that shows a job; print its table."""
    from harbor_tasks.results.report import write_html

    path = write_html(job, output)
    print_job(job, as_json)
    complain(f"report: {display_path(path)}")


@app.command()
def clean(
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="only what this job left")] = None,
    host: Host = None,
    jobs_dir: JobsDir = Path("jobs"),
    as_json: Json = False,
) -> None:
    """Remove what killed runs left: containers, networks, temporary folders; never a running job's."""
    from harbor_tasks.bundles.cache import remove_left
    from harbor_tasks.environments.cleaning import clean as clean_up

    report = clean_up(job, jobs_dir=jobs_dir, host=host)
    if job is None:
        report.removed += [f"folder {folder}" for folder in remove_left()]
    if as_json:
        print_json(report.as_json())
        return
    for line in report.removed:
        print(printable(f"removed {line}"))
    for line in report.left:
        print(printable(f"left {line}"))
    print(f"{plural(len(report.removed), 'thing')} removed")
