"""Small evals for Harbor, whose images go with the module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .kit import Desk, MakeDesk


@pytest.fixture(scope="module")
def make_desk(base_image: str, harbor_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeDesk]:
    """Makes evals whose sandboxes are made from the base image that needs no registry."""
    made: list[Desk] = []

    def make() -> Desk:
        made.append(Desk(tmp_path_factory.mktemp("desk"), harbor_bin))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        yield make
    for desk in made:
        desk.forget()
