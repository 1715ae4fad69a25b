"""What the probes showed: rows, the comparison of environments, the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from harbor_tasks.errors import printable
from harbor_tasks.policy.routes import Route, routes_table
from harbor_tasks.proving.calls import SAME, Forced, Outcome

if TYPE_CHECKING:
    from rich.table import Table

    from harbor_tasks.proving.through import Passage


@dataclass(frozen=True)
class ProbeRow:
    """One probe in one environment: ``got`` is the decision, ``reason`` its text, ``misses`` what differs."""

    name: str
    tool: str
    environment: str
    expected: str
    got: str
    reason: str
    ok: bool
    misses: tuple[str, ...] = ()
    tier: str | None = None
    """Of an answer: override, model or guessed."""
    updated_input: Mapping[str, Any] | None = None
    """What a rewrite or an answer made of the input."""
    call: str = ""
    """The id of the forced call: the same in all environments."""

    @property
    def outcome(self) -> tuple[Any, ...]:
        """What must be the same everywhere; why nobody had an objection need not be."""
        return (self.got, "" if self.got == "none" else self.reason, self.tier, self.updated_input)


@dataclass(frozen=True)
class ProbeReport:
    """What the probes showed, and which enabled tools no handler covers."""

    rows: tuple[ProbeRow, ...]
    routes: tuple[Route, ...]
    sealed: Mapping[str, bool] = field(default_factory=dict)
    """By environment: did the probes run in a sealed sandbox?"""
    through: tuple[Passage, ...] = ()
    """What became of the calls in the agent program itself."""

    @property
    def exit_code(self) -> Literal[0, 1]:
        """1 when a probe got another decision than it must, or not the same one everywhere."""
        return 0 if all(row.ok for row in self.rows) and all(seen.ok for seen in self.through) else 1

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "ok": self.exit_code == 0,
            "environments": dict(self.sealed),
            "probes": [asdict(row) for row in self.rows],
            "through": [asdict(passage) for passage in self.through],
            "routes": [asdict(route) for route in self.routes],
        }

    def tables(self) -> Iterable[Table | str]:
        """The report for a terminal: a column for each environment."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        style: dict[str, Any] = {"box": SIMPLE_HEAD, "pad_edge": False, "title_justify": "left", "title_style": "bold"}
        by_call: dict[str, list[ProbeRow]] = {}
        for row in self.rows:
            by_call.setdefault(row.call, []).append(row)
        if self.rows:
            yield from _probes(by_call.values(), self.sealed, style)
        else:
            yield "no probes: the eval names none under `probes`"
        for place in dict.fromkeys(seen.environment for seen in self.through):
            table = Table(title=f"through the agent program, {place}", **{**style, "padding": 0})
            for head in ("probe", "mode", "hook", "decision", "ran", "effect", "", "the model read"):
                table.add_column(head, overflow="fold", ratio=1 if head in ("probe", "the model read") else None)
            seen_here = [seen for seen in self.through if seen.environment == place]
            for cells, alike in groupby(seen_here, key=_cells):
                modes = "\n".join(dict.fromkeys(seen.mode.removesuffix("Permissions") for seen in alike))
                table.add_row(*map(printable, (cells[0], modes, *cells[1:])))
            yield table
        yield routes_table(self.routes)
        missed = sum(not all(row.ok for row in rows) for rows in by_call.values())
        yield f"{len(by_call)} probe{'s' if len(by_call) != 1 else ''}, {missed} missed"
        if self.through:
            missed = sum(not seen.ok for seen in self.through)
            found = sum(seen.verdict == "found" for seen in self.through)
            more = f", {found} not held but found" if found else ""
            yield f"{len(self.through)} calls through the agent program, {missed} missed{more}"


