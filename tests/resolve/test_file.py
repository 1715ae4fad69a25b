"""tool_handlers.yaml after a proposal: what stays, what goes, and that it reads as it was meant."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import parse_yaml
from harbor_tasks.policy.handlers import HANDLER_TEXTS, read_handlers
from harbor_tasks.policy.resolve.merge import Current, Merged, kept_entries, merged, same
from harbor_tasks.policy.resolve.record import Record, split_head
from harbor_tasks.policy.resolve.yamlfile import new_text

PATH = Path("tool_handlers.yaml")
MATCHES = ["Questions", "Refunds\nabove 50", "Downloads"]

Data = dict[str, Any]


def handler(entry: int, **more: Any) -> Data:
    return {"match": " ".join(MATCHES[entry].split()), "patterns": [f"Tool{entry}"], "reason": f"No {entry}.", **more}


def probe(name: str, **more: Any) -> Data:
    return {"name": name, "tool": "Bash", "input": {"command": name}, "expect": "deny", **more}


RULES = {0: handler(0), 1: handler(1), 2: handler(2)}
PROBES = {0: [probe("p0")], 1: [probe("p1"), probe("q1")], 2: [probe("p2")]}
ANSWERS = {"Go on?": "Yes"}


def read(text: str) -> tuple[str, Current]:
    """A file as `resolve` reads it: the text without the head, and its content."""
    record, body = split_head(text)
    problems = Problems()
    document = parse_yaml(body, PATH, problems, text_under=HANDLER_TEXTS)
    assert not problems.errors, [str(one) for one in problems]
    data = document.data if document is not None and document.data is not None else {}
    return body, Current(
        data.get("handlers") or [], data.get("probes") or [], data.get("case_overrides") or {}, record
    )  # fmt: skip


def again(
    text: str, rules: dict[int, Data] | None = None, probes: dict[int, list[Data]] | None = None,
    answers: dict[str, Any] | None = None, taken: tuple[str, ...] = (),
) -> str:  # fmt: skip
    """The file after another proposal; by default the first one."""
    body, current = read(text)
    found = merged(
        current, MATCHES, RULES if rules is None else rules, PROBES if probes is None else probes,
        ANSWERS if answers is None else answers, taken,
    )  # fmt: skip
    new = body if same(found, current) else new_text(PATH, body, current, found)
    return f"{Record('m', 't', 'p', 'i', found.made, found.answers).lines()}\n{new}"


@pytest.fixture
def first() -> str:
    return again("")


def changed(**rules: Data) -> dict[int, Data]:
    return {**RULES, **{int(key[1:]): value for key, value in rules.items()}}


def data_of(text: str) -> Data:
    document = parse_yaml(text, PATH, Problems(), text_under=HANDLER_TEXTS)
    assert document is not None
    found: Data = document.data
    return found


def test_the_same_proposal_changes_nothing(first: str) -> None:
    assert again(first) == first


def test_another_proposal_replaces_what_nobody_touched(first: str) -> None:
    new = again(first, changed(r1=handler(1, reason="Better.")), {**PROBES, 1: [probe("r1")]}, {"Go on?": "No"})
    data = data_of(new)
    assert [one["reason"] for one in data["handlers"]] == ["No 0.", "Better.", "No 2."]
    assert [one["name"] for one in data["probes"]] == ["p0", "p2", "r1"]
    assert data["case_overrides"] == {"Go on?": "No"}
    assert again(again(new)) == again(new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("reason: No 1.", "reason: Mine."), ("patterns: [Tool1]", "patterns: [Tool1, Extra]"),
        ("    reason: No 1.\n", ""), ("reason: No 1.", "reason: No 1.\n    on_fail: ask"),
    ],
)  # fmt: skip
def test_a_rule_that_was_edited_stays_and_so_do_its_probes(first: str, old: str, new: str) -> None:
    edited = first.replace(old, new)
    assert edited != first
    assert kept_entries(read(edited)[1], MATCHES) == {1}
    after = again(edited, changed(r1=handler(1, reason="Better."), r2=handler(2, reason="New.")), {**PROBES, 1: []})
    data, before = data_of(after), data_of(edited)
    assert data["handlers"][1] == before["handlers"][1]
    assert data["handlers"][2]["reason"] == "New."
    assert [one["name"] for one in data["probes"]] == ["p0", "p1", "q1", "p2"]
    assert again(after, changed(r1=handler(1, reason="Once more."), r2=handler(2, reason="New."))) == after


def test_a_rule_that_was_edited_back_is_proposed_again(first: str) -> None:
    edited = again(first.replace("No 1.", "Mine."))
    back = edited.replace("Mine.", "No 1.")
    assert kept_entries(read(back)[1], MATCHES) == set()


def test_comments_and_own_parts_survive(first: str) -> None:
    text = first.replace("handlers:\n", "# About all of them.\nhandlers: # rules\n  # before the first\n")
    text = text.replace("    patterns: [Tool1]", "    # why this tool\n    patterns: [Tool1] # only it")
    own = "  # mine, not to be lost\n  - match: my own\n    patterns: ['Own']\n    env_checks: {X: {equals: 'yes'}}\n"
    text = text.replace("    reason: No 1.\n", f"    reason: No 1. # short\n\n{own}")
    text = text.replace("probes:\n", "hook_model: some-model # cheap\n\nprobes:\n  # my probe\n  - {name: mine, tool: "
                        "Own, input: {n: 1.50}, expect: deny, env: {V: 08}}\n")  # fmt: skip
    text += "# the end\n"
    comments = [line.partition("#")[2].strip() for line in text.splitlines()[8:] if "#" in line]
    rules = changed(r1=handler(1, patterns=["Tool1", "More"], reason="Better."), r2=handler(2, input_filters=["a b"]))
    after = again(text, rules, {**PROBES, 1: [probe("r1")]})
    for comment in comments:
        assert f"# {comment}" in after, comment
    data = data_of(after)
    assert [one["match"] for one in data["handlers"]] == ["Questions", "Refunds above 50", "my own", "Downloads"]
    assert data["handlers"][1]["patterns"] == ["Tool1", "More"]
    assert data["handlers"][2] == {"match": "my own", "patterns": ["Own"], "env_checks": {"X": {"equals": "yes"}}}
    assert data["probes"][0] == {
        "name": "mine",
        "tool": "Own",
        "input": {"n": 1.5},
        "expect": "deny",
        "env": {"V": "08"},
    }
    assert data["hook_model"] == "some-model"
    assert "env_checks: {X: {equals: 'yes'}}" in after
    assert again(after, changed(r1=data["handlers"][1], r2=data["handlers"][3]), {**PROBES, 1: [probe("r1")]}) == after


def test_comments_of_parts_that_go_are_put_back() -> None:
    rules = changed(r1=handler(1, input_checks=[{"field": "a", "op": "exists", "value": True}]))
    written = again(again("", rules), rules)  # so that it counts as proposed
    text = written.replace("value: true}]", "value: true}] # checked").replace(
        "    reason: No 1.", "    # below\n    reason: No 1."
    )
    assert "# checked" in text
    after = again(text)
    assert "# checked" in after
    assert "# below" in after
    assert "input_checks" not in after


FORMS = {
    0: handler(0, reason="word " * 30 + "end"),
    1: handler(1, input_checks=[{"field": "a", "op": "exists", "value": True},
                                {"field": "b", "op": "in", "value": ["x" * 50, "y" * 50]}],
               env_checks={"A": {"host_in": ["a", "b"]}}),
    2: handler(2, input_filters=["a b", "x" * 80]),
}  # fmt: skip
"""Rules in all forms that are written: folded, on one line, on several."""
NESTED = {**PROBES, 0: [probe("p0", input={"q": [{"a": "b\nc", "d": ["e"]}]})]}


def commented(text: str, at: int, style: str) -> str:
    """A comment at this line: behind it, or above it with its indent or none."""
    lines = text.splitlines()
    if style == "behind":
        lines[at] += " # my comment"
    else:
        indent = len(lines[at]) - len(lines[at].lstrip()) if style == "above" else 0
        lines.insert(at, " " * indent + "# my comment")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("style", ["above", "behind", "left"])
def test_a_comment_survives_wherever_it_stands(style: str) -> None:
    """All rules change, all probes go; what the file then holds is checked where it is written."""
    text = again("", FORMS, NESTED)
    meant = read(text)[1]
    other = {0: handler(0), 1: handler(1, patterns=["X", "Y"]), 2: handler(2, env_checks={"Q": {"equals": "1"}})}
    tried = 0
    for at, line in enumerate(text.splitlines()):
        if at < 10 or (style == "behind" and not line.strip()):
            continue
        with_it = commented(text, at, style)
        if parse_yaml(with_it, PATH, Problems()) is None or read(with_it)[1] != meant:
            continue  # there it is a part of a text
        after = again(with_it, other, {0: [], 1: [], 2: []})
        assert after.count("# my comment") == 1, with_it
        tried += 1
    assert tried > 35


def test_a_rule_whose_entry_is_gone_goes_unless_somebody_changed_it(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "MATCHES", MATCHES[:2])
    text = first.replace("  - match: Downloads", "  # about downloads\n  - match: Downloads")
    after = again(text, {0: RULES[0], 1: RULES[1]}, {0: PROBES[0], 1: PROBES[1]})
    assert [one["match"] for one in data_of(after)["handlers"]] == ["Questions", "Refunds above 50"]
    assert [one["name"] for one in data_of(after)["probes"]] == ["p0", "p1", "q1"]
    assert "# about downloads" in after
    edited = first.replace("No 2.", "Mine.")
    after = again(edited, {0: RULES[0], 1: RULES[1]}, {0: PROBES[0], 1: PROBES[1]})
    assert data_of(after)["handlers"][2]["reason"] == "Mine."


def test_a_copy_of_a_rule_is_the_authors(first: str) -> None:
    data = data_of(first)
    data["handlers"].append(dict(data["handlers"][1]))
    head = first[: first.index("\n\n") + 2]
    after = data_of(again(head + json.dumps(data), changed(r1=handler(1, reason="Better."))))
    assert [one["reason"] for one in after["handlers"]] == ["No 0.", "Better.", "No 2.", "No 1."]


def test_what_was_deleted(first: str) -> None:
    """A rule is proposed again, in its place; a probe or an answer does not come back."""
    data = data_of(first)
    del data["handlers"][1], data["probes"][0], data["case_overrides"]["Go on?"]
    head = first[: first.index("\n\n") + 2]
    after = data_of(again(head + json.dumps(data, indent=1)))
    assert [one["match"] for one in after["handlers"]] == ["Questions", "Refunds above 50", "Downloads"]
    assert [one["name"] for one in after["probes"]] == ["p1", "q1", "p2"]
    assert not after["case_overrides"]


def test_the_authors_order_stays(first: str) -> None:
    data = data_of(first)
    data["handlers"].reverse()
    head = first[: first.index("\n\n") + 2]
    after = data_of(again(head + json.dumps(data, indent=1), changed(r1=handler(1, reason="Better."))))
    assert [one["match"] for one in after["handlers"]] == ["Downloads", "Refunds above 50", "Questions"]
    assert after["handlers"][1]["reason"] == "Better."


def test_a_file_written_by_hand_is_the_authors() -> None:
    text = (
        "# mine\nhandlers:\n- match: Refunds above 50\n  patterns: [Other]\n- match: of my own\n  patterns:\n"
        "  - A\n  - B # both\ncase_overrides:\n  Go   on?: No\n"
    )
    after = again(text)
    data = data_of(after)
    assert [one["match"] for one in data["handlers"]] == ["Questions", "Refunds above 50", "Downloads", "of my own"]
    assert data["handlers"][1]["patterns"] == ["Other"]
    assert data["case_overrides"] == {"Go   on?": "No"}
    assert "# mine" in after
    assert "# both" in after
    assert "\n- match: of my own\n  patterns:\n  - A\n" in after


def test_names_of_probes_are_different(first: str) -> None:
    text = again("", probes={0: [probe("p"), probe("p", expect="none")], 1: [], 2: [probe("taken")]}, taken=("taken",))
    assert [one["name"] for one in data_of(text)["probes"]] == ["p", "p (2)", "taken (2)"]
    same_again = again(
        text, probes={0: [probe("p"), probe("p", expect="none")], 1: [], 2: [probe("taken")]}, taken=("taken",)
    )
    assert same_again == text


@pytest.mark.parametrize(
    "text", ["handlers: []\n", "handlers: [] # none\n", '{"handlers": []}\n', "hook_model: m\nhandlers: []\n"]
)
def test_an_empty_list_is_filled(text: str) -> None:
    data = data_of(again(text))
    assert len(data["handlers"]) == 3


def test_names_of_probes_that_stay_are_not_taken(first: str) -> None:
    edited = first.replace("No 1.", "Mine.")
    data = data_of(again(edited, probes={**PROBES, 2: [probe("p1"), probe("q1", expect="none")]}))
    assert [one["name"] for one in data["probes"]] == ["p0", "p1", "q1", "p1 (2)", "q1 (2)"]


def test_a_file_in_flow_style() -> None:
    text = json.dumps({"handlers": [handler(1, reason="Mine.")], "case_overrides": {}})
    data = data_of(again(text))
    assert [one["reason"] for one in data["handlers"]] == ["No 0.", "Mine.", "No 2."]


def test_a_file_of_json_gets_parts_for_people(first: str) -> None:
    """What stays keeps its form; what is new or replaced can be read."""
    head = first[: first.index("\n\n") + 2]
    long = "word " * 30 + "end"
    data = data_of(first)
    data["handlers"][0]["reason"] = "Mine."
    after = again(head + json.dumps(data, indent=1), changed(r1=handler(1, reason=long)), {**PROBES, 2: [probe("new")]})
    assert '\n  - {"match": "Questions", "patterns": ["Tool0"], "reason": "Mine."}\n' in after
    assert "\n  - name: new\n    tool: Bash\n" in after
    assert data_of(after)["handlers"][1]["reason"] == long


def test_anchors_of_the_author_stay() -> None:
    text = (
        "x-tools: &tools [A, B]\nhandlers:\n  - match: Refunds above 50\n    patterns: *tools\n"
        "  - match: mine\n    patterns: *tools\n"
    )
    after = again(text)
    assert "patterns: *tools" in after
    assert data_of(after)["handlers"][1]["patterns"] == ["A", "B"]


SCALARS = (
    "case_overrides: {a: yes, b: 08, c: 1.10, d: ~, e: , f: 2026-01-01, g: 1_000, h: 0x1f, i: 1:30, j: 'x', k: "
    '"\\x1b"}\n'
)


def test_scalars_of_the_author_stay_as_they_are_written() -> None:
    text = f"handlers: []\n{SCALARS}"
    after = again(text)
    before = data_of(text)["case_overrides"]
    assert {key: data_of(after)["case_overrides"][key] for key in before} == before
    for scalar in ("yes", "08", "1.10", "~", "1_000", "0x1f", "1:30"):
        assert scalar in after


HOSTILE = [
    "*", "&a", "!!python/object:os.system", "- a", "a: b", "a\n  b: c", "---", "...", "%TAG", "# no comment", "a #b",
    "'", '"', "''", '"\'', "\\", "\\n", "|", ">", "|-\n  x", "{a: b}", "[a]", "@x", "`x`", "?", "? a", ": ", "true",
    "null", "~", "yes", "No", "08", "1e5", "1.10", ".inf", "0x1f", "<<", "=", " lead", "trail ", "a  b", "\ta", "a\tb",
    "a\n", "\n", "\n\na", "é", "日本", "😀", "x" * 500, "word " * 60, "*x\n- match: forged\n  patterns: ['*']",
    "a\n\n  - match: b",     "x: &y", "{{ a }}", "{0}", "\u00a0",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_forged_yaml_is_text(text: str) -> None:
    """Whatever a model writes stays the value of its field, in the first file and in a changed one."""
    if not text.strip():
        text += "x"
    hostile = {
        1: handler(1, reason=text, input_filters=[text], env_checks={"A": {"equals": text, "must_contain": [text] * 2}},
                   input_checks=[{"field": text, "op": "eq", "value": text}]),
    }  # fmt: skip
    probes = {
        **PROBES,
        1: [probe(text, input={text: [text, {text: text}], "n": 1}, env={"V": text}, answers={text: [text]})],
    }
    for before in ("", again("")):
        after = again(before, {**RULES, **hostile}, probes, {text: text, "b": [text]})
        data = data_of(after)
        assert len(data["handlers"]) == 3
        assert data["handlers"][1] == hostile[1]
        assert [one for one in data["probes"] if one["name"] == text] == probes[1]
        assert data["case_overrides"] == {text: text, "b": [text]}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], include_characters="\n\t\\'\"#:-")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab: -#'*&\n", max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    VALUES, st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], include_characters="\n\t#:'\""), min_size=1)
)
def test_any_data_reads_as_it_was_meant(value: Any, text: str) -> None:
    rules = {0: handler(0, reason=text)}
    probes = [probe("p", input={"value": value, text: 1})]
    slots = merged(Current(), MATCHES[:1], rules, {0: probes}, {text: text}, ())
    out = new_text(PATH, "", Current(), slots)  # which reads it back by itself
    assert json.dumps(data_of(out)["probes"], sort_keys=True) == json.dumps(probes, sort_keys=True)


def some_proposal(r: random.Random) -> tuple[dict[int, Data], dict[int, list[Data]], dict[str, Any]]:
    rules, probes = {}, {}
    for entry in range(3):
        rules[entry] = handler(entry, reason=r.choice(["A.", "B.", "word " * 30 + "x"]))
        if r.random() < 0.5:
            rules[entry]["input_filters"] = [r.choice(["a b", "c"])]
        if r.random() < 0.5:
            rules[entry]["env_checks"] = {"V": {"host_in": ["h", r.choice("xyz")]}}
        names = r.sample(["p", "q", "s", "t"], r.randint(0, 3))
        probes[entry] = [probe(name, expect=r.choice(["deny", "none"]), env={"V": r.choice("12")}) for name in names]
    return rules, probes, {name: r.choice(["x", ["y", "z"]]) for name in r.sample(["Q1", "Q2", "q 3"], r.randint(0, 2))}


def edited_by_hand(r: random.Random, text: str) -> str:
    """One change that an author may make."""
    head, _, _ = text.partition("\n\n")
    data = data_of(text)
    rules, probes = data["handlers"], data.setdefault("probes", [])
    number = r.randint(0, 9999)
    edits: list[Callable[[], Any]] = [
        lambda: rules[r.randrange(len(rules))].update(reason=f"mine {number}"),
        lambda: rules.pop(r.randrange(len(rules))),
        lambda: rules.insert(r.randint(0, len(rules)), {"match": f"mine {number}", "patterns": ["P"]}),
        lambda: r.shuffle(rules),
        lambda: probes.append(probe(f"mine {number}")),
        lambda: probes and probes.pop(r.randrange(len(probes))),
        lambda: probes and probes[r.randrange(len(probes))].update(input={"mine": number}),
        lambda: data.setdefault("case_overrides", {}).update({f"mine {number}": "v"}),
    ]
    r.choice(edits)()
    return f"{head}\n\n{json.dumps(data, indent=1)}\n" if r.random() < 0.5 else f"{head}\n\n{yaml.safe_dump(data)}"


@pytest.mark.parametrize("seed", range(25))
def test_proposals_and_edits_in_turn(seed: int) -> None:
    """What the author made stays; the same proposal again changes nothing; no two probes have one name."""
    r, text = random.Random(seed), ""
    for _ in range(4):
        given = some_proposal(r)
        after = again(text, *given)
        assert again(after, *given) == after
        data, before = data_of(after), data_of(text) if text else {}
        names = [one["name"] for one in data.get("probes", [])]
        assert len(set(names)) == len(names)
        assert {" ".join(match.split()) for match in MATCHES} <= {one["match"] for one in data["handlers"]}
        for key in ("handlers", "probes"):
            mine = [one for one in before.get(key, []) if "mine" in json.dumps(one)]
            assert all(one in data.get(key, []) for one in mine)
        for question in before.get("case_overrides", {}):
            assert "mine" not in question or question in data["case_overrides"]
        text = edited_by_hand(r, after)


def test_what_cannot_be_kept_is_said() -> None:
    text = "handlers: !!seq\n  - match: mine\n    patterns: [A]\n"
    problems = Problems()
    if read_handlers(PATH, problems, content=text) is None:
        assert problems.errors
    else:
        assert "mine" in again(text)


def test_the_head_is_not_taken_for_one_of_somebody_else() -> None:
    assert split_head("# model: x\nhandlers: []\n") == (None, "# model: x\nhandlers: []\n")
    assert split_head("handlers: []\n")[0] is None


def test_a_head_that_somebody_broke(first: str) -> None:
    """What is left of it is believed; a part that it does not name is the author's."""
    lines = [line for line in first.splitlines() if not line.startswith("# made for")]
    text = "\n".join(lines) + "\n"
    assert kept_entries(read(text)[1], MATCHES) == {0, 1, 2}
    forged = copy.deepcopy(data_of(again(text, changed(r1=handler(1, reason="Better.")))))
    assert forged["handlers"] == data_of(first)["handlers"]


def test_a_merge_of_nothing_is_the_same() -> None:
    found = merged(Current(), [], {}, {}, {}, ())
    assert found == Merged((), (), {}, {}, (), ())
    assert same(found, Current())
