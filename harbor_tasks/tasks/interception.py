"""The files that put the policy before the agent: hook script, handlers, settings (DESIGN.md, generate_interception)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harbor_tasks.policy.handlers import Handlers, Overrides

if TYPE_CHECKING:
    from harbor_tasks.evalspec.load import Eval

HOOK_TIMEOUT_SECONDS = 45


def interception_files(
    ev: Eval, handlers: Handlers | None, overrides: Overrides,
    *, home: str = "$CLAUDE_PROJECT_DIR", log: str | None = None, protect: bool = True,
) -> dict[str, bytes]:  # fmt: skip
    """Relative path -> content of one task's policy files. Pure; raises AuthorError when rules are wrong."""
    raise NotImplementedError


def generate_interception(
    target_dir: Path, config: Eval, hooks_command: str | None = None, resolved_handlers_path: Path | None = None
) -> list[Path]:
    """Write the policy files of an eval (no case's overrides) below ``target_dir``; returns what it wrote."""
    raise NotImplementedError
