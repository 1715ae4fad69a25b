"""What a model may answer, and what is wrong with an answer: all of it, in plain words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harbor_tasks.policy.handlers import Handler
from harbor_tasks.policy.resolve.proposal import (
    MAX_FAULTS,
    ProposalError,
    handler_of,
    overrides_of,
    parse_proposal,
    probes_of_rule,
)

from . import kit


def faults(answer: Any) -> str:
    with pytest.raises(ProposalError) as caught:
        parse_proposal(answer)
    assert len(caught.value.faults) <= MAX_FAULTS + 1
    assert all(len(line) < 400 for line in caught.value.faults)
    return "\n".join(caught.value.faults)


def test_a_right_answer_as_text_and_as_data() -> None:
    assert parse_proposal(json.dumps(kit.PROPOSAL)) == parse_proposal(kit.PROPOSAL)


@pytest.mark.parametrize("answer", ["", "no", "[]", "null", "{}", "{" * 100_000, '{"rules": []', "```json\n{}\n```", 7])
def test_what_is_no_proposal_at_all(answer: Any) -> None:
    assert faults(answer)


def test_all_faults_are_named_with_their_place() -> None:
    data = kit.proposal(
        r0={"patterns": "Bash"}, r1={"input_checks": [{"field": "a", "op": "around", "value_json": "{"}]},
        r2={"rewrite": {"command": "true"}},
    )  # fmt: skip
    text = faults(data)
    assert "rules[0].patterns" in text
    assert "rules[1].input_checks[0].op" in text
    assert "rules[1].input_checks[0].value_json: is not JSON" in text
    assert "rules[2].rewrite: extra inputs are not permitted" in text


@pytest.mark.parametrize(
    "loose",
    [{"on_pass": "allow"}, {"rewrite": {}}, {"on_fail": "ask"}, {"on_unanswered": "first_option"}, {"match": "x"}],
)
def test_nothing_that_loosens_a_policy_can_be_proposed(loose: dict[str, Any]) -> None:
    assert "extra inputs" in faults(kit.proposal(r1=loose))


@pytest.mark.parametrize(
    "text", ["a\x00b", "a\x1b[2J", "\ud800", "a\u2028b", "\x85", "\ufeff", "a\rb"],
)  # fmt: skip
def test_texts_that_drive_terminals_or_break_files(text: str) -> None:
    for change in ({"reason": text}, {"input_filters": [text]}, {"caught": [kit.bash(text)]}):
        said = faults(kit.proposal(r2=change))
        assert any(words in said for words in ("control characters", "is not JSON", "valid string"))


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1e999", '"\\ud800"', "[" * 1900, "", "{'a': 1}", "1 2", "9" * 1990 + "9e9"]
)
def test_values_that_are_no_json(value: str) -> None:
    assert "value_json" in faults(kit.proposal(r1={"input_checks": [{"field": "a", "op": "eq", "value_json": value}]}))


@pytest.mark.parametrize("given", ["[]", '"a"', "null", "NaN", "{", '{"a": Infinity}'])
def test_inputs_that_are_no_mapping(given: str) -> None:
    bad = {"name": "n", "tool": "Bash", "input_json": given, "env": [], "answers": []}
    assert "input_json" in faults(kit.proposal(r2={"caught": [bad]}))


@pytest.mark.parametrize(
    "huge",
    [
        {"reason": "x" * 100_000}, {"patterns": ["Bash"] * 10_000}, {"input_filters": ["a" * 5000]},
        {"caught": [kit.bash("a")] * 5000}, {"caught": [kit.bash("a" * 10_000)]},
    ],
)  # fmt: skip
def test_what_is_too_large(huge: dict[str, Any]) -> None:
    assert faults(kit.proposal(r2=huge))


def test_types_are_not_guessed() -> None:
    assert "entry" in faults(kit.proposal(r0={"entry": "0"}))
    assert "reason" in faults(kit.proposal(r0={"reason": 5}))


def test_a_rule_becomes_a_handler_with_the_authors_words() -> None:
    right = parse_proposal(kit.PROPOSAL)
    entry = Handler("Refunds\n  by  tool\n", ("*",), prompt="Say yes.", prompt_file="p.md", prompt_text="more")
    assert handler_of(right.rules[1], entry) == {
        "match": "Refunds by tool", "patterns": ["mcp__desk__refund"],
        "input_checks": [{"field": "amount", "op": "le", "value": 50}], "reason": right.rules[1].reason,
    }  # fmt: skip
    asks = handler_of(right.rules[0], entry)
    assert (asks["prompt"], asks["prompt_file"]) == ("Say yes.", "p.md")
    assert handler_of(right.rules[3], entry)["env_checks"] == {"TRACKER_URL": {"host_in": ["localhost"]}}


def test_what_a_probe_expects_follows_from_where_it_stands() -> None:
    right = parse_proposal(kit.PROPOSAL)
    assert [one["expect"] for one in probes_of_rule(right.rules[0])] == ["answer", "answer", "none", "none"]
    assert [one["expect"] for one in probes_of_rule(right.rules[3])] == ["deny", "deny", "none", "none"]
    assert probes_of_rule(right.rules[0])[0]["answers"] == {"Go on?": "Yes"}
    assert probes_of_rule(right.rules[3])[0]["env"] == {"TRACKER_URL": "https://live.example.test"}


def test_one_answer_or_several() -> None:
    data = kit.proposal(case_overrides=[{"question": "q", "answers": ["a"]}, {"question": "r", "answers": ["a", "b"]}])
    assert overrides_of(parse_proposal(data).case_overrides) == {"q": "a", "r": ["a", "b"]}
