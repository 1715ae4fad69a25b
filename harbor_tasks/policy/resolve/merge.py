"""Which parts of tool_handlers.yaml are the author's and stay, which are replaced by a proposal's.

A rule belongs to the entry of `inputs.tools` with the same `match` (white space folded). One that is still as it was
proposed is replaced; one that was changed or written by hand stays, and so do its probes. A rule that was deleted is
proposed again; a probe or an answer that was deleted does not come back. A rule whose entry is gone goes with it,
unless somebody changed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harbor_tasks.evalspec.fields import folded
from harbor_tasks.policy.resolve.record import Record, digest, entry_key

Data = dict[str, Any]


@dataclass(frozen=True)
class Current:
    """tool_handlers.yaml as it is: its data, and what its head says; empty when there is none."""

    handlers: Sequence[Data] = ()
    probes: Sequence[Data] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    record: Record | None = None


@dataclass(frozen=True)
class Slot:
    """One member of a list in the new file: where it stood in the old one (None: nowhere) and what it becomes.

    ``entry`` is the number of the entry that it was made for; None for the author's own.
    """

    old: int | None
    data: Data
    entry: int | None = None


@dataclass(frozen=True)
class Merged:
    """The content of the new file, and what its head has to say of it."""

    handlers: tuple[Slot, ...]
    probes: tuple[Slot, ...]
    overrides: dict[str, Any]
    made: dict[str, tuple[str, ...]]
    answers: tuple[str, ...]
    kept: tuple[int, ...]
    """Entries whose rule is the author's: what was proposed for them is not used."""


def links(current: Current, matches: Sequence[str]) -> dict[int, int]:
    """Number of an entry -> index of its rule in the file."""
    found: dict[int, int] = {}
    wanted = {entry_key(match): at for at, match in reversed(list(enumerate(matches)))}
    for index, handler in enumerate(current.handlers):
        entry = wanted.get(entry_key(str(handler.get("match", ""))))
        if entry is not None:
            found.setdefault(entry, index)
    return found


def kept_entries(current: Current, matches: Sequence[str]) -> frozenset[int]:
    """Entries whose rule in the file is not as it was proposed."""
    record = current.record or Record()
    return frozenset(
        entry for entry, index in links(current, matches).items()
        if digest("rule", current.handlers[index]) != record.rule(entry_key(matches[entry]))
    )  # fmt: skip


def merged(
    current: Current, matches: Sequence[str], rules: Mapping[int, Data], probes: Mapping[int, Sequence[Data]],
    overrides: Mapping[str, Any], taken_names: Iterable[str],
) -> Merged:  # fmt: skip
    """Put a proposal into the file: ``rules`` and ``probes`` by entry; ``taken_names`` are those of eval.yaml's probes.

    Every entry has a rule in ``rules``.
    """
    record = current.record or Record()
    kept = kept_entries(current, matches)
    used = [entry for entry in range(len(matches)) if entry not in kept]
    stay = {one for entry in kept for one in record.made.get(entry_key(matches[entry]), ())}
    names = {str(probe.get("name")) for probe in current.probes
             if (one := digest("probe", probe)) in stay or one not in record.everything}  # fmt: skip
    named = _named({entry: probes.get(entry, ()) for entry in used}, names.union(taken_names))
    made = {entry_key(matches[entry]): record.made[key] for entry in sorted(kept)
            if (key := entry_key(matches[entry])) in record.made}  # fmt: skip
    for entry in used:
        own = [digest("probe", probe) for probe in named[entry]]
        made[entry_key(matches[entry])] = (digest("rule", rules[entry]), *own)
    answers, digests = _overrides(current, record, overrides)
    return Merged(
        handlers=_handlers(current, record, matches, rules, kept),
        probes=_probes(current, record, matches, named, kept), overrides=answers,
        made={key: made[key] for match in matches if (key := entry_key(match)) in made}, answers=digests,
        kept=tuple(sorted(kept)),
    )  # fmt: skip


