"""The files that put the policy before the agent: hook script, handlers, settings (DESIGN.md, `generate_interception`).

A task's files differ from those of the eval's other tasks only in the overrides of tool_handlers.yaml and in its
SHA-256, which the registered command pins. So all else is rendered once for an eval, as an `Interception`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.envrefs import env_references
from harbor_tasks.evalspec.load import Eval
from harbor_tasks.evalspec.schema import HookBudget
from harbor_tasks.policy.handlers import (
    Handlers,
    Overrides,
    handlers_of,
    merged_overrides,
    read_handlers,
    task_handler,
)
from harbor_tasks.policy.matchers import hook_matcher, named
from harbor_tasks.policy.permissions import permissions_of
from harbor_tasks.policy.settings import runner_settings
from harbor_tasks.resources import resource

SCRIPT = "hooks/tools.py"
HANDLERS = "tool_handlers.yaml"
SETTINGS = ".claude/settings.json"
CODEX_HOOKS = ".codex/hooks.json"
PROJECT_DIR = "$CLAUDE_PROJECT_DIR"
#: Limit of the agent program in whole seconds; the interceptor denies by itself at 40 (a timeout fails open).
HOOK_TIMEOUT = 45
#: What the model reads when the interceptor could not run at all: no Python, no script, a crash, a signal.
WHY_REFUSED = "refused: the check that has to come before this call could not run"

_QUESTIONS = "request_user_input"
#: Also the one whose answer the model does not wait for.
_ANSWERED_AFTER = "request_user_input|request_user_input_async"
_PIN = "0" * 64
#: Characters that JSON leaves as they are, but YAML readers take for line breaks or refuse.
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


@dataclass(frozen=True)
class Interception:
    """What is the same for all cases of an eval.

    ``constant`` and ``pinned`` are files; the latter hold a pin of zeros in place of the SHA-256 of tool_handlers.yaml.
    ``handlers_head`` is the text of tool_handlers.yaml up to the overrides; empty when there are no handlers.
    """

    constant: Mapping[str, bytes]
    pinned: Mapping[str, bytes]
    handlers_head: str
    overrides: Overrides

    def files(self, own: Overrides) -> dict[str, bytes]:
        """Relative path -> content of one case's files, with the case's ``own`` overrides."""
        if not self.handlers_head:
            return {**self.constant, **self.pinned}
        answers = [f"  {_json(q)}: {_json(answer)}" for q, answer in merged_overrides(self.overrides, own).items()]
        tail = "{\n" + ",\n".join(answers) + "\n }" if answers else "{}"
        handlers = f'{self.handlers_head} "case_overrides": {tail}\n}}\n'.encode()
        pin = hashlib.sha256(handlers).hexdigest().encode()
        pinned = {path: content.replace(_PIN.encode(), pin) for path, content in self.pinned.items()}
        return {HANDLERS: handlers, **self.constant, **pinned}


_latest: tuple[tuple[Any, ...], Interception] | None = None


def interception_files(
    ev: Eval, handlers: Handlers | None, overrides: Overrides,
    *, home: str = PROJECT_DIR, log: str | None = None, protect: bool = True,
) -> dict[str, bytes]:  # fmt: skip
    """Relative path -> content of one task's policy files; no text in them has a carriage return.

    ``home`` is the folder of ``hooks/`` as the registered command names it; ``log`` the interception log, when it is
    not beside the handlers. ``protect``: the policy is within the agent's reach, so calls that could change it are
    covered.
    Pure, but that the hook script is read once. Raises AuthorError when permissions or settings are wrong.
    """
    global _latest  # noqa: PLW0603 - an eval's cases come one after the other, so one remembered eval is enough
    made_for = (id(ev), id(handlers), home, log, protect, ev, handlers)
    if _latest is None or _latest[0][:5] != made_for[:5]:
        _latest = (made_for, prepare(ev, handlers, hook_command(home, log), protect=protect))
    return _latest[1].files(overrides)


def generate_interception(
    target_dir: Path, config: Eval, hooks_command: str | None = None, resolved_handlers_path: Path | None = None
) -> list[Path]:
    """Write the policy files of an eval, without any case's overrides, below ``target_dir``; returns their paths.

    ``hooks_command`` starts the interceptor in place of a task's own command; its guard is added here. Policy files of
    an earlier call that are no longer needed are removed. Raises AuthorError with all errors before anything is
    written.
    """
    problems = Problems()
    if resolved_handlers_path is None:
        handlers = handlers_of(config, problems)
    else:
        handlers = read_handlers(resolved_handlers_path, problems, ev=config)
    problems.raise_errors()
    files = prepare(config, handlers, hooks_command or hook_command()).files({})
    for name in (SCRIPT, HANDLERS, SETTINGS, CODEX_HOOKS):
        if name not in files:
            _remove(target_dir / name, top=target_dir)
    for name, content in files.items():
        path = target_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return [target_dir / name for name in files]


def _remove(path: Path, *, top: Path) -> None:
    """Remove a file and, when that leaves it empty, its folder."""
    path.unlink(missing_ok=True)
    with suppress(OSError):
        if path.parent != top:
            path.parent.rmdir()


def hook_command(home: str = PROJECT_DIR, log: str | None = None) -> str:
    """The command that starts the interceptor; the pin in it is filled in for each case.

    In a task the path of the script is the text ``"$CLAUDE_PROJECT_DIR/hooks/tools.py"``, which staging replaces.
    """
    script = f'"{PROJECT_DIR}/{SCRIPT}"' if home == PROJECT_DIR else shlex.quote(f"{home.rstrip('/')}/{SCRIPT}")
    logged = "" if log is None else f" --log {shlex.quote(log)}"
    return f"python3 -I -S -E {script} --handlers-sha256 {_PIN}{logged}"


def prepare(ev: Eval, handlers: Handlers | None, command: str, *, protect: bool = True) -> Interception:
    """Render what an eval's cases have in common. Raises AuthorError when permissions or settings are wrong."""
    problems = Problems()
    settings = _settings(ev, problems)
    problems.raise_errors()
    hooked = {**settings, **_hooks(ev, handlers, command, protect=protect)} if handlers else settings
    pinned = {SETTINGS: _pretty(hooked)} if hooked else {}
    if handlers is None or not handlers.handlers:
        return Interception({}, pinned, "", {})
    if ev.spec.runner.type == "codex":
        pinned[CODEX_HOOKS] = _pretty(_codex_hooks(handlers, command, protect=protect))
    head = ",\n".join(f"  {_json(task_handler(handler))}" for handler in handlers.handlers)
    model = f' "hook_model": {_json(handlers.hook_model)},\n' if handlers.hook_model else ""
    budget = ev.spec.models.hook_budget
    if budget != HookBudget():
        model += f' "hook_budget": {_json(budget.model_dump())},\n'
    text = f'{{\n "handlers": [\n{head}\n ],\n{model}'
    return Interception({SCRIPT: _script()}, pinned, text, handlers.case_overrides)


