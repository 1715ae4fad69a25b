"""The process of the `harbor-pack` command: signals, errors without a traceback, the exit code.

The commands themselves are in commands/. Nothing slow is imported before Ctrl-C has its answer: one line, and 130.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType
    from typing import Any, NoReturn

    from harbor_tasks.errors import Problem

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = 130
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Ended(BaseException):
    """Ctrl-C or its like, outside a job. Not KeyboardInterrupt, of which Typer makes an exit without a word."""


def main() -> NoReturn:
    """Run the command of this process, and end it with the command's exit code."""
    end = Ending()
    try:
        end.listen()
        for name in ("stdout", "stderr"):
            stream: Any = getattr(sys, name)
            if stream is None:  # closed by the caller (2>&-): what is printed there must not go elsewhere
                setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - until the end of the process
            elif hasattr(stream, "reconfigure"):  # a C locale must not turn a case's text into a crash
                stream.reconfigure(encoding="utf-8", errors="replace")
        code = answer(sys.argv[1:])
        sys.stdout.flush()
        end.asked = True
    except Ended:
        code = _interrupted(sys.argv[1:], "interrupted")
    except BrokenPipeError:  # the reader of our output went away: not our fault, and nothing more to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    end.asked = True  # nothing is left to be ended in good order
    raise SystemExit(code)


class Ending:
    """What becomes of a signal: the first ends the command in good order, another one at once."""

    def __init__(self) -> None:
        self.asked = False

    def listen(self) -> None:
        """Be the handler of all signals that the caller does not ignore."""
        sys.unraisablehook = self._lost
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, self)

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        if self.asked:
            os._exit(_INTERRUPTED)
        self.asked = True
        raise Ended(number)

    def _lost(self, what: Any) -> None:
        """Python drops what is raised in a finalizer or at the end of an import: the signal comes again, elsewhere."""
        if not isinstance(what.exc_value, Ended):
            sys.__unraisablehook__(what)
            return
        [number] = what.exc_value.args
        self.asked = False
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
        signal.setitimer(signal.ITIMER_REAL, 0.01)


def answer(arguments: Sequence[str]) -> int:
    """Run the command of a command line; its exit code. What stops it is said on standard error, without a traceback.

    With ``--json`` there is one document on standard output, whatever happens: the command's own, or
    ``{"exit_code", "problems"}``, with the problems as `check` has them.
    """
    from pathlib import Path

    from harbor_tasks.errors import AuthorError, HarborPackError, InterruptedRun, MachineError, display_path
    from harbor_tasks.output import complain, documents, print_problems

    documents.clear()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except AuthorError as error:
        print_problems(error.problems)
        return _stopped(arguments, error.exit_code, error.problems)
    except InterruptedRun as error:
        return _interrupted(arguments, str(error))
    except HarborPackError as error:
        complain(f"error: {error}")
        return _stopped(arguments, error.exit_code, [_problem(str(error), "machine")])
    except BrokenPipeError:
        raise
    except OSError as error:  # a file or folder of the user's that cannot be read or written
        text = f"{display_path(Path(error.filename))}: {error.strerror}" if error.filename else str(error)
        if not error.filename and _output_is_lost(error.errno):
            text = f"standard output cannot be written ({error.strerror}): what was to be printed is lost"
        complain(f"error: {text}")
        return _stopped(arguments, MachineError.exit_code, [_problem(text, "machine")])
    return code


def _output_is_lost(why: int | None) -> bool:
    """Does standard output (a file on a full disk) take no more? It is let go then, so that nobody tries again.

    What could not be written is forgotten by then: only another line tells.
    """
    if why not in _FULL:
        return False
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _run(arguments: Sequence[str]) -> int:
    """The command itself. Typer's own complaints about the command line are shown as it has them."""
    import typer

    from harbor_tasks.commands import app
    from harbor_tasks.errors import AuthorError

    complaint: Any = typer.BadParameter.__mro__[2]  # Click's ClickException, wherever this version of Typer has it from
    try:
        return app(list(arguments), prog_name="harbor-pack", standalone_mode=False) or 0
    except complaint as error:
        error.show()
        return _stopped(arguments, AuthorError.exit_code, [_problem(error.format_message(), "usage")])


def _interrupted(arguments: Sequence[str], text: str) -> int:
    from harbor_tasks.output import complain

    complain(text)
    return _stopped(arguments, _INTERRUPTED, [_problem(text, "interrupted")])


def _stopped(arguments: Sequence[str], code: int, problems: Iterable[Problem]) -> int:
    """The document of a command that did not come to its own."""
    from harbor_tasks.output import print_json

    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in words:
        print_json({"exit_code": code, "problems": [problem.as_json() for problem in problems]})
    return code


def _problem(text: str, code: str) -> Problem:
    from harbor_tasks.errors import Problem, Where

    return Problem(text, Where(), code=code)


if __name__ == "__main__":
    main()
