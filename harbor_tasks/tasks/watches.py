"""What of the author's project a build depends on, beside the cases: all that was read, or looked for and not found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from harbor_tasks.evalspec import Eval
from harbor_tasks.evalspec.load import misplaced_handlers
from harbor_tasks.evalspec.paths import is_folder, is_there
from harbor_tasks.tasks.eval_plan import EvalPlan
from harbor_tasks.tasks.state import Watch


def watches_of(plan: EvalPlan, cases: frozenset[Path]) -> list[Watch]:
    """The watches of an eval, each once; ``cases`` are the folders that are watched as cases."""
    ev = plan.ev
    found: dict[Watch, None] = {}
    found.update(dict.fromkeys(_files(plan)))
    found.update(dict.fromkeys(plan.layer.watched))
    found.update(dict.fromkeys(plan.base.watched))
    found.update((("names" if is_folder(path) else "tree", str(path)), None) for path in plan.judging.inputs)
    found.update(dict.fromkeys(_dataset(ev, cases)))
    found.update((("there", str(folder / ".git")), None) for folder in _up_to_project(ev))
    return list(found)


def project_is_cwd(ev: Eval) -> str | None:
    """The current folder, if the project would be another one elsewhere: no folder above the eval has `.git`."""
    return None if is_there(ev.project / ".git") else os.getcwd()  # noqa: PTH109


def _files(plan: EvalPlan) -> Iterator[Watch]:
    """The files that eval.yaml and tool_handlers.yaml name, in both places where they are looked for."""
    ev = plan.ev
    spec = ev.spec
    for path in (ev.file, ev.root / "eval.yaml", ev.root / "tool_handlers.yaml", ev.project / ".mcp.json"):
        yield "tree", str(path)
    texts = [tool.prompt_file for tool in spec.inputs.tools]
    texts += [judge.prompt_file for judge in spec.judges]
    texts += [handler.prompt_file for handler in (plan.handlers.handlers if plan.handlers else ())]
    texts.append(spec.sandbox.dockerfile)
    for text in texts:
        if text is not None:
            for base in (ev.root, ev.project):
                yield "tree", str(base / text)
    for path in misplaced_handlers(ev):
        yield "there", str(path)
    for text in spec.runner.plugin_dirs:
        for base in (ev.root, ev.project):
            yield "there", str(base / text)


def _dataset(ev: Eval, cases: frozenset[Path]) -> Iterator[Watch]:
    """Which folders there are, and what those hold that are no cases but could become one."""
    for base in (ev.root, ev.project):
        folder = base / ev.spec.dataset.path
        yield "names", str(folder)
        if is_folder(folder):
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
                path = folder / entry.name
                if entry.is_dir() and path not in cases and not entry.name.startswith("."):
                    yield "names", str(path)


def _up_to_project(ev: Eval) -> Iterator[Path]:
    """The folders in which `.git` makes the project, from the eval's up."""
    for folder in (ev.root, *ev.root.parents):
        yield folder
        if is_there(folder / ".git"):
            return
