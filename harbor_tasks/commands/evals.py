"""Commands about an eval: from the first one to its tasks and its image."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harbor_tasks.commands.base import Cases, EvalPath, Host, Json, Source, Strict, app
from harbor_tasks.errors import AuthorError, display_path
from harbor_tasks.output import (
    building,
    complain,
    plural,
    print_json,
    print_matches,
    print_problems,
    print_rich,
    progress_bar,
    warn,
)

if TYPE_CHECKING:
    from harbor_tasks.tasks.build import BuildReport, CheckReport


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
    """Say all errors and warnings of an eval, what each `match` became, and the routes; write nothing."""
    from harbor_tasks.tasks.build import check as check_eval

    report = check_eval(eval_path, strict=strict, only=tuple(case or ()))
    if as_json:
        routes = [asdict(route) for route in report.routes]
        print_json({**_said(report), "cases": report.cases, "not_packed": list(report.not_packed), "routes": routes})
    else:
        print_problems(report.problems)
        print_matches(report.matches)
        if report.routes:
            from harbor_tasks.policy.routes import routes_table

            print_rich([routes_table(report.routes)])
        found = report.problems
        counts = {"case": report.cases, "error": len(found.errors), "warning": len(found.warnings)}
        counts |= {"note": len(found.notes)} if found.notes else {}
        print(", ".join(plural(count, word) for word, count in counts.items()))
    if report.problems.errors:
        raise typer.Exit(AuthorError.exit_code)


def _said(report: CheckReport | BuildReport) -> dict[str, Any]:
    """Problems and matches, as `check` and `build` have them in their JSON."""
    return {
        "problems": [p.as_json() for p in report.problems],
        "matches": [{"match": match, "patterns": list(patterns)} for match, patterns in report.matches],
    }


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
                **_said(report),
            }
        )  # fmt: skip
        return
    print_problems(report.problems)
    print_matches(report.matches)
    removed = f", {report.removed} removed" if report.removed else ""
    counts = "nothing changed" if not report.written and not report.removed else f"{report.written} written{removed}"
    print(f"{plural(report.tasks, 'task')} in {display_path(report.out)}: {counts}")


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
