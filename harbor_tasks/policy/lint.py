"""What `check` says about handlers that are valid but do not do what their author may think.

Each finding is a warning with a code.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.envrefs import env_references
from harbor_tasks.evalspec.load import Eval
from harbor_tasks.policy import lint_codex
from harbor_tasks.policy.handlers import Handler, Handlers, task_handler
from harbor_tasks.policy.heuristic import mentions_scripts
from harbor_tasks.policy.matchers import covered, named, overlap, squeezed
from harbor_tasks.policy.permissions import permissions_of
from harbor_tasks.policy.settings import runner_settings
from harbor_tasks.policy.shadows import shadow_on
from harbor_tasks.resources import script_module

#: Warnings that `--strict` has to leave alone: what a rule cannot do at all, which no author can mend, and that an eval
#: has no judges, which one for its probes alone needs not.
ADVICE_CODES = ("text-filter", "no-judges")

_DIGEST_LINE = re.compile(rb"^#\s*inputs\.tools: sha256:([0-9a-f]{64})\s*$", re.MULTILINE)
_EXCEPT = re.compile(r"\b(?:except|excluding|other than|apart from|but not|all but)\b", re.IGNORECASE)
_EVALUATION = re.compile(
    r"\b(?:evals?|evaluations?|evaluated|benchmarks?|graders?|graded|test cases?)\b", re.IGNORECASE
)
_SHOWN = 60


class Reporter:
    """Adds warnings at the line of a handler, under the name that it has in the author's file."""

    def __init__(self, h: Handlers, ev: Eval, problems: Problems) -> None:
        self.h, self.ev, self.problems = h, ev, problems

    def name(self, at: int) -> str:
        """``handlers[0]`` of the resolved file or ``inputs.tools[0]`` of eval.yaml, with the start of its match."""
        match = " ".join(self.h.handlers[at].match.split())
        shown = match if len(match) <= _SHOWN else f"{match[:_SHOWN]}…"
        at = int(self.ev.where("inputs", "tools", at)[-1]) if self.h.source is None else at
        return f"{'inputs.tools' if self.h.source is None else 'handlers'}[{at}] ({shown!r})"

    def warn(self, at: int, message: str, hint: str = "", *, code: str) -> None:
        """A warning about the handler at this index."""
        path = self.h.source or self.ev.file
        self.problems.warn(f"{self.name(at)} {message}", path, self.h.handlers[at].line, hint=hint, code=code)


def lint(h: Handlers | None, ev: Eval, problems: Problems) -> None:
    """Add warnings about the handlers, and errors about permissions and runner.settings, to ``problems``."""
    runner_settings(ev, problems)
    rules = permissions_of(ev, problems)
    report = Reporter(h or Handlers(()), ev, problems)
    _dont_ask(report, rules.allow)
    if ev.spec.runner.type == "codex":
        lint_codex.lint(report, rules)
    _outdated(report)
    _same_names(report)
    for at, handler in enumerate(report.h.handlers):
        _hidden(report, at)
        _bash(report, at, handler)
        _catch_all(report, at, handler)
        _without_effect(report, at, handler)
        _environment(report, at, handler)
        if h is not None and h.source is None:
            _stage_one(report, at, handler)
        told = handler.reason or handler.match
        if _EVALUATION.search(told) and not all(named("AskUserQuestion", [p]) for p in handler.patterns):
            message = f"tells the agent in its reason that it is evaluated: {told[:_SHOWN]!r}"
            report.warn(at, message, "set a reason that speaks of the task alone", code="telltale-reason")
    _questions(report)


