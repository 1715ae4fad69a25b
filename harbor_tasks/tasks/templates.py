"""Templates: the author's (`execution.prompt`, `.arguments`) and our own of ``templates/task``.

An author's template is Jinja when it holds a mark of Jinja, else plain text with ``{field}`` and ``{field?}``. It sees
one name, ``input``; values are put in as they are and never rendered again. A template that does more than put values
in (it multiplies, calls, loops in loops …) is rendered in a process with limits: it could be a bomb.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import resource as limits
import select
import shlex
import signal
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from harbor_tasks.errors import Problem, Problems
from harbor_tasks.resources import resource
from harbor_tasks.tasks.template_cost import line_that_computes

MAX_CHARACTERS = 4 << 20
"""Of a rendered text: more than any model reads."""
MAX_SECONDS = 2
MAX_MEMORY = 512 << 20
"""What the rendering of a template that computes may take: seconds of CPU, bytes beside those of the build."""
_WAIT_SECONDS = 20.0  # for those seconds, on a busy machine
_TOO_LONG = f"would be longer than {MAX_CHARACTERS >> 20} Mi characters"
_TOO_COSTLY = f"takes more than {MAX_SECONDS} s or {MAX_MEMORY >> 20} MiB to render"
_SMALLER = "an instruction is a text for a reader: put large data into files/"

_FIELD = re.compile(r"\{([^\W\d]\w*)(\??)\}")
_FILE_NAME = "<template>"
_FROM_STEPS = "results of earlier steps are not known when a task is built"


def render_arguments(
    template: str, data: Any, *, path: Path, line: int | None, case: str | None, problems: Problems,
    steps: Mapping[str, Any] | None = None, what: str = "execution.arguments",
) -> str | None:  # fmt: skip
    """The text of an author's template for one case's input; None with an error in ``problems``.

    ``what`` is the key that holds the template, ``line`` its line in ``path``. ``steps`` are results of earlier steps;
    a build has none.
    """
    place = _Place(template, what, path, line, case, problems)
    if is_jinja(template):
        return _render_jinja(place, data, steps)
    return _render_fields(place, data)


def is_jinja(template: str) -> bool:
    """Whether a template is read as Jinja; else only ``{field}`` and ``{field?}`` are replaced."""
    return "{{" in template or "{%" in template or ("{#" in template and "#}" in template)


@dataclass(frozen=True, slots=True)
class _Place:
    """A template and where it stands, for what is said about it."""

    template: str
    what: str
    path: Path
    line: int | None
    case: str | None
    problems: Problems

    def error(self, message: str, at: int | None, *, hint: str = "", code: str, all_cases: bool = False) -> None:
        """Add an error; ``at`` is the line within the template, which is named when the template has several."""
        several = "\n" in self.template.rstrip("\n")
        inside = f"{self.what}, line {at} of the template" if at and several else self.what
        case = None if all_cases else self.case
        self.problems.error(f"{inside}: {message}", self.path, self.line, case=case, hint=hint, code=code)

    def not_a_mapping(self, data: Any) -> None:
        """The template wants fields of an input that has none."""
        kind = "a list" if isinstance(data, list) else "empty" if data is None else "a single value"
        self.error(
            f"the case's input is {kind}, but fields of it are used", None,
            hint="write the input as a mapping of fields", code="template-input",
        )  # fmt: skip


def _render_fields(place: _Place, data: Any) -> str | None:
    """The brace form: ``{field}`` must be there, ``{field?}`` may be missing; any other brace is text."""
    if not _FIELD.search(place.template):
        return place.template
    if not isinstance(data, Mapping):
        place.not_a_mapping(data)
        return None
    missing: list[re.Match[str]] = []
    length = len(place.template)

    def value(found: re.Match[str]) -> str:
        nonlocal length
        given = data.get(found[1])
        if given is None and not found[2]:
            missing.append(found)
        text = "" if given is None or length > MAX_CHARACTERS else as_text(given)
        length += len(text)
        return text

    text = _FIELD.sub(value, place.template)
    if length > MAX_CHARACTERS:
        place.error(_TOO_LONG, None, hint=_SMALLER, code="template-size")
        return None
    for found in missing:
        place.error(
            f"Required field '{found[1]}' is missing (input.{found[1]})",
            place.template.count("\n", 0, found.start()) + 1,
            hint=f"add {found[1]} to the case's input, or write {{{found[1]}?}} if it may be missing",
            code="missing-field",
        )
    return None if missing else text


def _render_jinja(place: _Place, data: Any, steps: Mapping[str, Any] | None) -> str | None:
    try:
        computes = _computes(place.template)
        compiled = _compiled(place.template)
    except TemplateSyntaxError as error:
        place.error(f"wrong template syntax ({error.message})", error.lineno, code="template-syntax", all_cases=True)
        return None
    except RecursionError:
        place.error("is nested too deeply", None, code="template-syntax", all_cases=True)
        return None
    if not isinstance(data, Mapping):
        place.not_a_mapping(data)
        return None
    names: dict[str, Any] = {"input": data} if steps is None else {"input": data, "steps": steps}
    if computes is None:
        return _rendered(place, compiled, names)
    return _rendered_apart(place, compiled, names, computes)


@lru_cache(maxsize=256)
def _computes(template: str) -> int | None:
    """The line of what may make a template costly; None when its cost is bounded by its values."""
    return line_that_computes(_author_environment().parse(template))


_costly: set[str] = set()
"""Templates that were found to be too costly with one case: they are not tried with the others."""


def _rendered_apart(place: _Place, compiled: Template, names: Mapping[str, Any], line: int) -> str | None:
    """As `_rendered`, by a process that may use only so much time and memory; ``line`` is what may need them."""
    answer = None if place.template in _costly else _asked(place, compiled, names)
    if answer is None:
        _costly.add(place.template)
        place.error(_TOO_COSTLY, line, hint=_SMALLER, code="template-size")
        return None
    text, problems = answer
    place.problems.extend(problems)
    return text


def _asked(place: _Place, compiled: Template, names: Mapping[str, Any]) -> tuple[str | None, list[Problem]] | None:
    """What a child process makes of a template; None when it reached a limit."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the child only renders
        child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(place, compiled, names, writer)
    os.close(writer)
    data = bytearray()
    deadline = time.monotonic() + _WAIT_SECONDS
    try:
        while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            chunk = os.read(reader, 1 << 18)
            if not chunk:
                break
            data += chunk
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not data.endswith(_END):
        return None
    answer: tuple[str | None, list[Problem]] = pickle.loads(data)  # noqa: S301 - from our own child
    return answer


