"""Modules of judges: where they are in the author's project, and what of it goes into ``tests/lib``."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval
from harbor_tasks.evalspec.paths import is_file, is_folder, is_there

MAX_FILES = 2000
MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class LibFile:
    """One file of a judge's module: its place below ``tests/lib`` (posix) and where it is now."""

    path: str
    source: Path


def module_files(ev: Eval, at: int, module: str, function: str, problems: Problems) -> list[LibFile]:
    """All files of the top package (or the one module) that ``judges[at].module`` names, and those of the project that
    they import; errors go to ``problems``.

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
    files = _Closure(ev, base, name, problems).of(parts[0], file)
    size = sum(file.source.stat().st_size for file in files)
    if len(files) > MAX_FILES or size > MAX_BYTES:
        problems.error(
            f"{name}: {module!r} and what it imports are too big for every task ({len(files)} files, "
            f"{size // 1024} KiB)",
            ev.file, line, hint="put the judges into a small package of their own", code="judge-module",
        )  # fmt: skip
        return []
    return files


class _Closure:
    """The files of a module and of what it imports, as far as that lies in the project."""

    def __init__(self, ev: Eval, base: Path, name: str, problems: Problems) -> None:
        self.ev, self.name, self.problems = ev, name, problems
        self.bases = tuple(dict.fromkeys((base, ev.root, ev.project)))
        self.not_code = _not_code(ev)
        self.files: dict[str, LibFile] = {}

    def of(self, top: str, file: Path) -> list[LibFile]:
        """The files of the top package, or the one module ``file``, with those that they import, and so on."""
        taken = {top}
        pending = self._take(self.bases[0], top, file)
        while pending:
            current = pending.pop()
            for imported, line, needed in _imports(current.source):
                first = imported[0]
                if first in taken or first in sys.stdlib_module_names:
                    continue
                found = _find(self.ev, list(imported), self.bases) or _find(self.ev, [first], self.bases)
                if found is not None:
                    taken.add(first)
                    pending += self._take(found[0], first, found[1])
                elif needed and _find(self.ev, [first], (current.source.parent,)):
                    self._beside(first, current, line)
            if len(self.files) > MAX_FILES:
                break
        return list(self.files.values())

    def _take(self, base: Path, top: str, file: Path) -> list[LibFile]:
        """The files of the package that ``file`` is of, or itself; those in which imports are looked for."""
        paths = [file]
        if file.parent != base:
            paths = list(_package(base / top, self.ev.project, self.not_code, self.problems))
        made = [LibFile(path.relative_to(base).as_posix(), path) for path in paths if self._can_be_read(path)]
        self.files.update((file.path, file) for file in made)
        return [file for file in made if file.path.endswith(".py")]

    def _can_be_read(self, path: Path) -> bool:
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError as error:
            self.problems.error(f"{self.name}: cannot be read ({error.strerror})", path, code="judge-module")
            return False
        return True

    def _beside(self, name: str, file: LibFile, line: int) -> None:
        package = file.path.rpartition("/")[0].replace("/", ".")
        self.problems.error(
            f"{self.name}: imports {name!r}, which is found only beside it and not by this name", file.source, line,
            hint=f"write: from {package} import {name}", code="judge-module",
        )  # fmt: skip


def _imports(file: Path) -> list[tuple[tuple[str, ...], int, bool]]:
    """What a file imports by absolute names: the parts of each, its line, and whether nothing is tried in its place."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # of the judge's own module that is said; another may never be imported
    tried = {id(node) for outer in ast.walk(tree) if isinstance(outer, ast.Try) for node in ast.walk(outer)}
    found: list[tuple[tuple[str, ...], int, bool]] = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found += [(tuple(one.split(".")), getattr(node, "lineno", 1), id(node) not in tried) for one in names]
    return found


def _find(ev: Eval, parts: list[str], bases: Sequence[Path] = ()) -> tuple[Path, Path] | None:
    """The folder from which the module is imported, and its file."""
    for base in bases or (ev.root, ev.project):
        place = base.joinpath(*parts)
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if is_file(file) and file.resolve().is_relative_to(ev.project.resolve()):
                return base, file
    return None


def _not_code(ev: Eval) -> set[Path]:
    """Folders of the project that are no part of a package: the cases."""
    cases = ev.resolve(ev.spec.dataset.path, Problems(), "dataset", "path", what="dataset")
    return set() if cases is None else {cases.resolve()}


def _package(top: Path, project: Path, not_code: set[Path], problems: Problems) -> Iterator[Path]:
    """The files of a package in order: nothing hidden, no links that leave the project, no cases, builds or jobs."""
    try:
        paths = sorted(top.iterdir())
    except OSError as error:
        problems.error(f"cannot be read ({error.strerror})", top, code="judge-module")
        return
    for path in paths:
        if path.name.startswith(".") or path.name == "__pycache__" or path.suffix == ".pyc":
            continue
        inside = not path.is_symlink() or (is_file(path) and path.resolve().is_relative_to(project.resolve()))
        if is_folder(path) and inside:
            if path.resolve() not in not_code and not _is_no_code(path):
                yield from _package(path, project, not_code, problems)
        elif is_file(path) and inside:
            yield path
        else:
            says = "a pipe, socket or device" if inside else "a link to a folder, or one that leaves the project"
            problems.warn(f"is {says}, and is not packed with the judge's module", path, code="not-packed-module")


def _is_no_code(folder: Path) -> bool:
    """Is it a folder that `build` or `run` wrote, or one of installed packages?"""
    return any(is_there(folder / name) for name in (".harbor-pack", "job.json", "pyvenv.cfg"))


def _check_function(file: Path, function: str, name: str, where: tuple[Path, int | None], problems: Problems) -> None:
    """The module must be Python and bind the function's name; nothing of it is run."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        problems.error(f"{name}: no valid Python ({error.msg})", file, error.lineno, code="judge-syntax")
        return
    except OSError:
        return  # said when it is packed
    except (ValueError, RecursionError, MemoryError) as error:
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
