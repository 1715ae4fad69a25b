"""Proposals of the right form that are no good: what catches too much, or nothing, or is not shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import load_eval
from harbor_tasks.policy.handlers import handlers_of
from harbor_tasks.policy.regex_timer import branch_texts
from harbor_tasks.policy.resolve.asked import asked_of
from harbor_tasks.policy.resolve.judged import HARMLESS, proposal_faults
from harbor_tasks.policy.resolve.proposal import parse_proposal, schema
from harbor_tasks.policy.tools import REACHING

from . import kit

Faults = Callable[..., str]


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Faults:
    """What is wrong with the right proposal after these changes."""
    problems = Problems()
    ev = load_eval(kit.write_eval(tmp_path_factory.mktemp("eval")), problems)
    assert ev is not None
    staged = handlers_of(ev, problems)
    assert staged is not None
    asked = asked_of(ev, staged.handlers, [], schema())

    def run(**changes: Any) -> str:
        found = proposal_faults(parse_proposal(kit.proposal(**changes)), staged.handlers, asked, ev)
        return "\n".join(map(str, found))

    return run


def test_the_right_one_has_no_fault(faults: Faults) -> None:
    assert faults() == ""


@pytest.mark.parametrize("pattern", ["*", "**", "?*", "*?", "***"])
def test_a_catch_all(faults: Faults, pattern: str) -> None:
    assert "inputs.tools[1] ('Refunds" in faults(r1={"patterns": [pattern]})
    assert "catches every tool" in faults(r1={"patterns": ["mcp__desk__refund", pattern]})


@pytest.mark.parametrize(
    "pattern",
    ["mcp__other__refund", "mcp__*", "mcp__desk*", "B*", "Ba?h", "[a-z]+", "Bahs", "mcp__desk_", "bash", "&a", "*a"],
)
def test_tools_that_nobody_spoke_of(faults: Faults, pattern: str) -> None:
    assert f"catches tools that are not in the request: {pattern!r}" in faults(r1={"patterns": [pattern]})


@pytest.mark.parametrize("pattern", ["mcp__desk__refund", "mcp__desk__*", "mcp__desk__re?und*"])
def test_tools_of_a_server_in_the_request(faults: Faults, pattern: str) -> None:
    assert "not in the request" not in faults(r1={"patterns": [pattern]})


@pytest.mark.parametrize(
    "regex", ["", ".*", "^", "a*", "(curl)?", "$", "x{0,3}", "^(?!curl)", "(?=)", "^.*$", "(|curl)"]
)
def test_a_filter_that_every_command_hits(faults: Faults, regex: str) -> None:
    assert "a filter that every command hits" in faults(r2={"input_filters": [regex]})


@pytest.mark.parametrize("regex", [".", r"\w+", r"\s", "[a-z]", "e", r"^\w", r"\b|curl", "[^x]{2}", r"\S\S", "t|s|a"])
def test_a_filter_that_everyday_commands_hit(faults: Faults, regex: str) -> None:
    text = faults(r2={"input_filters": [regex]})
    assert "hits everyday commands" in text or "within longer words" in text


def test_filters_that_are_harmless_one_by_one(faults: Faults) -> None:
    some = [
        "^ls\\b",
        "^git\\b",
        "^python",
        "^cat\\b",
        "^(head|sed|sort|wc|jq|tar|diff)\\b",
        "^(cp|mv|mkdir|touch|cd)\\b",
    ]
    assert "together hit everyday commands" in faults(r2={"input_filters": some})


@pytest.mark.parametrize(
    "regex",
    [
        "nc",
        "rm",
        r"\brm",
        r"rm\b",
        "curl|nc",
        "(curl|wget|nc)",
        r"(?:curl|(nc|dd))\s",
        "(curl|(a|rm)) ",
        "gh ",
        "n?c",
        "[xy]z",
    ],
)
def test_short_words_without_anchors(faults: Faults, regex: str) -> None:
    assert "within longer words" in faults(r2={"input_filters": [regex]})


@pytest.mark.parametrize(
    "regex",
    [
        r"\bnc\b",
        r"^(curl|wget|nc)\b",
        r"(^|\s)rm\s",
        r"\b(dd|nc|curl)\b",
        "curl",
        r"\brm\s+-rf\b",
        r"submit\.py",
        "git push",
    ],
)
def test_filters_that_say_what_they_mean(faults: Faults, regex: str) -> None:
    assert faults(r2={"input_filters": [regex]}) == ""


@pytest.mark.parametrize("regex", ["(", "[", "(?P<x>a)(?P<x>b)", "a{99999999999}", "*a", "(?>a)", "a++"])
def test_what_does_not_compile_is_left_to_the_reader_of_handlers(faults: Faults, regex: str) -> None:
    assert faults(r2={"input_filters": [regex]}) == ""


def test_each_alternative_is_looked_at() -> None:
    regex = "|".join(f"word{n}" for n in range(40)) + "|nc"
    assert "nc" in branch_texts(regex)


def test_the_harmless_commands_are_hit_by_none_of_the_usual_filters(faults: Faults) -> None:
    assert len(HARMLESS) >= 20
    for regex in (r"^git\b", r"\bpython3?\b", r"\brm\b", r"^(curl|wget|http|nc|ncat)\b", r"\bTRACKER_URL\b"):
        assert faults(r2={"input_filters": [regex]}) == ""


def test_bash_needs_filters_and_filters_need_bash(faults: Faults) -> None:
    assert "catches Bash without input_filters" in faults(r2={"input_filters": []})
    assert "no pattern catches Bash" in faults(r1={"input_filters": ["curl"]})


def test_each_entry_has_one_rule(faults: Faults) -> None:
    twice = kit.proposal()["rules"]
    text = faults(rules=[*twice, twice[2]])
    assert "inputs.tools[2] ('Downloads (curl, wget) in Bash') must have exactly one rule, and has 2" in text
    text = faults(rules=[*twice[:2], {**twice[2], "entry": 9}, {**twice[3], "entry": -1}])
    assert "for entry 9" in text
    assert "for entry -1" in text
    assert text.count("and has 0") == 2
    assert faults(rules=list(reversed(twice))) == ""


def test_at_least_two_different_calls_of_each_kind(faults: Faults) -> None:
    one = kit.bash("curl x")
    assert "under 'caught', and has 1" in faults(r2={"caught": [one]})
    assert "under 'caught', and has 1" in faults(r2={"caught": [one, {**one, "name": "another"}]})
    assert "under 'passing', and has 0" in faults(r2={"passing": []})


@pytest.mark.parametrize(
    "check",
    [
        {"matches": ".*"}, {"matches": ""}, {"matches": "."}, {"matches": r"[\w\W]"}, {"host_in": ["*"]},
        {"host_in": ["localhost", "*.*"]}, {"must_contain": ["t"]},
    ],
)  # fmt: skip
def test_variables_that_may_be_anything(faults: Faults, check: dict[str, Any]) -> None:
    text = faults(r3={"env_checks": [{**kit.env_check("TRACKER_URL"), **check}]})
    assert ("permits" in text) is (check != {"matches": ""})  # an empty one is not used


@pytest.mark.parametrize(("op", "value"), [("matches", '""'), ("matches", '".*"'), ("glob", '"*"'), ("glob", '"**"')])
def test_fields_that_may_be_anything(faults: Faults, op: str, value: str) -> None:
    text = faults(r1={"input_checks": [{"field": "amount", "op": op, "value_json": value}]})
    assert "permits every value of amount" in text


def test_checks_that_permit_something(faults: Faults) -> None:
    assert faults(r1={"input_checks": [{"field": "amount", "op": "matches", "value_json": '"^\\\\d+$"'}]}) == ""
    assert faults(r3={"env_checks": [kit.env_check("TRACKER_URL", "*.example.test", "127.0.0.1")]}) == ""


def test_a_tool_that_the_text_names_and_the_rule_leaves_out(faults: Faults) -> None:
    reads = [kit.probe(f"p{n}", "Read", {"file_path": str(n)}) for n in range(2)]
    text = faults(r1={"patterns": ["Read"], "caught": reads})
    assert "names mcp__desk__refund, which its rule does not catch" in text
    assert "names" not in faults(r1={"patterns": ["mcp__desk__*"]})


def test_a_tool_that_the_text_does_not_name(faults: Faults) -> None:
    assert "catches Write, which its text does not name" in faults(r1={"patterns": ["mcp__desk__refund", "Write"]})


def test_every_tool_one_by_one(faults: Faults) -> None:
    every = [*REACHING["claude-code"], "mcp__desk__*"]
    assert "catches every tool in the request" in faults(r2={"patterns": every})
    assert "catches every tool in the request" not in faults(r2={"patterns": every[1:]})


def test_probes_that_show_nothing(faults: Faults) -> None:
    reads = [kit.probe("a", "Read", {"file_path": "a"}), kit.probe("b", "Read", {"file_path": "b"})]
    assert "which its patterns do not catch" in faults(r2={"caught": reads})
    assert "shows nothing of the rule" in faults(r2={"passing": reads})
    assert faults(r1={"input_checks": [], "passing": reads}) == ""


def test_fields_that_do_not_go_together(faults: Faults) -> None:
    check = kit.PROPOSAL["rules"][3]["env_checks"][0]
    assert "checks the variable TRACKER_URL twice" in faults(r3={"env_checks": [check, check]})
    assert "has no reason" in faults(r3={"reason": " \n"})
    assert "has checks" in faults(r0={"input_checks": [{"field": "a", "op": "exists", "value_json": "true"}]})
    assert "no rule names AskUserQuestion" in faults(r0={"patterns": ["Read"], "caught": [], "passing": []})
    assert "has answers, and calls no question" in faults(
        r2={"caught": [kit.bash("curl a", answers=[{"question": "q", "answers": ["a"]}]), kit.bash("curl b")]}
    )


def test_all_findings_of_all_rules_at_once(faults: Faults) -> None:
    text = faults(r0={"patterns": ["*"]}, r1={"reason": ""}, r2={"input_filters": ["nc"]}, r3={"caught": []})
    for entry in range(4):
        assert f"inputs.tools[{entry}]" in text
    assert Path("eval.yaml").name in text
