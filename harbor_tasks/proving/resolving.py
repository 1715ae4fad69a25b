"""`resolve`: asks a model for the rules that `inputs.tools` means, and lets none through that is not shown to work.

What is proposed is put into the text of tool_handlers.yaml, read by the reader of handlers, linted, and replayed: each
probe, proposed or the author's own, is forced through the interceptor with these rules. What is wrong goes back to the
model once. Nothing is written here but by `Resolution.write`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harbor_tasks.environments.scratch import scratch_folder
from harbor_tasks.errors import AuthorError, MachineError, Problem, Problems, Where, display_path
from harbor_tasks.evalspec import Case, Eval, list_cases, load_eval, read_case
from harbor_tasks.evalspec.load import HANDLERS
from harbor_tasks.evalspec.reader import MAX_BYTES, load_yaml
from harbor_tasks.policy.handlers import HANDLER_TEXTS, Handler, Handlers, handlers_of, read_handlers
from harbor_tasks.policy.lint import inputs_digest
from harbor_tasks.policy.permissions import permissions_of
from harbor_tasks.policy.probes import Probe, probe_of
from harbor_tasks.policy.resolve.asked import CORRECTION, SAMPLES, Asked, asked_of
from harbor_tasks.policy.resolve.judged import entry_label, handler_faults, proposal_faults
from harbor_tasks.policy.resolve.merge import Current, Merged, kept_entries, links, merged, same
from harbor_tasks.policy.resolve.model import DEFAULT_MODEL, Limits, Model, model_name
from harbor_tasks.policy.resolve.proposal import (
    Proposal,
    ProposalError,
    handler_of,
    overrides_of,
    parse_proposal,
    probes_of_rule,
    schema,
)
from harbor_tasks.policy.resolve.record import Record, split_head
from harbor_tasks.policy.resolve.yamlfile import new_text
from harbor_tasks.policy.settings import runner_settings
from harbor_tasks.proving.calls import Forced, filled
from harbor_tasks.proving.here import ask_policy
from harbor_tasks.proving.report import ProbeRow, row_of
from harbor_tasks.tasks.interception import interception_files

ROUNDS = 2
"""Requests to the model: the proposal, and one correction."""
_TOLD = 40
"""Faults that the correction names."""


@dataclass(frozen=True)
class Resolution:
    """What came of it. ``old`` and ``new`` are the file's text; equal when nothing changed.

    ``problems`` are faults of the proposal (errors) and what its author should know (warnings); ``rows`` what each
    probe got. ``kept`` are entries whose rule is the author's own. ``asked`` is how often the model was asked.
    """

    path: Path
    old: str
    new: str
    model: str
    prompt: str
    problems: tuple[Problem, ...] = ()
    rows: tuple[ProbeRow, ...] = ()
    kept: tuple[str, ...] = ()
    asked: int = 0
    proposed: str = ""
    """The text of a proposal that does not hold."""

    @property
    def holds(self) -> bool:
        """Whether it may be written."""
        return not any(one.level == "error" for one in self.problems) and all(row.ok for row in self.rows)

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return self.new != self.old

    def diff(self) -> str:
        """From the file as it is to what it would be."""
        name = display_path(self.path)
        new = self.new if self.holds else self.proposed
        lines = difflib.unified_diff(
            self.old.splitlines(), new.splitlines(), name if self.old else "/dev/null", name, lineterm=""
        )
        return "\n".join(lines)

    def write(self) -> None:
        """Write the file, beside its place first. MachineError when somebody else wrote it meanwhile."""
        assert self.holds
        path = Path(os.path.realpath(self.path))
        now = path.read_bytes() if path.exists() else b""
        if now != self.old.encode():
            raise MachineError(
                f"{display_path(self.path)} was changed meanwhile, and nothing was written; resolve again"
            )
        made, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(made, "wb") as file:
                file.write(self.new.encode())
            Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        from dataclasses import asdict

        return {
            "path": display_path(self.path), "model": self.model, "prompt": f"sha256:{self.prompt}",
            "requests": self.asked, "holds": self.holds, "changed": self.changed, "kept": list(self.kept),
            "problems": [problem.as_json() for problem in self.problems],
            "probes": [asdict(row) for row in self.rows], "diff": self.diff(),
        }  # fmt: skip


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@dataclass
class _Draft:
    """A proposal as a file: its text without the head, what it merges, and what is wrong."""

    text: str = ""
    merged: Merged | None = None
    problems: list[Problem] = field(default_factory=list)
    rows: list[ProbeRow] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """In lines, for the model."""
        lines = [str(replace(one, where=Where())) for one in self.problems if one.level == "error"]
        lines += [f"the probe {row.name!r} ({row.tool}): {'; '.join(row.misses)}" for row in self.rows if not row.ok]
        return lines


def resolve(
    eval_path: Path, *, model: str | None = None, fresh: bool = False, caller: Mapping[str, str] | None = None,
    limits: Limits | None = None, say: Callable[[str], None] = lambda _text: None,
) -> Resolution:  # fmt: skip
    """Resolve the `inputs.tools` of an eval; nothing is written.

    When the file was made from the same request, and has a rule for each entry, no model is asked, unless ``fresh`` or
    another ``model`` than the file's is wanted. AuthorError for faults of the eval and its files; MachineError without
    a key, and for all that goes wrong with the model. ``caller`` is the user's environment, from which probes get the
    values of `execution.env`; the model's key and address are this process's.
    """
    if model is not None:
        model_name(model)
    ev, entries = _eval(eval_path)
    work = _Work(ev, entries, os.environ if caller is None else caller)
    wanted = model or DEFAULT_MODEL
    record = work.current.record
    digest = work.asked.digest
    at = links(work.current, work.matches)
    unchanged = record is not None and record.prompt == digest and len(at) == len(entries)
    if unchanged and record is not None and not fresh and model in (None, record.model):
        return Resolution(work.path, work.old, work.old, record.model, digest, kept=work.kept_labels())
    kept = kept_entries(work.current, work.matches)
    if len(kept) == len(entries):  # nothing of what a model would propose could be used
        return Resolution(work.path, work.old, work.old, wanted, digest, kept=work.kept_labels())
    if record is None and work.current.handlers and not at:
        raise AuthorError(
            f"{display_path(work.path)} was written by hand, and none of its rules has the match of an entry of "
            "inputs.tools: they would come before those that are proposed; give them the entries' matches, or move the "
            "file away"
        )
    return _asked(work, wanted, limits or Limits(), say)


def _eval(eval_path: Path) -> tuple[Eval, tuple[Handler, ...]]:
    problems = Problems()
    ev = load_eval(eval_path, problems)
    problems.raise_errors()
    assert ev is not None
    permissions_of(ev, problems)
    runner_settings(ev, problems)
    problems.raise_errors()
    if not ev.spec.inputs.tools:
        raise AuthorError(
            [Problem("inputs.tools is empty: there is nothing to resolve", Where(ev.file), "say there what is meant")]
        )
    staged = handlers_of(replace(ev, handlers_file=None), problems)
    assert staged is not None
    seen: dict[str, int] = {}
    for at, entry in enumerate(staged.handlers):
        twin = seen.setdefault(" ".join(entry.match.split()), at)
        if twin != at:
            says = f"inputs.tools[{at}] has the match of inputs.tools[{twin}]: their rules could not be told apart"
            problems.error(says, ev.file, entry.line, hint="put them together", code="same-match")
    problems.raise_errors()
    return ev, staged.handlers


class _Work:
    """What is known before the model is asked."""

    def __init__(self, ev: Eval, entries: Sequence[Handler], caller: Mapping[str, str]) -> None:
        self.ev, self.entries, self.caller = ev, tuple(entries), caller
        self.path = ev.root / HANDLERS
        self.matches = [entry.match for entry in entries]
        self.old, self.body, self.current = _current(ev, self.path)
        self.asked: Asked = asked_of(ev, entries, _cases(ev), schema())

    def kept_labels(self, kept: Sequence[int] | None = None) -> tuple[str, ...]:
        found = sorted(kept_entries(self.current, self.matches)) if kept is None else kept
        return tuple(entry_label(at, self.entries[at]) for at in found)

    def draft(self, answer: str | Any) -> _Draft:
        """What an answer would become, with all that is wrong with it."""
        draft = _Draft()
        try:
            proposal = parse_proposal(answer)
        except ProposalError as error:
            draft.problems = [Problem(f"not a proposal: {fault}", Where(), code="proposal") for fault in error.faults]
            return draft
        kept = kept_entries(self.current, self.matches)
        draft.problems = proposal_faults(proposal, self.entries, self.asked, self.ev, kept)
        if {rule.entry for rule in proposal.rules} >= set(range(len(self.entries))) - kept:
            self._fill(draft, proposal)
        return draft

    def _fill(self, draft: _Draft, proposal: Proposal) -> None:
        by_entry = {rule.entry: rule for rule in proposal.rules if 0 <= rule.entry < len(self.entries)}
        draft.merged = merged(
            self.current, self.matches,
            {at: handler_of(rule, self.entries[at]) for at, rule in by_entry.items()},
            {at: probes_of_rule(rule) for at, rule in sorted(by_entry.items())},
            overrides_of(proposal.case_overrides), [probe.name for probe in self.ev.spec.probes],
        )  # fmt: skip
        draft.text = new_text(self.path, self.body, self.current, draft.merged)
        if len(draft.text.encode()) > MAX_BYTES:
            draft.problems.append(Problem("the proposal is too large", Where(), code="proposal"))
            return
        problems = Problems()
        handlers = read_handlers(self.path, problems, ev=self.ev, content=draft.text)
        draft.problems += [replace(one, where=Where(self.path)) for one in problems.errors]
        if handlers is None:
            return
        proposed = [at for at, slot in enumerate(draft.merged.handlers) if slot.entry is not None]
        draft.problems += handler_faults(handlers, self.ev, self.path, proposed)
        if not any(one.level == "error" for one in draft.problems):
            draft.rows = self._replay(handlers, draft.merged)

    def _replay(self, handlers: Handlers, done: Merged) -> list[ProbeRow]:
        """Force all probes of both files through the interceptor with these rules."""
        probes: list[tuple[Probe, int | None]] = [(probe_of(spec), None) for spec in self.ev.spec.probes]
        probes += [(probe_of(spec), slot.entry) for spec, slot in zip(handlers.probes, done.probes, strict=True)]
        forced = [Forced(f"toolu_probe_{n:04d}", probe, str(probe.expect)) for n, (probe, _) in enumerate(probes, 1)]
        with scratch_folder() as built:
            for name, content in interception_files(self.ev, handlers, {}).items():
                (built / name).parent.mkdir(parents=True, exist_ok=True)
                (built / name).write_bytes(content)
            outcomes = ask_policy(built, filled(self.ev.spec.execution.env, self.caller), self.caller, forced)
        index_of = {slot.entry: at for at, slot in enumerate(done.handlers) if slot.entry is not None}
        rows = []
        for one, (probe, entry) in zip(forced, probes, strict=True):
            row, by = row_of(one, "local", outcomes.get(one.id)), outcomes.get(one.id, {}).get("handler")
            own = None if entry is None else index_of.get(entry)
            if own is not None and not _shows(probe, by, own):
                who = "no rule" if by is None else f"handlers[{by}]"
                row = replace(row, ok=False, misses=(*row.misses, f"{who} decided about it, not handlers[{own}]"))
            if entry is None and not row.ok:
                row = replace(row, misses=(*row.misses, "the probe is the author's own: change it, or its rule"))
            rows.append(row)
        return rows


def _shows(probe: Probe, by: int | None, own: int) -> bool:
    """Whether a call shows anything of the rule ``own``, if it is ``by`` that decided about it.

    One that it must catch it decides itself. One that passes comes to it, and may then come to later rules: none before
    it may decide.
    """
    return by == own if probe.expect != "none" else by is None or by >= own


def _current(ev: Eval, path: Path) -> tuple[str, str, Current]:
    """The file as it is: its text, the text without the head, its content. It must be without faults.

    One that holds nothing, or comments alone, is one that has still to be written: the comments stay.
    """
    if ev.handlers_file is None:
        return "", "", Current()
    problems = Problems()
    document = load_yaml(path, problems, text_under=HANDLER_TEXTS)
    problems.raise_errors()
    assert document is not None
    if document.data is not None:
        read_handlers(path, problems, ev=ev)
        problems.raise_errors()
    text = path.read_bytes().decode("utf-8")
    record, body = split_head(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    data = document.data or {}
    current = Current(
        data.get("handlers") or [], data.get("probes") or [], data.get("case_overrides") or {}, record
    )  # fmt: skip
    return text, body, current


def _cases(ev: Eval) -> list[Case]:
    """The cases that are shown to the model."""
    problems = Problems()
    found = [read_case(ev, directory, problems) for directory in list_cases(ev, problems)[:SAMPLES]]
    problems.raise_errors()
    return [case for case in found if case is not None]


def _asked(work: _Work, name: str, limits: Limits, say: Callable[[str], None]) -> Resolution:
    model = Model(name, limits)
    try:
        text, draft, count = work.asked.data, _Draft(), 0
        for count in range(1, ROUNDS + 1):
            say(f"asking {name} for the rules of {len(work.entries)} entries ({len(text) // 1024 + 1} kB)"
                + (", again: its proposal does not hold" if count > 1 else ""))  # fmt: skip
            answer = model.ask(work.asked.system, text, schema())
            draft = work.draft(answer)
            if not draft.faults:
                break
            text = _corrected(work.asked.data, answer, draft.faults)
    finally:
        model.close()
    digest = work.asked.digest
    kept = work.kept_labels()
    found = Resolution(
        work.path, work.old, work.old, name, digest, tuple(draft.problems), tuple(draft.rows), kept, count
    )
    if draft.faults or draft.merged is None:
        return replace(found, proposed=draft.text or work.old)
    made = draft.merged.made
    record = Record(
        name, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), digest, inputs_digest(work.ev), made,
        draft.merged.answers,
    )  # fmt: skip
    before = work.current.record
    if same(draft.merged, work.current) and before is not None:
        if replace(record, time=before.time) == before:
            return found
        body = work.body
    else:
        body = draft.text
    new = f"{record.lines()}\n{body}"
    return replace(found, new=new.replace("\n", "\r\n") if "\r\n" in work.old else new)


def _corrected(data: str, answer: str | Any, faults: Sequence[str]) -> str:
    import json

    shown = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    lines = "\n".join(f"- {fault[:500]}" for fault in faults[:_TOLD])
    return f"{data}\n\n{CORRECTION}\n{lines}\n\nThe proposal was:\n{shown[:100_000]}"