def _hidden(report: Reporter, at: int) -> None:
    """A handler none or only some of whose calls are left to it by the handlers before it."""
    handlers = report.h.handlers
    shadow = shadow_on(handlers, at, report.ev.spec.runner.type)
    if shadow is None:
        return
    by, one, other = report.name(shadow.by), handlers[at], handlers[shadow.by]
    if shadow.whole:
        same = (one.patterns, one.input_filters) == (other.patterns, other.input_filters)
        hint = "remove one of them" if same else "put the narrower one first"
        report.warn(at, f"never decides: {by} catches its calls first", hint, code="hidden-handler")
    else:
        report.warn(at, f"does not decide about {', '.join(shadow.lost)}: {by} does first", code="partly-hidden")


def _bash(report: Reporter, at: int, handler: Handler) -> None:
    if not handler.enforced:
        hint = "write input_filters for it in tool_handlers.yaml"
        message = "names Bash without input_filters: the interceptor skips it for every Bash command"
        report.warn(at, message, hint, code="unfiltered-bash")
    elif handler.input_filters and covered("Bash", handler.patterns):
        message = (
            "filters the text of commands, which does not show variables, base64, saved scripts or another program for "
            "the same request"
        )
        hint = "what must not be reached should be out of reach: see sandbox.network, and leave credentials out"
        report.warn(at, message, hint, code="text-filter")
    for regex in handler.input_filters or ():
        if re.search(regex, "", re.IGNORECASE) and regex not in (".*", "^", ""):
            message = f"has a filter that every command hits: {regex!r} matches nothing at all too"
            report.warn(at, message, code="filter-hits-all")


def _catch_all(report: Reporter, at: int, handler: Handler) -> None:
    if any(squeezed(pattern) == "*" for pattern in handler.patterns) and not handler.gates:
        why = "names no tool and so became '*'" if report.h.source is None else "catches '*'"
        hint = "name the tools that are meant, as AskUserQuestion, Bash or mcp__server__*"
        report.warn(at, f"{why}: it denies every call of every tool", hint, code="catch-all")


def _questions(report: Reporter) -> None:
    """AskUserQuestion is answered only by a handler that names it; a glob denies it."""
    tool = "AskUserQuestion"
    at = next((i for i, one in enumerate(report.h.handlers) if covered(tool, one.patterns)), None)
    if at is None or named(tool, report.h.handlers[at].patterns):
        return
    message = f"catches {tool} by a glob alone: every question is denied"
    report.warn(at, message, f"name {tool} in a handler before it to have questions answered", code="ask-by-glob")


def _without_effect(report: Reporter, at: int, handler: Handler) -> None:
    """Fields that say something about calls which the handler does not get."""
    unused = []
    if handler.input_filters and not covered("Bash", handler.patterns):
        unused.append("input_filters are searched in Bash commands only, and no pattern catches Bash")
    if handler.on_unanswered != "first_option" and not named("AskUserQuestion", handler.patterns):
        unused.append("on_unanswered is about questions, and no pattern names AskUserQuestion")
    if handler.approves and not handler.gates:
        unused.append("on_pass needs a check, and a handler without one denies")
    for message in unused:
        report.warn(at, f"has a field without effect: {message}", code="no-effect")


def _environment(report: Reporter, at: int, handler: Handler) -> None:
    """Environment checks that nothing satisfies: the literal that the eval sets fails, or nothing sets the variable."""
    spec = report.ev.spec
    others = {name for step in spec.execution.steps for name in step.env} | set(
        (spec.runner.settings or {}).get("env", ())
    )
    for name in handler.env_checks or {}:
        value = spec.execution.env.get(name)
        if name in others:
            continue  # one of several values holds, at one time or another
        if value is None:
            hint = f"set execution.env.{name}, as a literal or as ${name} of the caller"
            report.warn(at, f"checks {name}, which execution.env does not set", hint, code="env-check-unset")
        elif env_references(value) is None and not _passes(handler, name, value):
            message = f"denies every call: the value that execution.env gives {name} fails its check"
            report.warn(at, message, code="env-check-fails")


def _passes(handler: Handler, name: str, value: str) -> bool:
    """Whether the interceptor itself would take the value for this variable."""
    tools = script_module("tools")
    compiled = tools.load_handlers(json.dumps({"handlers": [task_handler(handler)]}).encode())
    return bool(tools.part("env")["env_value_passes"](compiled["handlers"][0]["env_checks"][name], value))


