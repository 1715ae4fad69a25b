"""The commands of `harbor-pack`: parse the command line, call the rooms, print. No logic of their own.

What a command reports goes to standard output (a table, or JSON with ``--json``); problems and progress go to standard
error. Heavy libraries are imported where they are used, so that a build with nothing to do starts fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harbor_tasks import __version__
from harbor_tasks.errors import AuthorError, display_path, printable
from harbor_tasks.output import (
    building,
    complain,
    plural,
    print_event,
    print_job,
    print_json,
    print_lines,
    print_matches,
    print_place,
    print_problems,
    print_rich,
    progress_bar,
    warn,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pack evaluations of coding agents into Harbor tasks with the same tool policy everywhere.",
)

EvalPath = Annotated[Path, typer.Argument(metavar="EVAL", help="an eval.yaml, or the folder that holds it")]
Source = Annotated[Path, typer.Argument(metavar="DIR|EVAL", help="built tasks, or an eval to build first")]
HarborOptions = Annotated[
    list[str] | None, typer.Argument(metavar="-- HARBOR-OPTIONS", help="with --env harbor: for `harbor run` itself")
]
Json = Annotated[bool, typer.Option("--json", help="print the report as JSON")]
Strict = Annotated[bool, typer.Option("--strict", help="warnings are errors")]
HarborPath = Annotated[
    Path | None, typer.Option("--harbor", metavar="PATH", help="Harbor's command (default: the one on PATH)")
]
Host = Annotated[
    str | None, typer.Option("--host", metavar="URL", help="the container engine's address, if not docker's own choice")
]
Cases = Annotated[list[str] | None, typer.Option("--case", metavar="ID", help="only this case (repeatable)")]


def version_wanted(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        print(f"harbor-pack {__version__}")
        raise typer.Exit


@app.callback()
def harbor_pack(
    _version: Annotated[
        bool, typer.Option("--version", callback=version_wanted, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """Pack evaluations of coding agents into Harbor tasks with the same tool policy everywhere."""


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="a new or empty folder")],
    as_json: Json = False,
) -> None:
    """Write a small working eval into DIR."""
    from harbor_tasks.scaffold import init as write_starter

    written = write_starter(directory)
    if as_json:
        print_json({"directory": str(directory), "files": [str(p) for p in written]})
        return
    for path in written:
        print(display_path(path))
    print(f"next: harbor-pack run {display_path(directory)} --agent replay")


@app.command()
def check(eval_path: EvalPath, case: Cases = None, strict: Strict = False, as_json: Json = False) -> None:
    """Say all errors and warnings of an eval, and what each `match` became; write nothing."""
    from harbor_tasks.tasks.build import check as check_eval

    report = check_eval(eval_path, strict=strict, only=tuple(case or ()))
    if as_json:
        print_json(
            {
                "problems": [p.as_json() for p in report.problems],
                "matches": [{"match": match, "patterns": list(patterns)} for match, patterns in report.matches],
                "cases": report.cases,
                "not_packed": list(report.not_packed),
            }
        )
    else:
        print_problems(report.problems)
        print_matches(report.matches)
        print(f"{plural(report.cases, 'case')}, {plural(len(report.problems.errors), 'error')}, "
              f"{plural(len(report.problems.warnings), 'warning')}")  # fmt: skip
    if report.problems.errors:
        raise typer.Exit(AuthorError.exit_code)


@app.command()
def build(
    eval_path: EvalPath,
    out: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="where the task directories go")],
    case: Cases = None,
    strict: Strict = False,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="processes that render (default: by size)")] = None,
    as_json: Json = False,
) -> None:
    """Render each case into a Harbor task directory; unchanged ones are left as they are."""
    from harbor_tasks.tasks.build import build as build_eval

    with progress_bar("build") as advance:
        report = build_eval(eval_path, out, only=tuple(case or ()), strict=strict, jobs=jobs, progress=advance)
    if as_json:
        print_json(
            {
                "out": str(report.out), "tasks": report.tasks, "written": report.written,
                "unchanged": report.unchanged, "removed": report.removed, "seconds": round(report.seconds, 3),
                "problems": [p.as_json() for p in report.problems],
                "matches": [{"match": match, "patterns": list(patterns)} for match, patterns in report.matches],
            }
        )  # fmt: skip
        return
    print_problems(report.problems)
    print_matches(report.matches)
    removed = f", {report.removed} removed" if report.removed else ""
    counts = "nothing changed" if not report.written and not report.removed else f"{report.written} written{removed}"
    print(f"{plural(report.tasks, 'task')} in {display_path(report.out)}: {counts}")


@app.command(context_settings={"allow_interspersed_args": True})
def run(
    source: Source,
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
    parallel: Annotated[int | None, typer.Option("-n", min=1, help="trials at a time")] = None,
    attempts: Annotated[int, typer.Option("--attempts", min=1, help="trials of each task")] = 1,
    case: Cases = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", metavar="JOB", help="go on with this job, where and by whom it ran: finished trials are kept"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say which trials would run; run none")] = False,
    host: Host = None,
    harbor: HarborPath = None,
    jobs_dir: Annotated[Path, typer.Option("--jobs-dir", metavar="DIR", help="where jobs are kept")] = Path("jobs"),
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
        scripted=scripted,
    )  # fmt: skip
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
def image(
    source: Source,
    locked: Annotated[bool, typer.Option("--locked", help="refuse a base that is named by a tag")] = False,
    base: Annotated[
        str | None, typer.Option("--base", metavar="REF", help="take this base in place of the eval's own")
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="NAME", help="put this agent's program in: claude-code, codex (repeatable)"),
    ] = None,
    host: Host = None,
    as_json: Json = False,
) -> None:
    """Make the eval's image, named after its content; one that is there already is left as it is."""
    from harbor_tasks.environments.engine import find_engine
    from harbor_tasks.environments.sources import built_tasks
    from harbor_tasks.images import ensure_image

    agents = tuple(name for name in agent or () if name != "none")
    with built_tasks(source, warn, building) as tasks, find_engine(host) as engine:
        complain(f"engine: {engine.endpoint}")
        made = ensure_image(tasks, engine, locked=locked, base=base, agents=agents, on_event=complain)
    if as_json:
        print_json(made.as_json())
        return
    print(f"{made.tag}: {'built' if made.built else 'nothing changed'}, on {made.base}")


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
            "--through", metavar="AGENT", help="also through this agent program (claude-code); no key, no cost"
        ),
    ] = None,
    host: Host = None,
    harbor: HarborPath = None,
    as_json: Json = False,
) -> None:
    """Force each probe's call through the built policy and compare the decision; list the routes around it."""
    from harbor_tasks.environments.base import RunOptions
    from harbor_tasks.environments.sources import built_tasks
    from harbor_tasks.proving import prove

    options = RunOptions(host=host, harbor=harbor, harbor_options=tuple(harbor_options or ()))
    places = [name.strip() for name in environment.split(",")]
    with built_tasks(source, warn, building) as tasks:
        report = prove(tasks, environments=places, options=options, say=complain, agent=through)
    if as_json:
        print_json(report.as_json())
    else:
        print_rich(report.tables())
    raise typer.Exit(report.exit_code)


@app.command()
def report(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="a job's folder")],
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
    jobs_dir: Annotated[Path, typer.Option("--jobs-dir", metavar="DIR", help="where jobs are kept")] = Path("jobs"),
    as_json: Json = False,
) -> None:
    """Remove what killed runs left: containers, networks, temporary folders; never a running job's."""
    from harbor_tasks.environments.cleaning import clean as clean_up

    report = clean_up(job, jobs_dir=jobs_dir, host=host)
    if as_json:
        print_json(report.as_json())
        return
    for line in report.removed:
        print(printable(f"removed {line}"))
    for line in report.left:
        print(printable(f"left {line}"))
    print(f"{plural(len(report.removed), 'thing')} removed")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is missing on this machine, and how to get it."""
    from harbor_tasks.doctor import diagnose

    findings = diagnose()
    if as_json:
        print_json([{"name": f.name, "ok": f.ok, "detail": f.detail, "how": f.how} for f in findings])
        return
    for finding in findings:
        how = "" if finding.ok or not finding.how else f"; {finding.how}"
        print(printable(f"{'ok' if finding.ok else 'missing':8}{finding.name:18}{finding.detail}{how}"))
