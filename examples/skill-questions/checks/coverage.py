"""A judge of the release notes: how much of what the chosen sections should hold is really there."""

from __future__ import annotations

import re
from typing import Any

KINDS = {"New features": "feature", "Fixes": "fix", "Security, privacy": "security", "Upgrade steps": "breaking"}
CHANGE = re.compile(r"^- \[(\w+)\] (.+?)\s*$", re.M)


def words(text: str) -> set[str]:
    """The words of a line that carry its meaning."""
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3}


def coverage(outputs: dict[str, Any], arguments: dict[str, Any], annotations: dict[str, Any]) -> tuple[float, str]:
    """The share of the changes that should be told and are: (0 to 1, reason).

    A change counts as told when a line of the notes holds at least ``arguments["share"]`` of its words.
    """
    files = outputs.get("files", {})
    lines = [words(line) for line in files.get("RELEASE_NOTES.md", "").splitlines() if line.startswith("- ")]
    kinds = {KINDS[section] for section in annotations["sections"]}
    if annotations["audience"] == "Engineering":
        kinds.add("internal")
    due = [text for kind, text in CHANGE.findall(files.get("CHANGES.md", "")) if kind in kinds]
    share = float(arguments.get("share", 0.6))
    lost = [text for text in due if not any(len(words(text) & line) >= share * len(words(text)) for line in lines)]
    if not due:
        return 1.0, "nothing to tell"
    return 1 - len(lost) / len(due), "lost: " + "; ".join(lost) if lost else f"all {len(due)} changes are told"