def _handlers(
    current: Current, record: Record, matches: Sequence[str], rules: Mapping[int, Data], kept: frozenset[int]
) -> tuple[Slot, ...]:  # fmt: skip
    at, known = links(current, matches), set(map(entry_key, matches))
    entry_of = {index: entry for entry, index in at.items()}
    slots: list[Slot] = []
    for index, handler in enumerate(current.handlers):
        entry = entry_of.get(index)
        if entry is not None:
            slots.append(Slot(index, handler) if entry in kept else Slot(index, rules[entry], entry))
        elif digest("rule", handler) not in record.everything or entry_key(str(handler.get("match"))) in known:
            slots.append(Slot(index, handler))
    for entry in range(len(matches)):
        if entry not in at:
            slots.insert(_place(slots, entry, at), Slot(None, rules[entry], entry))
    return tuple(slots)


def _place(slots: Sequence[Slot], entry: int, at: Mapping[int, int]) -> int:
    """Where the rule of an entry goes that has none: behind those of earlier entries, before those of later ones."""
    index_of = {index: number for number, index in at.items()}
    numbers = [slot.entry if slot.entry is not None else index_of.get(slot.old, -1) if slot.old is not None else -1
               for slot in slots]  # fmt: skip
    before = [place for place, number in enumerate(numbers) if 0 <= number < entry]
    after = [place for place, number in enumerate(numbers) if number > entry]
    return before[-1] + 1 if before else after[0] if after else len(slots)


def _probes(
    current: Current, record: Record, matches: Sequence[str], named: Mapping[int, Sequence[Data]], kept: frozenset[int]
) -> tuple[Slot, ...]:  # fmt: skip
    of_kept = {one for entry in kept for one in record.made.get(entry_key(matches[entry]), ())}
    again = {digest("probe", probe): entry for entry, own in named.items() for probe in own}
    slots, there = [], set()
    for index, probe in enumerate(current.probes):
        own = digest("probe", probe)
        if own in again:
            slots.append(Slot(index, probe, again[own]))
            there.add(own)
        elif own not in record.everything or own in of_kept:
            slots.append(Slot(index, probe))
    slots += [
        Slot(None, probe, entry) for entry, own in named.items() for probe in own
        if (one := digest("probe", probe)) not in there and one not in record.everything
    ]  # fmt: skip
    return tuple(slots)


def _named(probes: Mapping[int, Sequence[Data]], names: set[str]) -> dict[int, list[Data]]:
    """The probes with names that nobody else has; ``names`` are those of eval.yaml and of what stays in the file."""
    found: dict[int, list[Data]] = {}
    for entry, own in probes.items():
        found[entry] = []
        for probe in own:
            name, number = str(probe["name"]) or "call", 2
            wanted = name
            while wanted in names:
                wanted, number = f"{name} ({number})", number + 1
            names.add(wanted)
            found[entry].append({**probe, "name": wanted})
    return found


def _overrides(
    current: Current, record: Record, proposed: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:  # fmt: skip
    made = {question: digest("answer", folded(question), answer) for question, answer in proposed.items()}
    found = {
        question: answer for question, answer in current.overrides.items()
        if (own := digest("answer", folded(question), answer)) not in record.answers or own in made.values()
    }  # fmt: skip
    asked = {folded(question) for question in found}
    for question, answer in proposed.items():
        if folded(question) not in asked and made[question] not in record.answers:
            found[question] = answer
            asked.add(folded(question))
    return found, tuple(made.values())


def same(merged_: Merged, current: Current) -> bool:
    """Whether the file would hold what it holds already."""
    return (
        [slot.old for slot in merged_.handlers] == list(range(len(current.handlers)))
        and [slot.old for slot in merged_.probes] == list(range(len(current.probes)))
        and _plain([slot.data for slot in merged_.handlers]) == _plain(list(current.handlers))
        and _plain(merged_.overrides) == _plain(dict(current.overrides))
    )


def _plain(data: Any) -> str:
    """A text that is the same for the same data; 5 and 5.0 are not."""
    return json.dumps(data, sort_keys=True)
