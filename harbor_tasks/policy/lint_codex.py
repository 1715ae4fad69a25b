"""What Codex cannot do of a policy that is written for Claude Code (facts/codex.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbor_tasks.policy.handlers import Handler
from harbor_tasks.policy.matchers import EDITS, covered, is_glob
from harbor_tasks.policy.tools import CLAUDE_TOOLS, CODEX_UNSEEN, CODEX_WIRE

if TYPE_CHECKING:
    from harbor_tasks.policy.lint import Reporter
    from harbor_tasks.policy.permissions import PermissionRules

SEARCHES = ("WebSearch", "WebFetch", "web_search", "webrun")
"""Its search runs at the provider, unseen by hooks: it is switched off where a rule is about one of these.

Only with some models a hook is told of it, as ``webrun``.
"""
_KNOWN_THERE = frozenset({"Agent", "AskUserQuestion", "Bash", "Task", "WebSearch", *EDITS})
_THROUGH_BASH = frozenset({"Read", "Grep", "Glob", "LS"})


def lint(report: Reporter, rules: PermissionRules) -> None:
    """Add a warning for each thing that Codex does not do, or does by denying."""
    ev, runner = report.ev, report.ev.spec.runner
    for which, texts in (("allow", rules.allow), ("deny", rules.deny)):
        for text in texts:
            if which == "allow" or text not in ("WebSearch", "web_search"):
                report.problems.warn(
                    f"permissions.{which}: {text} has no effect on codex, which knows no such rules", ev.file,
                    ev.line("permissions", which) or ev.line("permissions"),
                    hint="write a handler for the calls that must be stopped", code="codex-permissions",
                )  # fmt: skip
    without = {
        ("runner", "permission_mode"): runner.permission_mode not in (None, "bypassPermissions"),
        ("runner", "settings"): bool(runner.settings),
        ("models", "subagent"): ev.spec.models.subagent is not None,
        ("execution", "max_budget_usd"): ev.spec.execution.max_budget_usd is not None,
    }
    for keys in (keys for keys, given in without.items() if given):
        report.problems.warn(f"{'.'.join(keys)} has no effect on codex", ev.file, ev.line(*keys), code="codex-without")
    for at, handler in enumerate(report.h.handlers):
        for pattern in handler.patterns:
            if not is_glob(pattern) and pattern in CLAUDE_TOOLS - _KNOWN_THERE:
                message = f"names {pattern}, which codex does not have"
                hint = "there its calls go through Bash: write input_filters" if pattern in _THROUGH_BASH else ""
                report.warn(at, message, hint, code="codex-tool")
            elif pattern in CODEX_UNSEEN.keys() - set(SEARCHES):
                message = f"names {pattern}, which codex has and of which it tells no hook"
                report.warn(at, message, "name the tools that its calls lead to", code="codex-tool")
            elif pattern in CODEX_WIRE:
                message = f"names {pattern}, of which codex tells hooks as {CODEX_WIRE[pattern]}"
                report.warn(at, message, f"write {CODEX_WIRE[pattern]}", code="codex-tool")
        if handler.on_fail == "ask":
            report.warn(at, "asks on a failed check: on codex that is a deny", code="codex-ask")
        fields = sorted(_edit_fields(handler))
        if fields and covered("apply_patch", handler.patterns):
            message = f"looks at {', '.join(fields)} of edits, which codex makes as one patch text in 'command'"
            report.warn(at, message, "there every edit is denied, or write a check of 'command'", code="codex-fields")


def _edit_fields(handler: Handler) -> set[str]:
    """The fields of the input that the handler looks at, but for the one that a patch has."""
    named = {str(check["field"]) for check in handler.input_checks or ()} | set(handler.rewrite or ())
    return named - {"command"}
