"""The command `resolve`: rules for `inputs.tools`, proposed by a model, shown, and written when they hold."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from harbor_tasks.commands.base import EvalPath, Json, app
from harbor_tasks.errors import AuthorError, display_path, printable
from harbor_tasks.output import complain, plural, print_json, print_problems, print_rich

NOT_HELD = 1
DECLINED = 1


@app.command()
def resolve(
    eval_path: EvalPath,
    yes: Annotated[bool, typer.Option("--yes", help="write tool_handlers.yaml without asking")] = False,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="which model proposes (default: see docs/resolve.md)")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="ask the model although nothing changed")] = False,
    as_json: Json = False,
) -> None:
    """Ask a model for the rules that `inputs.tools` means; replay their probes, show a diff, write them."""
    from harbor_tasks.proving.resolving import resolve as resolve_eval

    found = resolve_eval(eval_path, model=model, fresh=fresh, say=complain)
    if not as_json:
        _show(found)
    elif found.holds:
        print_problems(one for one in found.problems if one.level == "warning")
    if not found.holds:
        print_problems(found.problems)
        for row in found.rows:
            if not row.ok:
                complain(f"error: the probe {row.name!r} ({row.tool}): {'; '.join(row.misses)}")
        complain(f"error: the proposal of {found.model} does not hold, and nothing was written")
        if as_json:
            print_json({**found.as_json(), "written": False})
        raise typer.Exit(NOT_HELD)
    name = display_path(found.path)
    if not found.changed:
        complain(f"{name}: nothing changed")
        if as_json:
            print_json({**found.as_json(), "written": False})
        return
    asks = not as_json and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if not yes and not asks:
        if as_json:
            print_json({**found.as_json(), "written": False})
        complain(f"error: {name} was not written: there is no terminal to ask on; pass --yes to write it")
        raise typer.Exit(AuthorError.exit_code)
    if not yes and not _agreed(f"write {name}?"):
        complain("nothing was written")
        raise typer.Exit(DECLINED)
    found.write()
    if as_json:
        print_json({**found.as_json(), "written": True})
    complain(f"{name}: written; its probes run with harbor-pack probe")


def _show(found: Any) -> None:
    """The kept rules, warnings, the diff, what each probe got."""
    for label in found.kept:
        print(printable(f"{label}: its rule is yours, changed or written by hand, and stays"))
    if not found.asked:
        return
    if found.holds:
        print_problems(one for one in found.problems if one.level == "warning")
    diff = found.diff()
    if diff:
        print(printable(diff))
    if found.rows:
        print_rich([_table(found.rows)])
    missed = sum(not row.ok for row in found.rows)
    print(f"{plural(len(found.rows), 'probe')}, {missed} missed")


def _table(rows: Any) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("probe", "tool", "expected", "got", "", "reason", title="probes", box=SIMPLE_HEAD, pad_edge=False)
    table.title_justify, table.title_style = "left", "bold"
    for row in rows:
        reason = " ".join(row.reason.split())
        short = reason if len(reason) <= 50 else f"{reason[:49]}…"
        why = short if row.ok else "; ".join(row.misses)
        cells = (row.name, row.tool, row.expected, row.got, "ok" if row.ok else "MISSED", why)
        table.add_row(*map(printable, cells))
    return table


def _agreed(question: str) -> bool:
    """The answer of the one at the terminal; its end is a no."""
    print(printable(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
