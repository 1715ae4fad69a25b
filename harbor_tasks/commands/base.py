"""What the commands share: the application, and the arguments and options that several of them take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harbor_tasks import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pack evaluations of coding agents into Harbor tasks with the same tool policy everywhere.",
)

EvalPath = Annotated[Path, typer.Argument(metavar="EVAL", help="an eval.yaml, or the folder that holds it")]
Source = Annotated[Path, typer.Argument(metavar="DIR|EVAL", help="built tasks, or an eval to build first")]
SourceOrRef = Annotated[
    str,
    typer.Argument(metavar="DIR|EVAL|REF", help="built tasks, an eval to build first, a bundle's file or reference"),
]
JobFolder = Annotated[Path, typer.Argument(metavar="JOB", help="a job's folder")]
PlainHttp = Annotated[bool, typer.Option("--plain-http", help="the registry has no TLS (loopback: found out)")]
Ca = Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="trust this authority's certificate (PEM) too")]
Trust = Annotated[bool, typer.Option("--trust", help="let a pulled bundle run on this machine as you")]
HarborOptions = Annotated[
    list[str] | None, typer.Argument(metavar="-- HARBOR-OPTIONS", help="with --env harbor: for `harbor run` itself")
]
Json = Annotated[bool, typer.Option("--json", help="print the report as JSON")]
Strict = Annotated[bool, typer.Option("--strict", help="warnings are errors")]
HarborPath = Annotated[
    Path | None,
    typer.Option("--harbor", metavar="PATH", help="Harbor's command (default: on PATH, else docker/harbor.sh's)"),
]
Host = Annotated[
    str | None, typer.Option("--host", metavar="URL", help="the container engine's address, if not docker's own choice")
]
JobsDir = Annotated[Path, typer.Option("--jobs-dir", metavar="DIR", help="where jobs are kept")]
Parallel = Annotated[int | None, typer.Option("-n", min=1, help="trials at a time")]
Attempts = Annotated[int, typer.Option("--attempts", min=1, help="trials of each task")]
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
