"""Codex's record of its sessions as a transcript in the common form, by the script that also runs in sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harbor_tasks.resources import script_module

Line = dict[str, Any]


def transcript_of(folder: Path) -> Iterator[Line]:
    """The lines of all sessions below a folder, the agent's own first (interceptor/codex_transcript.py)."""
    yield from script_module("codex_transcript").transcript_of(str(folder))
