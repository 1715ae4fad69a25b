"""A strict reader of YAML and JSON: every value keeps its line, every fault of the file is a Problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problems


@dataclass(frozen=True)
class Document:
    """What a file holds: plain data, and the line of each key and item."""

    path: Path
    data: Any

    def line(self, *keys: str | int) -> int | None:
        """The line of this key or item, or of the nearest one above it; counted from 1."""
        raise NotImplementedError


def load_yaml(
    path: Path, problems: Problems, *, texts: bool = False, text_under: tuple[str, ...] = (), case: str | None = None,
    lines: bool = True,
) -> Document | None:  # fmt: skip
    """Read a file; None when it cannot be used (the reason is in ``problems``)."""
    raise NotImplementedError


def parse_yaml(
    text: str | bytes, path: Path, problems: Problems, *, texts: bool = False, text_under: tuple[str, ...] = (),
    case: str | None = None, lines: bool = True,
) -> Document | None:  # fmt: skip
    """Read a text that came from ``path``."""
    raise NotImplementedError
