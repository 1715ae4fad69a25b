"""The command for a team's shared runner: tasks are fetched to its machine, and its Harbor server runs them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harbor_tasks.commands.base import Attempts, Ca, HarborPath, Host, JobsDir, Json, Parallel, PlainHttp, Trust, app
from harbor_tasks.commands.registry import fault_of, tasks_of
from harbor_tasks.errors import AuthorError, HarborPackError, Problem, Where
from harbor_tasks.output import (
    building,
    complain,
    plural,
    print_event,
    print_job,
    print_json,
    print_lines,
    print_place,
    print_problems,
)

if TYPE_CHECKING:
    from harbor_tasks.environments.base import RunOptions
    from harbor_tasks.environments.harbor_api import ServerApi

_ORDER = (130, 2, 3, 1, 0)
"""Exit codes of several jobs: the first of these that one of them has."""


@app.command(context_settings={"allow_interspersed_args": True})
def runner(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REF",
            help="bundles: in a registry, or files; or built tasks on this machine. What stands after -- is for "
            "`harbor run` itself",
        ),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="the `harbor serve` of this machine")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="who works: claude-code, oracle, replay (the default)")
    ] = None,
    parallel: Parallel = None,
    attempts: Attempts = 1,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", metavar="JOB", help="go on with this job: what the server did of it meanwhile is fetched first"
        ),
    ] = None,
    key_env: Annotated[
        str, typer.Option("--key-env", metavar="VAR", help="the variable that holds the server's key")
    ] = "HARBOR_API_KEY",
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="where bundles are unpacked, by digest (default: the cache)"),
    ] = None,
    trust: Trust = False,
    plain_http: PlainHttp = False,
    ca: Ca = None,
    harbor: HarborPath = None,
    host: Host = None,
    jobs_dir: JobsDir = Path("jobs"),
    pythonpath: Annotated[
        bool, typer.Option("--pythonpath", help="print the PYTHONPATH that `harbor serve` needs for replay, and stop")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fetch bundles to a shared runner, let its Harbor server run them, and collect the jobs; a table each."""
    from harbor_tasks.environments.base import RunOptions
    from harbor_tasks.environments.harbor_api import ServerApi
    from harbor_tasks.environments.harbor_server import agents_folder
    from harbor_tasks.environments.plan import where_and_who

    if pythonpath:
        if as_json:
            print_json({"pythonpath": str(agents_folder())})
        else:
            print_lines([agents_folder()])
        return
    named, harbor_options = sources_and_options(sources or [])
    if server is None:
        raise AuthorError("--server is missing: the URL of the harbor serve, for example http://127.0.0.1:8390")
    if not named:
        raise AuthorError("no REF is named: a bundle in a registry, a bundle's file, or a folder of built tasks")
    if resume is not None and len(named) != 1:
        raise AuthorError(f"--resume goes on with one job, and {plural(len(named), 'REF')} are named")
    key = os.environ.pop(key_env, None) or None  # nothing that is started from here gets it
    if key is None and key_env != "HARBOR_API_KEY":
        raise AuthorError(f"--key-env {key_env}: ${key_env} is not set")
    api = ServerApi(server, key)
    _, agent, _ = where_and_who("harbor", agent, resume)
    options = RunOptions(
        environment="harbor", agent=agent, parallel=parallel, attempts=attempts, resume=resume, jobs_dir=jobs_dir,
        host=host, harbor=harbor, harbor_options=harbor_options, server=server, server_key=key, trust=trust,
    )  # fmt: skip
    _check(api, named, options, ca=ca, keep=keep)
    fetch = partial(tasks_of, options=options, plain_http=plain_http, ca=ca, keep=keep)
    reports: list[dict[str, Any]] = []
    for source in named:
        reports.append(_one(source, options, fetch, as_json=as_json))
        if reports[-1]["exit_code"] == 130:
            break
    code = min((report["exit_code"] for report in reports), key=_ORDER.index)
    if as_json:
        print_json({"exit_code": code, "jobs": reports})
    raise typer.Exit(code)


def _check(api: ServerApi, named: list[str], options: RunOptions, *, ca: Path | None, keep: Path | None) -> None:
    """What speaks against all of it, before anything is fetched: this machine first, then the server.

    The server is not asked where nothing is to be run: a fault of each bundle stands in its report.
    """
    from harbor_tasks.environments.harbor_server import check_here
    from harbor_tasks.environments.plan import require_place

    check_here(options)
    if ca is not None:
        from harbor_tasks.bundles.session import authority

        authority(ca)
    if keep is not None:
        require_place(keep, "--keep")
    if not all(fault_of(source) for source in named):
        api.check()


def sources_and_options(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The bundles that are named, and Harbor's own options, which come after them (behind ``--``)."""
    at = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
    return words[:at], tuple(words[at:])


def _one(source: str, options: RunOptions, fetch: Callable[[str], Path], *, as_json: bool) -> dict[str, Any]:
    """Fetch and run one bundle; its report. What stops it is said, and does not stop the others."""
    from harbor_tasks.environments import jobs
    from harbor_tasks.results.collect import collect_job
    from harbor_tasks.results.report import job_json

    try:
        tasks = fetch(source)
        folder, interrupted = jobs.run_job(tasks, options, on_event=print_event, building=building), None
    except jobs.InterruptedJob as error:
        folder, interrupted = error.folder, error
    except AuthorError as error:
        print_problems(error.problems)
        return _stopped(source, error, [problem.as_json() for problem in error.problems])
    except HarborPackError as error:
        complain(f"error: {error}")
        return _stopped(source, error, [Problem(str(error), Where(), code="machine").as_json()])
    if not as_json:
        print_job(folder, as_json=False)
    if interrupted is None:
        print_place(folder)
    else:
        complain(str(interrupted))
    summary = collect_job(folder)
    code = summary.exit_code if interrupted is None else interrupted.exit_code
    return {"ref": source, **job_json(summary), "exit_code": code}


def _stopped(source: str, error: HarborPackError, problems: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ref": source, "exit_code": error.exit_code, "problems": problems}