def _stage_one(report: Reporter, at: int, handler: Handler) -> None:
    """What stage 1 cannot read out of a text."""
    if _EXCEPT.search(handler.match):
        message = f"speaks of an exception, which is not understood: it became {', '.join(handler.patterns)}"
        report.warn(at, message, "name only the tools that are meant, or write tool_handlers.yaml", code="exception")
    if mentions_scripts(handler.match) and not covered("Bash", handler.patterns):
        message = (
            f"speaks of scripts or an API, which are reached through Bash: it became {', '.join(handler.patterns)}"
        )
        hint = "write tool_handlers.yaml with a handler that names Bash and has input_filters"
        report.warn(at, message, hint, code="scripts-not-covered")


# The eval around the handlers.


def inputs_digest(ev: Eval) -> str:
    """SHA-256, hex, of ``inputs.tools``: what a resolved tool_handlers.yaml was made from."""
    tools = [[tool.match, tool.prompt, tool.prompt_file] for tool in ev.spec.inputs.tools]
    return hashlib.sha256(json.dumps(tools).encode("utf-8", "surrogatepass")).hexdigest()


def digest_line(ev: Eval) -> str:
    """The comment at the head of a resolved tool_handlers.yaml that tells what it was made from."""
    return f"# inputs.tools: sha256:{inputs_digest(ev)}\n"


def _outdated(report: Reporter) -> None:
    """A resolved file says in its head what it was made from; one without such a line was written by hand."""
    source = report.h.source
    if source is None or not report.ev.spec.inputs.tools:
        return
    found = _DIGEST_LINE.search(_head(source))
    if found and found[1].decode() != inputs_digest(report.ev):
        report.problems.warn(
            f"was made from other inputs.tools than {report.ev.file.name} holds now", source, 1,
            hint="resolve the eval again, or take the line out when the handlers are right", code="outdated-handlers",
        )  # fmt: skip


def _same_names(report: Reporter) -> None:
    """Probes of both files stand in one table of results."""
    own = {probe.name for probe in report.ev.spec.probes}
    for probe in report.h.probes:
        if probe.name in own:
            report.problems.error(
                f"has a probe {probe.name!r}, as {report.ev.file.name} has one", report.h.source,
                hint="rename one of them", code="probe-names",
            )  # fmt: skip


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _dont_ask(report: Reporter, allow: Iterable[str]) -> None:
    """With `dontAsk` a tool that no rule allows is refused without a word; a handler's allow counts too."""
    ev = report.ev
    if ev.spec.runner.permission_mode != "dontAsk":
        return
    allowed = [rule.partition("(")[0] for rule in allow]
    allowed += [f"{rule}__*" for rule in allowed if rule.startswith("mcp__") and rule.count("__") == 1]
    for handler in report.h.handlers:
        if handler.approves:
            allowed += handler.patterns
    needed = {f"mcp__{server.name}__*": "mcp_servers" for server in ev.spec.mcp_servers}
    for at, handler in enumerate(report.h.handlers):
        if handler.gates and not handler.approves:
            needed.update({pattern: report.name(at) for pattern in handler.patterns})
    missing = {tool: why for tool, why in needed.items() if not any(overlap(tool, rule) for rule in allowed)}
    writers = ("Write", "Edit", "NotebookEdit", "Bash")
    if any(output.path for output in ev.spec.outputs) and not any(covered(tool, allowed) for tool in writers):
        missing["Write"] = "outputs"
    for tool, why in missing.items():
        ev_line = ev.line("permissions", "allow")
        report.problems.warn(
            f"permissions.allow does not name {tool}, which {why} needs: permission_mode dontAsk refuses it", ev.file,
            ev_line, hint=f"add {tool} to permissions.allow", code="incomplete-allow",
        )  # fmt: skip
