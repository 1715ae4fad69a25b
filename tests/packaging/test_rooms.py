"""Each room says in its docstring what its files are: every one of them, and none that is gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import harbor_tasks

PACKAGE = Path(harbor_tasks.__file__).parent
ROOMS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(PACKAGE).as_posix())
def test_a_room_lists_its_files(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    items = re.sub(r"\n  +", " ", said).split("\n- ")[1:]
    named = {name for item in items for name in re.findall(r"(?<![\w/])(\w+\.py|\w+/(?!\w))", item)}
    rooms = {f"{path.parent.name}/" for path in room.glob("*/__init__.py")}
    assert named == {path.name for path in room.glob("*.py")} - {"__init__.py"} | rooms
