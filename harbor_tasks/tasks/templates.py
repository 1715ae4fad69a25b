"""Templates: the author's (`execution.prompt`, `.arguments`) and our own of ``templates/task``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problems


def render_arguments(
    template: str, data: Any, *, path: Path, line: int | None, case: str | None, problems: Problems,
    steps: Mapping[str, Any] | None = None, what: str = "execution.arguments",
) -> str | None:  # fmt: skip
    """The text of an author's template for one case's input; None with an error in ``problems``.

    ``what`` is the key that holds the template, ``line`` its line in ``path``. ``steps`` are results of earlier steps;
    a build has none.
    """
    raise NotImplementedError
