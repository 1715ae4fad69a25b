"""One family of errors: what happened, where, what to do next, and the exit code that the command ends with.

Exit codes (DESIGN.md, Job): 130 interrupted; 2 the author's input; 3 this machine, the network or the sandbox;
1 a trial errored, vanished or is unjudged, or a threshold was missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

Level = Literal["error", "warning", "note"]
"""A note is true of every rule of its kind, and nothing that could be mended: `--strict` lets it be."""


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the author's files: a path, a line counted from 1, the id of a case."""

    path: Path | None = None
    line: int | None = None
    case: str | None = None

    def __str__(self) -> str:
        place = "" if self.path is None else display_path(self.path)
        if place and self.line is not None:
            place += f":{self.line}"
        case = f"case {self.case}" if self.case is not None else ""
        return f"{place} ({case})" if place and case else place or case


@dataclass(frozen=True, slots=True)
class Problem:
    """One error, warning or note about the author's input.

    ``message`` says what is wrong (lower case, no full stop), ``hint`` what to do. ``code`` is a stable word for
    programs (`--json`) and for tests.
    """

    message: str
    where: Where
    hint: str = ""
    level: Level = "error"
    code: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if str(self.where) else self.message
        return printable(f"{text}; {self.hint}" if self.hint else text)

    def as_json(self) -> dict[str, object]:
        """The problem as plain data: level, code, message, hint, path, line, case."""
        path = None if self.where.path is None else display_path(self.where.path)
        return {
            "level": self.level, "code": self.code, "message": self.message, "hint": self.hint,
            "path": path, "line": self.where.line, "case": self.where.case,
        }  # fmt: skip


class Problems:
    """Collects all problems of all files, so that the author sees them at once."""

    def __init__(self) -> None:
        self._items: dict[Problem, None] = {}  # in order, each once

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def error(
        self, message: str, path: Path | None = None, line: int | None = None, *, case: str | None = None,
        hint: str = "", code: str = "",
    ) -> None:  # fmt: skip
        """Add an error; ``line`` counts from 1."""
        self.add(Problem(message, Where(path, line, case), hint, "error", code))

    def warn(
        self, message: str, path: Path | None = None, line: int | None = None, *, case: str | None = None,
        hint: str = "", code: str = "",
    ) -> None:  # fmt: skip
        """Add a warning; ``line`` counts from 1."""
        self.add(Problem(message, Where(path, line, case), hint, "warning", code))

    def note(self, message: str, path: Path | None = None, line: int | None = None, *, hint: str, code: str) -> None:
        """Add a note; ``line`` counts from 1."""
        self.add(Problem(message, Where(path, line), hint, "note", code))

    def add(self, problem: Problem) -> None:
        """Add a problem once: the same text at the same place is not said again."""
        self._items.setdefault(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add several problems."""
        for problem in problems:
            self.add(problem)

    @property
    def errors(self) -> list[Problem]:
        """The problems that stop the command."""
        return [p for p in self._items if p.level == "error"]

    @property
    def notes(self) -> list[Problem]:
        """What is good to know of rules that are as they should be."""
        return [p for p in self._items if p.level == "note"]

    @property
    def warnings(self) -> list[Problem]:
        """The problems that do not stop the command."""
        return [p for p in self._items if p.level == "warning"]

    def strict(self, *codes: str) -> None:
        """Turn warnings into errors (`--strict`): all, or those with one of ``codes``."""
        self._items = dict.fromkeys(
            replace(p, level="error") if (not codes or p.code in codes) and p.level != "note" else p
            for p in self._items
        )

    def raise_errors(self) -> None:
        """Raise one AuthorError with all errors, if there are any."""
        if self.errors:
            raise AuthorError(self.errors)


class HarborPackError(Exception):
    """Base of all errors that the command prints without a traceback."""

    exit_code: ClassVar[int] = 1


class AuthorError(HarborPackError):
    """The author's input is wrong: eval.yaml, a case, a handler, an option of the command."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        self.problems = [Problem(problems, Where())] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class MachineError(HarborPackError):
    """This machine, the network or the sandbox cannot do what was asked; says how to get what is missing."""

    exit_code = 3


class InterruptedRun(HarborPackError):  # noqa: N818 - an interruption is no error of anybody
    """Ctrl-C or SIGTERM ended the run; what was finished is kept."""

    exit_code = 130


def display_path(path: Path) -> str:
    """The path as the author would type it from here: relative when it lies below the current folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def printable(text: str) -> str:
    """The text without what would drive a terminal (control characters, lone surrogates); newlines and tabs stay."""
    return "".join(ch if ch in "\n\t" or ch.isprintable() else f"\\x{ord(ch):02x}" for ch in text)
