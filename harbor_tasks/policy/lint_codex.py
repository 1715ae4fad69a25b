"""What Codex cannot do of a policy that is written for Claude Code (facts/codex.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbor_tasks.policy.handlers import Handler
from harbor_tasks.policy.matchers import EDITS, covered, is_glob
from harbor_tasks.policy.tools import CLAUDE_TOOLS

if TYPE_CHECKING:
    from harbor_tasks.policy.lint import Reporter

_KNOWN_THERE = frozenset({"Bash", "AskUserQuestion", *EDITS})
_THROUGH_BASH = frozenset({"Read", "Grep", "Glob", "LS"})


def lint(report: Reporter, has_permissions: bool) -> None:
    """Add a warning for each thing that Codex does not do, or does by denying."""
    ev = report.ev
    if has_permissions:
        report.problems.warn(
            "permissions have no effect on codex, which knows no such rules", ev.file, ev.line("permissions"),
            hint="write handlers for the calls that must be stopped", code="codex-permissions",
        )  # fmt: skip
    for at, handler in enumerate(report.h.handlers):
        for pattern in handler.patterns:
            if not is_glob(pattern) and pattern in CLAUDE_TOOLS - _KNOWN_THERE:
                message = f"names {pattern}, which codex does not have"
                hint = "there its calls go through Bash: write input_filters" if pattern in _THROUGH_BASH else ""
                report.warn(at, message, hint, code="codex-tool")
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
