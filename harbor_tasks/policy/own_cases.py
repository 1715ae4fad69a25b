"""Calls that a handler is about, made from the handler itself: with them environments are compared.

They say nothing of which decision is right (that is what an eval's probes are for), only that it must be the same
everywhere: for each tool that a handler names a bare call, one that its checks let pass as far as that can be told, and
for Bash a command in which each filter is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harbor_tasks.policy.handlers import Handler, Handlers
from harbor_tasks.policy.probes import Probe
from harbor_tasks.policy.regex_timer import example_texts

_QUESTIONS = "AskUserQuestion"
_AT_MOST = 60
"""Cases of one eval: a policy of many rules is still asked in seconds."""


def own_cases(handlers: Handlers | None) -> tuple[Probe, ...]:
    """The cases of all handlers, in their order; ``expect`` has no meaning in them."""
    if handlers is None:
        return ()
    found = [case for at, handler in enumerate(handlers.handlers) for case in _of_handler(at, handler, handlers)]
    return tuple(found[:_AT_MOST])


def _of_handler(at: int, handler: Handler, handlers: Handlers) -> Iterator[Probe]:
    for pattern in handler.patterns:
        tool = pattern.replace("*", "x").replace("?", "x")
        tool = "SomeTool" if tool.strip("x") == "" else tool
        for what, given in _inputs(tool, handler, handlers):
            yield _case(at, tool, what, given, {})
            if handler.env_checks:
                yield _case(at, tool, f"{what}, variables that pass", given, _passing_env(handler.env_checks))


def _case(at: int, tool: str, what: str, given: dict[str, Any], env: dict[str, str]) -> Probe:
    return Probe(name=f"handlers[{at}] {tool}: {what}", tool=tool, input=given, expect="none", env=env)


def _inputs(tool: str, handler: Handler, handlers: Handlers) -> Iterator[tuple[str, dict[str, Any]]]:
    if tool == "Bash":
        yield "any command", {"command": "true"}
        for number, regex in enumerate(handler.input_filters or ()):
            for text in example_texts(regex, re.IGNORECASE)[:1]:
                if "\0" not in text:
                    yield f"filter {number}", {"command": text}
    elif tool == _QUESTIONS:
        yield "a question that nobody foresaw", _question("Which of the two?", ["This", "That"])
        for question, answer in list(handlers.case_overrides.items())[:3]:
            labels = [answer] if isinstance(answer, str) else list(answer)
            yield f"the question {question!r}", _question(question, [*labels, "Something else"])
    else:
        yield "no input", {}
        if handler.input_checks or handler.rewrite:
            yield "input that passes", _passing_input(handler)


def _question(text: str, labels: list[str]) -> dict[str, Any]:
    options = [{"label": label, "description": label} for label in dict.fromkeys(labels)]
    return {"questions": [{"question": text, "header": "Choice", "multiSelect": False, "options": options}]}


def _passing_input(handler: Handler) -> dict[str, Any]:
    """An input that can be rewritten and passes each check by itself; of two checks on one field the later one's."""
    given: dict[str, Any] = {}
    for name in handler.rewrite or {}:
        _set(given, name, "x")
    for check in handler.input_checks or ():
        _set(given, str(check["field"]), _passing_value(str(check["op"]), check.get("value")))
    return given


def _set(given: dict[str, Any], path: str, value: Any) -> None:
    *folders, name = path.split(".")
    for folder in folders:
        inner = given.setdefault(folder, {})
        if not isinstance(inner, dict):
            return
        given = inner
    given[name] = value


def _passing_value(op: str, value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if op in ("lt", "gt") and number:
        return value - 1 if op == "lt" else value + 1
    if op == "in":
        return value[0] if value else "x"
    if op == "matches":
        return next(iter(example_texts(str(value))), "x")
    if op == "glob":
        return str(value).replace("*", "x").replace("?", "x")
    return "something else" if op in ("ne", "not_in") else "x" if op == "exists" else value


def _passing_env(checks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    env = {}
    for name, check in checks.items():
        if "equals" in check:
            env[name] = str(check["equals"])
        elif "host_in" in check:
            env[name] = f"http://{str(check['host_in'][0]).replace('*', 'x')}/"
        elif "must_contain" in check:
            env[name] = str(check["must_contain"][0])
        elif "matches" in check:
            env[name] = next(iter(example_texts(str(check["matches"]))), "x")
    return env
