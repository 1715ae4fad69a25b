"""What is done to a program's hook itself, alike for all programs: it is late, it is killed, it is stopped."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harbor_tasks.endpoint import Call
from harbor_tasks.proving.through.bench import Fixture
from harbor_tasks.proving.through.session import Spot
from harbor_tasks.resources import script_text

LATE, KILLED, STOPPED = "toolu_where_0006", "toolu_where_0007", "toolu_where_0008"
SPOTS = (
    Spot(LATE, "when the hook's time is up", late=True),
    Spot(KILLED, "when the hook is killed", ("toolu_prepare_0007",), fails_open=True, told="toolu_prepare_0009"),
    Spot(STOPPED, "when the hook is stopped", ("toolu_prepare_0008",), fails_open=True, told="toolu_prepare_0010"),
)
"""The last spots of each program, in the order of `in_turn`."""
_DEADLINE, _LIMIT, _CAUGHT = 4, 8, 1.5
"""Seconds: of the hook's own limit, of the program's, and how long a hook waits that is to be caught."""


def helper(folder: Path, name: str, *arguments: str) -> str:
    """The command that starts a helper of the session, from where commands find it."""
    return shlex.join(["python3" if name.endswith(".py") else "sh", str(folder / name), *arguments])


def in_turn(calls: Sequence[Call], folder: Path, bash: Callable[[int, str], Call]) -> tuple[Call, ...]:
    """The calls in `SPOTS`, and before and behind them those of commands, which ``bash`` makes by their numbers."""
    late, killed, stopped = calls

    def hunt(number: int, *words: str) -> Call:
        return bash(number, helper(folder, "hunt.py", *words))

    return (
        late,
        hunt(7, "kill"), killed, hunt(9, "told", "kill"),
        hunt(8, "stop"), stopped, hunt(10, "told", "stop"),
    )  # fmt: skip


def fixture_of(fixture: Fixture, helpers: Mapping[str, str]) -> Fixture:
    """With the program's own helpers and ours, and a hook that can be caught: it waits before it decides on `SPOTS`."""
    waits = {LATE: 3600, KILLED: _CAUGHT, STOPPED: _CAUGHT}
    return replace(
        fixture, limit=_LIMIT, helpers={**helpers, "hunt.py": script_text("hunt")},
        hook={
            "DEADLINE_S = 40": f"DEADLINE_S = {_DEADLINE}",
            "    read_call(call)\n": f"    read_call(call)\n    time.sleep({waits!r}.get(call['id'], 0))\n",
        },
    )  # fmt: skip