def _probes(
    calls: Iterable[list[ProbeRow]], sealed: Mapping[str, bool], style: dict[str, Any]
) -> Iterator[Table | str]:
    """The table of probes; with several environments there is no room for reasons, so what missed is said below."""
    from rich.table import Table

    found = list(calls)
    places = list(dict.fromkeys(row.environment for rows in found for row in rows))
    alone = len(places) == 1
    table = Table(title="probes", **style)
    for head in ("probe", "tool") if alone else ("probe, tool",):
        table.add_column(head, overflow="fold")
    names = ["got"] if alone else [f"{place}{'' if sealed.get(place) else ' *'}" for place in places]
    for head in ("expected", *names, ""):
        table.add_column(head, no_wrap=True)
    if alone:
        table.add_column("reason", overflow="fold")
    below = []
    for rows in found:
        name, tool, ok = rows[0].name, rows[0].tool, all(row.ok for row in rows)
        got = {row.environment: row.got for row in rows}
        cells = [*((name, tool) if alone else (f"{name}\n{tool}",)), rows[0].expected]
        cells += [*(got.get(place, "-") for place in places), "ok" if ok else "MISSED"]
        misses = "; ".join(miss for row in rows for miss in row.misses)
        if alone:
            cells.append(_short(rows[0].reason) if ok else misses)
        elif not ok:
            below.append(f"{name}: {misses}")
        table.add_row(*("\n".join(map(printable, cell.split("\n"))) for cell in cells))
    yield table
    yield from below
    if not alone and not all(map(sealed.get, places)):
        yield "* not sealed"


def _cells(seen: Passage) -> tuple[str, ...]:
    """What a table says of a call, without the mode: modes in which all is the same share a row."""
    yes = {None: "?", True: "yes", False: "no"}
    verdict = {"ok": "ok", "found": "FOUND", "missed": "MISSED"}[seen.verdict]
    effect = "-" if seen.effect is None else yes[seen.effect]
    said = "; ".join(seen.notes) or _short(seen.read)
    return (seen.name, yes[seen.hook], seen.decision, yes[seen.entered], effect, verdict, said)


def row_of(forced: Forced, place: str, outcome: Outcome | None) -> ProbeRow:
    probe = forced.probe
    if outcome is None:
        row = ProbeRow(probe.name, probe.tool, place, forced.expected, "-", "", False, ("it was not asked",))
        return replace(row, call=forced.id)
    misses = tuple(_misses(forced, outcome))
    return ProbeRow(
        probe.name, probe.tool, place, forced.expected, outcome["got"], outcome["reason"], not misses, misses,
        outcome.get("tier"), outcome["updated_input"], forced.id,
    )  # fmt: skip


def compared(rows: Iterable[ProbeRow]) -> Iterator[ProbeRow]:
    """The rows; one that is not as in the first environment has missed."""
    first: dict[str, ProbeRow] = {}
    for row in rows:
        other = first.setdefault(row.call, row)
        if row.outcome == other.outcome:
            yield row
            continue
        here, there = (f"{one.got} ({_short(one.reason) or 'no reason'})" for one in (row, other))
        if row.got == other.got:
            here, there = (str([x for x, y in zip(a, b, strict=True) if x != y]) for a, b in
                           ((row.outcome, other.outcome), (other.outcome, row.outcome)))  # fmt: skip
        difference = f"not the same everywhere: {row.environment} {here}, {other.environment} {there}"
        yield replace(row, ok=False, misses=(*row.misses, difference))


def _misses(forced: Forced, outcome: Outcome) -> Iterable[str]:
    """What differs from what the probe says, one text each."""
    probe, got, reason = forced.probe, outcome["got"], outcome["reason"]
    for note in outcome["notes"]:
        yield f"the hook failed open: {note}"
    if forced.expected == SAME:
        return
    if got != probe.expect:
        yield f"expected {probe.expect}, got {got}" + (f" ({reason})" if reason else "")
    for text in probe.reason_has:
        if text.casefold() not in reason.casefold():
            yield f"the reason lacks {text!r}: {reason!r}"
    updated = outcome["updated_input"] or {}
    if probe.answers and updated.get("answers") != probe.answers:
        yield f"expected the answers {probe.answers}, got {updated.get('answers')}"
    if probe.input_after is not None and outcome["updated_input"] != probe.input_after:
        yield f"expected the input {probe.input_after}, got {outcome['updated_input']}"
    for name, value in (("result", probe.result), ("result_after", probe.result_after)):
        if value is not None:
            yield f"`{name}` is not supported yet: nothing acts on results in this version"


def _short(text: str) -> str:
    """The beginning of a reason: of those that are met it is enough."""
    words = " ".join(text.split())
    return words if len(words) <= 50 else words[:49] + "…"
