"""Which handlers are hidden by earlier ones: the first that matches a call decides about it.

Matching is by tool name, for Bash also by filters; other checks do not pass a call on to the next handler. So a handler
is hidden exactly when every name that its patterns catch is caught before, and each of its filters is one of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harbor_tasks.policy.handlers import Handler
from harbor_tasks.policy.matchers import covered, overlap, squeezed, subsumed, with_aliases
from harbor_tasks.policy.tools import Runtime


@dataclass(frozen=True)
class Shadow:
    """What earlier handlers take from one: the patterns, the first of those handlers, and whether nothing is left."""

    lost: tuple[str, ...]
    by: int
    whole: bool


def shadow_on(handlers: Sequence[Handler], at: int, runtime: Runtime = "claude-code") -> Shadow | None:
    """What the handlers before this one take from it; None when it gets all calls that its patterns catch."""
    handler, earlier = handlers[at], handlers[:at]
    caught = [with_aliases(map(squeezed, one.patterns), runtime) for one in earlier]
    flat = [pattern for patterns in caught for pattern in patterns]
    others = [pattern for pattern in handler.patterns if pattern != "Bash"]
    lost = [pattern for pattern in others if subsumed(pattern, flat, apart=["Bash"])]
    by = [i for i, patterns in enumerate(caught) if any(overlap(p, q) for p in lost for q in patterns if q != "Bash")]

    mine = bash_filters(handler)
    shells = [i for i, one in enumerate(earlier) if _shares_commands(bash_filters(one), mine)]
    bash_lost = bool(shells) and _all_taken([bash_filters(earlier[i]) for i in shells], mine)
    if bash_lost:
        by += shells
        lost += ["Bash"] if "Bash" in handler.patterns else []
    if not lost:
        return None
    whole = len(lost) - lost.count("Bash") == len(others) and (bash_lost or mine == frozenset())
    return Shadow(tuple(lost), min(by), whole)


def bash_filters(handler: Handler) -> frozenset[str] | None:
    """The filters one of which a Bash command has to hit; None: every command is caught, empty: none is."""
    if not covered("Bash", handler.patterns) or not handler.enforced:
        return frozenset()
    return frozenset(handler.input_filters) if handler.input_filters else None


def _shares_commands(filters: frozenset[str] | None, mine: frozenset[str] | None) -> bool:
    """Whether commands that are caught by ``mine`` are surely caught by ``filters`` too."""
    return bool(mine is None or mine) and (filters is None or bool(filters if mine is None else filters & mine))


def _all_taken(before: Sequence[frozenset[str] | None], mine: frozenset[str] | None) -> bool:
    """Whether earlier filters leave no command to ``mine``; only equal filters count as catching the same."""
    if None in before:
        return True
    return mine is not None and mine <= frozenset().union(*(filters for filters in before if filters))
