"""What `check` says about handlers that are valid but do not do what their author may think."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbor_tasks.errors import Problems
from harbor_tasks.policy.handlers import Handlers

if TYPE_CHECKING:
    from harbor_tasks.evalspec.load import Eval

#: Warnings of this room that `--strict` turns into errors: rules that are not applied.
STRICT_CODES = ("hidden-handler", "unfiltered-bash", "catch-all")


def lint(h: Handlers | None, ev: Eval, problems: Problems) -> None:
    """Add warnings about the handlers, and errors about permissions and runner.settings, to ``problems``."""
    raise NotImplementedError
