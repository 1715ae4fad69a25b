"""What is wrong with a proposal that has the right form: rules that catch too much, or nothing, or are not shown.

All findings of all rules at once. A fault of the proposal itself is an error and names the entry of `inputs.tools`;
those of its fields (regexes, checks) are found by `policy.handlers`, which reads the file that it would become.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Level, Problem, Problems, Where
from harbor_tasks.evalspec import Eval
from harbor_tasks.evalspec.fields import folded
from harbor_tasks.policy.handlers import Handler, Handlers
from harbor_tasks.policy.lint import lint
from harbor_tasks.policy.matchers import covered, is_glob, named, overlap, squeezed, subsumed
from harbor_tasks.policy.regex_timer import branch_texts
from harbor_tasks.policy.regexes import regex_fault
from harbor_tasks.policy.resolve.asked import Asked
from harbor_tasks.policy.resolve.proposal import QUESTION_TOOLS, Proposal, Rule, probes_of_rule
from harbor_tasks.policy.shadows import shadow_on

PROBES_EACH = 2
HARMLESS = (
    "ls", "ls -la src", "pwd", "cd src && ls", "cat README.md", "head -20 notes.txt", "echo done", "mkdir -p out",
    "cp a.txt b.txt", "mv draft.md report.md", "touch out/log", "git status", "git diff --stat", "git log --oneline",
    "python x.py", "python3 -m pytest -q", "node app.js", "npm test", "make build", "grep -rn TODO .",
    "find . -name '*.md'", "sed -n 1,5p a.txt", "sort names.csv | uniq -c", "wc -l data.json", "tar -tf archive.tar",
    "jq .name package.json", "diff a b", "date", "which python3", "chmod +x run.sh",
)  # fmt: skip
"""Commands of everyday work: a filter that hits half of them says nothing."""
_VALUES = ("x", "500", "a b c", "https://live.example.test/x", "/etc/passwd", "production", "-1", "DROP TABLE")
"""Of all kinds: what hits them all says nothing."""
_REFUSED = frozenset({
    "catch-all", "unfiltered-bash", "filter-hits-all", "hidden-handler", "no-effect", "ask-by-glob",
    "telltale-reason", "env-check-fails", "codex-tool", "codex-fields",
})  # fmt: skip
"""Warnings of `check` that no proposal may bring."""


def proposal_faults(
    proposal: Proposal, entries: Sequence[Handler], asked: Asked, ev: Eval, kept: Collection[int] = ()
) -> list[Problem]:  # fmt: skip
    """What is wrong with the rules and their probes, before they are put into a file; those of ``kept`` entries are
    not used, whatever they are."""
    found: list[Problem] = []

    def say(text: str, entry: int | None = None, level: Level = "error") -> None:
        if entry in kept:
            return
        known = entry is not None and 0 <= entry < len(entries)
        place = f"{entry_label(entry, entries[entry])} " if entry is not None and known else ""
        line = entries[entry].line if entry is not None and known else None
        found.append(Problem(f"{place}{text}", Where(ev.file, line), level=level, code="proposal"))

    given: dict[int, int] = {}
    for rule in proposal.rules:
        given[rule.entry] = given.get(rule.entry, 0) + 1
        if not 0 <= rule.entry < len(entries):
            say(f"a rule is for entry {rule.entry}, which there is not: they are 0 to {len(entries) - 1}")
    for entry in range(len(entries)):
        if given.get(entry, 0) != 1:
            say(f"must have exactly one rule, and has {given.get(entry, 0)}", entry)
    for rule in proposal.rules:
        if 0 <= rule.entry < len(entries):
            for text in (*_patterns(rule, asked), *_filters(rule), *_fields(rule), *_permitted(rule), *_probes(rule)):
                say(text, rule.entry)
            for text in _named(rule, entries[rule.entry]):
                say(text, rule.entry, "warning")
    if proposal.case_overrides and not any(named("AskUserQuestion", rule.patterns) for rule in proposal.rules):
        say("case_overrides hold answers, and no rule names AskUserQuestion")
    asked_before: set[str] = set()
    for answer in proposal.case_overrides:
        if folded(answer.question) in asked_before:
            say(f"case_overrides answer the same question twice: {answer.question!r}")
        asked_before.add(folded(answer.question))
    return found


def entry_label(number: int, entry: Handler) -> str:
    """How messages name an entry: its number and the start of its text."""
    words = " ".join(entry.match.split())
    return f"inputs.tools[{number}] ({words if len(words) <= 60 else words[:60] + '…'!r})"


def _patterns(rule: Rule, asked: Asked) -> Iterator[str]:
    if not rule.patterns:
        yield "has no patterns"
    if all(_caught(tool, rule.patterns) for tool in asked.tools):
        yield "catches every tool in the request, one by one"
    for pattern in dict.fromkeys(rule.patterns):
        if subsumed("*", [pattern]) or squeezed(pattern).strip("?") == "*":
            yield f"catches every tool: {pattern!r}"
        elif not subsumed(pattern, asked.tools) and (is_glob(pattern) or not covered(pattern, asked.tools)):
            yield f"catches tools that are not in the request: {pattern!r}"


def _named(rule: Rule, entry: Handler) -> Iterator[str]:
    """Where the rule is about other tools than its text names: that may be right, and somebody should look at it."""
    if "*" in entry.patterns:
        return
    for tool in entry.patterns:
        if not _caught(tool, rule.patterns):
            yield f"names {tool}, which its rule does not catch"
    for pattern in rule.patterns:
        if not covered(pattern, entry.patterns) and not any(overlap(pattern, one) for one in entry.patterns):
            yield f"has a rule that catches {pattern}, which its text does not name"


def _caught(tool: str, patterns: Sequence[str]) -> bool:
    return covered(tool, patterns) or subsumed(tool, patterns)


def _filters(rule: Rule) -> Iterator[str]:
    if rule.input_filters and not covered("Bash", rule.patterns):
        yield "has input_filters, and no pattern catches Bash"
    if not rule.input_filters and covered("Bash", rule.patterns):
        yield "catches Bash without input_filters"
    usable = [text for text in rule.input_filters if regex_fault(text, re.IGNORECASE) is None]
    for text in dict.fromkeys(usable):
        if re.search(text, "", re.IGNORECASE):
            yield f"has a filter that every command hits: {text!r}"
        elif hits := _hits([text]):
            yield f"has a filter that hits everyday commands ({hits}): {text!r}"
        else:
            yield from _short_words(text)
    if len(usable) > 1 and not any(_hits([text]) for text in usable) and (hits := _hits(usable)):
        yield f"has filters that together hit everyday commands ({hits})"


def _hits(filters: Sequence[str]) -> str:
    """Everyday commands that are hit, if it is half of them; else an empty text."""
    hit = [one for one in HARMLESS if any(re.search(text, one, re.IGNORECASE) for text in filters)]
    return f"{len(hit)} of {len(HARMLESS)}, as {hit[0]!r}" if len(hit) * 2 >= len(HARMLESS) else ""


def _short_words(regex: str) -> Iterator[str]:
    """Words of one or two letters that are found within other words, too."""
    for text in branch_texts(regex, re.IGNORECASE):
        letters = re.findall(r"\w", text)
        if not 1 <= len(letters) <= 2:
            continue
        word = re.search(r"\w+", text)
        assert word is not None
        longer = (text[: word.start()] + "q" + text[word.start() :], text[: word.end()] + "q" + text[word.end() :])
        if any(re.search(regex, one, re.IGNORECASE) for one in longer):
            yield f"has a filter that finds {text!r} within longer words (write \\b on both sides): {regex!r}"


def _fields(rule: Rule) -> Iterator[str]:
    if not rule.reason.strip():
        yield "has no reason"
    for what, names in (("variable", [check.variable for check in rule.env_checks]),):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"checks the {what} {name} twice"
    if named("AskUserQuestion", rule.patterns) and (rule.env_checks or rule.input_checks):
        yield "names AskUserQuestion, which is answered, and has checks: give other tools no part of it"


def _permitted(rule: Rule) -> Iterator[str]:
    """Checks that every value passes: a rule with one only looks like a rule."""
    for check in rule.env_checks:
        if check.matches and _hits_all(check.matches):
            yield f"permits every value of {check.variable}: matches {check.matches!r}"
        for host in check.host_in:
            if not host.strip("*?.") and host.strip():
                yield f"permits every host in {check.variable}: {host!r}"
        for word in check.must_contain:
            if len(word.strip()) == 1:
                yield f"permits nearly every value of {check.variable}: must_contain {word!r}"
    for one in rule.input_checks:
        value = json.loads(one.value_json)
        if (one.op == "matches" and isinstance(value, str) and _hits_all(value)) or (
            one.op == "glob" and isinstance(value, str) and squeezed(value) == "*"
        ):
            yield f"permits every value of {one.field}: {one.op} {value!r}"


def _hits_all(regex: str) -> bool:
    return regex_fault(regex) is None and all(re.search(regex, value) for value in _VALUES)


def _probes(rule: Rule) -> Iterator[str]:
    for kind, probes in (("caught", rule.caught), ("passing", rule.passing)):
        different = {_call(probe) for probe in probes_of_rule(rule.model_copy(update=_only(kind, rule)))}
        if len(different) < PROBES_EACH:
            yield f"needs at least {PROBES_EACH} different calls under {kind!r}, and has {len(different)}"
        for probe in probes:
            catches = covered(probe.tool, rule.patterns)
            if not probe.name.strip():
                yield f"has a probe without a name under {kind!r}"
            if kind == "caught" and not catches:
                yield f"the probe {probe.name!r} under 'caught' calls {probe.tool}, which its patterns do not catch"
            if kind == "passing" and not catches and _lets_some_pass(rule):
                yield f"the probe {probe.name!r} under 'passing' calls {probe.tool}, which shows nothing of the rule"
            if probe.answers and probe.tool not in QUESTION_TOOLS:
                yield f"the probe {probe.name!r} has answers, and calls no question"


def _only(kind: str, rule: Rule) -> dict[str, Any]:
    return {"caught": rule.caught if kind == "caught" else [], "passing": rule.passing if kind == "passing" else []}


def _call(probe: dict[str, Any]) -> str:
    return repr((probe["tool"], probe["input"], probe.get("env")))


def _lets_some_pass(rule: Rule) -> bool:
    """Whether some calls of its own tools pass: those that no filter hits, or whose checks hold."""
    return bool(rule.input_filters or rule.env_checks or rule.input_checks)


def handler_faults(handlers: Handlers, ev: Eval, path: Path, proposed: Sequence[int]) -> list[Problem]:
    """What `check` would say of the proposed rules (indices in the file); errors are what no proposal may bring."""
    problems = Problems()
    lint(handlers, replace(ev, handlers_file=path), problems)
    lines = {handlers.handlers[index].line for index in proposed}
    found = []
    for problem in problems:
        if problem.where.path != path or problem.where.line not in lines or problem.level == "note":
            continue
        refused = problem.code in _REFUSED
        found.append(replace(problem, where=Where(path), level="error" if refused else problem.level))
    for index, handler in enumerate(handlers.handlers):
        shadow = None if index in proposed else shadow_on(handlers.handlers, index, ev.spec.runner.type)
        if shadow is not None and shadow.by in proposed:
            what = "never decides" if shadow.whole else f"does not decide about {', '.join(shadow.lost)}"
            own = f"handlers[{index}] ({handler.match[:60]!r}), the author's own,"
            message = f"{own} {what} any more: handlers[{shadow.by}] does"
            found.append(Problem(message, Where(path), level="error" if shadow.whole else "warning", code="hides-own"))
    return found