_END = b"rendered"


def _answer(place: _Place, compiled: Template, names: Mapping[str, Any], writer: int) -> NoReturn:
    """The life of the child: render within the limits, send, end."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        limits.setrlimit(limits.RLIMIT_CORE, (0, 0))
        limits.setrlimit(limits.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
        with contextlib.suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            most = pages * limits.getpagesize() + MAX_MEMORY
            limits.setrlimit(limits.RLIMIT_AS, (most, most))
        own = Problems()
        text = _rendered(replace(place, problems=own), compiled, names)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps((text, list(own))) + _END)
    finally:
        os._exit(0)


def _rendered(place: _Place, compiled: Template, names: Mapping[str, Any]) -> str | None:
    parts: list[str] = []
    length = 0
    try:
        stream: Any = compiled.generate(names)
        for part in stream:
            parts.append(part)
            length += len(part)
            if length > MAX_CHARACTERS:
                line = compiled.get_corresponding_lineno(stream.gi_yieldfrom.gi_frame.f_lineno)
                place.error(_TOO_LONG, line, hint=_SMALLER, code="template-size")
                return None
        return "".join(parts)
    except MemoryError as error:
        parts.clear()
        place.error(_TOO_COSTLY, _line_of(error.__traceback__), hint=_SMALLER, code="template-size")
    except _EmptyValueError as error:
        at = _line_of(error.__traceback__)
        empty = [e for e in _expressions(place.template, at) if _is_empty(e, names)] or ["a value"]
        place.error(
            f"Missing required field ({', '.join(empty)} is empty)", at, code="missing-field",
            hint="give it a value in the case's input, or write {{ … or '' }}",
        )  # fmt: skip
    except UndefinedError as error:
        _undefined(place, error)
    except SecurityError as error:
        place.error(f"not permitted: {error}", _line_of(error.__traceback__), code="template-unsafe")
    except Exception as error:  # noqa: BLE001 - a template may fail in any way; that is the author's to mend
        place.error(f"cannot be rendered ({error})", _line_of(error.__traceback__), code="template-error")
    return None


def _undefined(place: _Place, error: UndefinedError) -> None:
    name = getattr(error, "name", None)
    at = _line_of(error.__traceback__)
    found = [e for e in _expressions(place.template, at) if name is not None and e.split(".")[-1] == name]
    expression = found[0] if found else None
    root = (expression or "").split(".")[0]
    if root == "steps":
        hint = _FROM_STEPS
    elif expression is not None and root != "input":
        hint = f"fields of the case are written input.{expression}"
    else:
        hint = "add it to the case's input, or write {{ … | default('') }} if it may be missing"
    subject = f"'{name}' ({expression})" if expression else f"({error.message})"
    place.error(f"Missing required field {subject}", at, hint=hint, code="missing-field")


class _EmptyValueError(Exception):
    """An expression gave null, or something that is no value at all, where text is wanted."""


class _NamedUndefinedError(UndefinedError):
    """Knows the name that was missing."""

    def __init__(self, message: str | None, name: str | None) -> None:
        super().__init__(message)
        self.name = name


class _Undefined(StrictUndefined):
    """Any use of what is not there is an error that knows the name."""

    __slots__ = ()

    def __init__(self, hint: str | None = None, obj: Any = None, name: str | None = None, exc: Any = None) -> None:
        del exc  # always ours
        super().__init__(hint, obj, name, lambda message: _NamedUndefinedError(message, name))  # type: ignore[arg-type]


class _AuthorEnvironment(ImmutableSandboxedEnvironment):
    """Jinja for authors: sandboxed, without what differs from run to run; a field beats a method of the same name."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``input.items`` is the field of that name if the case has one."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


