"""Tool patterns: which names they catch, and the one hook matcher that covers them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Runtime = Literal["claude-code", "codex"]


def covered(tool: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns catches a call of ``tool`` under any of its names (``Task`` is ``Agent``)."""
    raise NotImplementedError


def hook_matcher(patterns: Iterable[str], *, protect: bool, runtime: Runtime = "claude-code") -> str | None:
    """The matcher of the one PreToolUse group; None when there is nothing to cover."""
    raise NotImplementedError
