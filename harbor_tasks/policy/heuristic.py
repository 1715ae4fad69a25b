"""Stage 1: from a `match` in plain words to tool patterns (DESIGN.md, From `match` to rules)."""

from __future__ import annotations


def patterns_of(match: str) -> tuple[str, ...]:
    """The tool patterns that a ``match`` text names, in order of appearance; ``("*",)`` when it names none."""
    raise NotImplementedError