@cache
def _author_environment() -> _AuthorEnvironment:
    # Nothing is worked out while a template is compiled: it has no limits then.
    env = _AuthorEnvironment(undefined=_Undefined, keep_trailing_newline=True, finalize=_printed, optimized=False)
    del env.globals["lipsum"], env.filters["random"]
    return env


@lru_cache(maxsize=256)
def _compiled(template: str) -> Template:
    return _author_environment().from_string(template)


@pass_context
def _printed(_context: Context, value: Any) -> Any:
    """What an expression of an author's template prints as; that it takes the context keeps it from being run early."""
    if isinstance(value, (str, _Undefined)):
        return value
    if value is None or callable(value):
        raise _EmptyValueError
    return as_text(value)


def as_text(value: Any) -> str:
    """A value of an input as text in a prompt: as JSON writes it, texts as they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _line_of(trace: TracebackType | None) -> int | None:
    """The line of the template in which an error arose."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _expressions(template: str, line: int | None) -> Iterator[str]:
    """The dotted names (``input.a.b``) of a template, those in ``line`` first."""
    tree = _author_environment().parse(template)
    found = [
        (node.lineno != line, _dotted(node)) for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Name))
    ]  # fmt: skip
    yield from (name for _elsewhere, name in sorted(found, key=lambda f: f[0]) if name)


def _dotted(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        base, last = _dotted(node.node), node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        base, last = _dotted(node.node), str(node.arg.value)
    else:
        return None
    return f"{base}.{last}" if base else None


def _is_empty(expression: str, names: Mapping[str, Any]) -> bool:
    """Whether this dotted name leads to null."""
    value: Any = names
    for part in expression.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return value is None


@cache
def _task_environment() -> Environment:
    env = Environment(  # noqa: S701 - no HTML is made here
        loader=FileSystemLoader(resource("templates", "task"), encoding="utf-8"), undefined=StrictUndefined,
        keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    env.filters["sh"] = shlex.quote
    return env


@cache
def _task_template(name: str) -> Template:
    return _task_environment().get_template(name)


def render_task_file(name: str, **values: Any) -> str:
    """A file of ``templates/task``, by its path there, with these values; texts for a shell go through ``| sh``."""
    return _task_template(name).render(values)