def _settings(ev: Eval, problems: Problems) -> dict[str, Any]:
    """The settings without the hooks: permissions, literals of the environment, the author's other settings."""
    more = runner_settings(ev, problems)
    rules = permissions_of(ev, problems)
    lists = {"allow": list(rules.allow), "deny": list(rules.deny)}
    permissions = {**more.pop("permissions", {}), **{which: found for which, found in lists.items() if found}}
    literals = {name: value for name, value in ev.spec.execution.env.items() if env_references(value) is None}
    env = {**more.pop("env", {}), **literals}
    return {**({"permissions": permissions} if permissions else {}), **({"env": env} if env else {}), **more}


def _hooks(ev: Eval, handlers: Handlers, command: str, *, protect: bool) -> dict[str, Any]:
    """The key ``hooks`` of settings.json: one group, so that no call is decided twice.

    Of an eval for Codex it is what the agent `replay` goes by.
    """
    matcher = hook_matcher(_patterns(handlers), protect=protect, runtime=ev.spec.runner.type)
    if matcher is None:
        return {}
    after = _after(handlers, command) if ev.spec.runner.type == "codex" else {}
    return {"hooks": {"PreToolUse": [_group(matcher, command)], **after}}


def _codex_hooks(handlers: Handlers, command: str, *, protect: bool) -> dict[str, Any]:
    """The content of .codex/hooks.json; there a question is answered by what the hook says about its result."""
    patterns = _patterns(handlers)
    matcher = hook_matcher(patterns, protect=protect, runtime="codex")
    return {"hooks": {"PreToolUse": [_group(matcher or "*", command)], **_after(handlers, command)}}


def _after(handlers: Handlers, command: str) -> dict[str, Any]:
    """Of Codex's hooks the one that answers questions."""
    return {"PostToolUse": [_group(_ANSWERED_AFTER, command)]} if named(_QUESTIONS, _patterns(handlers)) else {}


def _patterns(handlers: Handlers) -> list[str]:
    return [pattern for handler in handlers.handlers for pattern in handler.patterns]


def _group(matcher: str, command: str) -> dict[str, Any]:
    """A hook that denies when it fails: the program would let the call through (facts, It must not fail open)."""
    guarded = f'{command} || {{ echo "{WHY_REFUSED}" >&2; exit 2; }}'
    return {"matcher": matcher, "hooks": [{"type": "command", "command": guarded, "timeout": HOOK_TIMEOUT}]}


def _pretty(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()


def _json(value: Any) -> str:
    """JSON on one line that any reader of YAML reads alike."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() and "\x7f" not in text else _NOT_YAML.sub(lambda ch: f"\\u{ord(ch[0]):04x}", text)


@cache
def _script() -> bytes:
    return resource("interceptor", "tools.py").read_bytes()
