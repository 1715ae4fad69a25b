"""Modules of judges: where they are in the author's project, and what of it goes into ``tests/lib``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval

MAX_FILES = 2000
MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class LibFile:
    """One file of a judge's module: its place below ``tests/lib`` (posix) and where it is now."""

    path: str
    source: Path


def module_files(ev: Eval, at: int, module: str, function: str, problems: Problems) -> list[LibFile]:
    """All files of the top package (or the one module) that ``judges[at].module`` names; errors go to ``problems``.

    The module is looked for from the folder of eval.yaml, then from the project's root. It must be part of the project:
    what the author's Python has installed is not in the sandbox.
    """
    name = f"judge {ev.spec.judges[at].name!r}"
    line = ev.line("judges", at, "module")
    parts = module.split(".")
    found = _find(ev, parts) if all(part.isidentifier() for part in parts) else None
    if found is None:
        problems.error(
            f"{name}: no module {module!r} in the project", ev.file, line, code="judge-module",
            hint=f"looked for {'/'.join(parts)}.py from {ev.root.name}/ and from the project's root",
        )  # fmt: skip
        return []
    base, file = found
    _check_function(file, function, name, (ev.file, ev.line("judges", at, "function")), problems)
    top = base / parts[0]
    if not top.is_dir():
        return [LibFile(file.name, file)]
    files = [LibFile(path.relative_to(base).as_posix(), path) for path in _package(top, ev.project, _not_code(ev))]
    size = sum(file.source.stat().st_size for file in files)
    if len(files) > MAX_FILES or size > MAX_BYTES:
        problems.error(
            f"{name}: the package {parts[0]!r} is too big for every task ({len(files)} files, {size // 1024} KiB)",
            ev.file, line, hint="put the judges into a small package of their own", code="judge-module",
        )  # fmt: skip
        return []
    return files


def _find(ev: Eval, parts: list[str]) -> tuple[Path, Path] | None:
    """The folder from which the module is imported, and its file."""
    for base in (ev.root, ev.project):
        place = base.joinpath(*parts)
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file() and file.resolve().is_relative_to(ev.project.resolve()):
                return base, file
    return None


def _not_code(ev: Eval) -> set[Path]:
    """Folders of the project that are no part of a package: the cases."""
    cases = ev.resolve(ev.spec.dataset.path, Problems(), "dataset", "path", what="dataset")
    return set() if cases is None else {cases.resolve()}


def _package(top: Path, project: Path, not_code: set[Path]) -> Iterator[Path]:
    """The files of a package in order: nothing hidden, no links that leave the project, no cases, builds or jobs."""
    for path in sorted(top.iterdir()):
        inside = not path.is_symlink() or (path.is_file() and path.resolve().is_relative_to(project.resolve()))
        if path.name.startswith(".") or path.name == "__pycache__" or not inside:
            continue
        if path.is_file() and path.suffix != ".pyc":
            yield path
        elif path.is_dir() and path.resolve() not in not_code and not _is_output(path):
            yield from _package(path, project, not_code)


def _is_output(folder: Path) -> bool:
    """Is it a folder that `build` or `run` wrote?"""
    return (folder / ".harbor-pack").exists() or (folder / "job.json").exists()


def _check_function(file: Path, function: str, name: str, where: tuple[Path, int | None], problems: Problems) -> None:
    """The module must be Python and bind the function's name; nothing of it is run."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        problems.error(f"{name}: no valid Python ({error.msg})", file, error.lineno, code="judge-syntax")
        return
    except (OSError, ValueError) as error:
        problems.error(f"{name}: cannot be read ({error})", file, code="judge-module")
        return
    bound = set(_names(tree.body))
    if function not in bound and not bound & {"*", "__getattr__"}:
        hint = f"it defines {', '.join(sorted(n for n in bound if not n.startswith('_'))[:8]) or 'nothing'}"
        problems.error(f"{name}: {file.name} has no function {function!r}", *where, hint=hint, code="judge-module")


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements at a module's level bind; ``*`` when an import brings unknown ones."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in names)
            case ast.Assign(targets=targets):
                yield from (t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
                handlers = [s for child in getattr(node, "handlers", []) for s in child.body]
                yield from _names(inner + handlers)
