"""What became of a call in an agent program: a row of the table, and what is not as it must be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from harbor_tasks.proving.calls import SAME, Forced, Outcome

Verdict = Literal["ok", "found", "missed"]
"""``found``: it was not held, and what happened is found afterwards, which voids a trial."""
Refusal = Literal["", "not offered", "bad input", "mode", "program"]
"""Why the program itself would not have a call, whatever its hook says; empty when it would."""


@dataclass(frozen=True)
class Passage:
    """What became of one call in the program: a row of the table.

    ``hook``: was the hook entered; ``decision`` is the log's; ``entered``: did the tool get to work, None where nothing
    could tell; ``effect``: did it leave something, a mark of an instrument or the file that it was to write, None where
    nothing would; ``given`` is what it was called with; ``read`` is what the model was shown.
    """

    name: str
    tool: str
    mode: str
    expected: str
    hook: bool
    decision: str
    entered: bool | None
    read: str
    given: Any = None
    ok: bool = True
    verdict: Verdict = "ok"
    notes: tuple[str, ...] = ()
    call: str = ""
    refusal: Refusal = ""
    environment: str = "local"
    effect: bool | None = None


def misses(forced: Forced, seen: Passage, failed: bool, alone: Outcome) -> Iterator[str]:
    """What is not as it must be. ``failed``: the model read an error; ``alone``: what the hook says by itself."""
    if seen.refusal in ("not offered", "bad input"):
        return
    expected = alone["got"] if forced.expected == SAME else forced.expected
    covered = alone["reason"] != "no hook covers the tool"
    by_rule = expected == "deny" and failed and not seen.hook  # a rule of the permissions, which no hook sees
    if covered and not seen.hook and not by_rule:
        yield "the hook was never entered"
    if seen.decision != expected and not by_rule and not (expected == "deny" and seen.decision == "ask"):
        by_rule = expected == "deny" and failed and seen.entered is not True
        if not by_rule:
            yield f"expected {expected}, got {seen.decision}"
    if expected == "deny" and seen.entered:
        yield "the tool ran although the call was denied"
    elif expected == "deny" and seen.effect:
        yield "the call was denied, and what it was to do is done"
    if seen.hook and seen.decision == "deny" and seen.read.strip() != str(alone["reason"]).strip():
        yield f"the model read {seen.read[:100]!r} and not the reason"
    if expected in ("allow", "answer", "rewrite") and seen.entered is not True:
        yield f"the tool did not run: {seen.read[:200]}"
    if expected == "none" and seen.entered is False and seen.refusal not in ("mode", "program"):
        yield f"the tool did not run: {seen.read[:200]}"
    updated = alone["updated_input"] or {}
    if expected == "rewrite" and seen.tool.startswith("mcp__") and (seen.given or {}).get("input") != updated:
        yield f"the tool was called with {json.dumps((seen.given or {}).get('input'))}"


def notes(seen: Passage) -> Iterator[str]:
    """What is worth saying of a call with which all is well."""
    if seen.refusal == "not offered":
        yield "the program does not offer the tool"
    elif seen.refusal == "bad input":
        yield "the program refuses the input before any hook"
    elif seen.refusal == "program":
        yield "the program itself refuses it"
    elif seen.decision == "none" and seen.entered is False:
        yield "the permission mode refuses it" if seen.refusal == "mode" else "a permission rule denies it"
