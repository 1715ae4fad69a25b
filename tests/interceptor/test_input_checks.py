"""Checks on the input of a tool: exact numbers, no guesses about values that are not what they should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Decide, Hook

NOTHING = object()


def verdict(decide: Decide, op: str, wanted: Any, given: Any, field: str = "f") -> str:
    check = {"field": field, "op": op} if wanted is NOTHING else {"field": field, "op": op, "value": wanted}
    tool_input = {} if given is NOTHING else {"f": given}
    handler = {"match": "m", "patterns": ["mcp__s__pay"], "input_checks": [check]}
    return str(decide([handler], "mcp__s__pay", tool_input)["decision"])


PASS: list[tuple[str, Any, Any]] = [
    ("le", 500, 500), ("le", 500, 499.99), ("lt", 500, 499), ("ge", 0, 0), ("gt", 0, 0.01), ("le", 500, "500"),
    ("le", 500, " 500.00 "), ("le", 500, "5e2"), ("le", 500, "+500"), ("le", "500", 500), ("le", 500, -1),
    ("le", 500, "-1"),
    ("le", 0.1, 0.1), ("le", 0.1, "0.1"), ("le", 0.3, 0.3), ("lt", 1e-300, 0), ("le", 500, "500."), ("ge", 0.5, ".5"),
    ("gt", 9007199254740992, 9007199254740993), ("le", 500, "0500"), ("eq", 5, "5.0"), ("eq", 5, 5.0), ("eq", "5", 5),
    ("eq", "a", "a"), ("eq", True, True), ("eq", None, None), ("eq", [1, "a"], [1, "a"]), ("eq", {"a": 1}, {"a": 1}),
    ("not_in", ["USD", 5], "EUR"), ("not_in", ["USD", 5], 6), ("eq", {"a": [5]}, {"a": [5.0]}),
    ("ne", {"a": [5]}, {"a": [6]}), ("ne", [1, 2], [1]), ("ne", 5, "EUR"),
    ("ne", 5, 6), ("ne", 5, "6"), ("ne", "a", "b"), ("in", ["USD", "EUR"], "EUR"), ("in", [1, 2], "2.0"),
    ("not_in", ["GBP"], "USD"), ("not_in", [1, 2], 3), ("matches", "[A-Z]+-[0-9]+", "PROJ-1"),
    ("matches", "^PROJ-", "PROJ-1 x"),
    ("matches", "1$", "PROJ-1"), ("matches", "[0-9]+", 12), ("glob", "src/*", "src/a/b.py"), ("glob", "*.md", "a.md"),
    ("glob", "a?c", "abc"), ("glob", "[a]*", "[a]b"), ("exists", True, 0), ("exists", True, ""),
    ("exists", False, NOTHING),
    ("exists", NOTHING, 1),
]  # fmt: skip
FAIL: list[tuple[str, Any, Any]] = [
    ("le", 500, 500.01), ("le", 500, 700), ("lt", 500, 500), ("le", 500, "700"), ("le", 500, "1e9"),
    ("le", 500, "1e3"),
    ("le", 500, NOTHING), ("le", 500, None), ("le", 500, True), ("ge", 0, False), ("le", 500, "$5"),
    ("le", 500, "5 USD"),
    ("le", 500, "1,0"), ("le", 500, "1,000"), ("le", 500, "1_0"), ("le", 500, ""), ("le", 500, " "),
    ("le", 500, "NaN"),
    ("le", 500, "-Infinity"), ("le", 500, "inf"), ("le", 500, "0x10"), ("le", 500, "--5"), ("le", 500, "5-"),
    ("le", 500, "5e"),
    ("le", 500, "e5"), ("le", 500, "."), ("le", 500, "1.2.3"), ("le", 500, "5 0"), ("le", 500, "\uff15"),
    ("le", 500, "\u0665"),
    ("le", 500, "-1e99999"), ("le", 500, "-" + "9" * 500), ("le", 500, [5]), ("le", 500, {"a": 5}),
    ("ge", 500, "1e-99999"),
    ("lt", 0.3, "0.30000000000000001"), ("le", 9007199254740992, 9007199254740993),
    ("le", 0.1, "0.1000000000000000055"),
    ("eq", 5, 6), ("eq", 5, "$5"), ("eq", 1, True), ("eq", True, 1), ("eq", "a", "A"), ("eq", "true", True),
    ("eq", None, NOTHING),
    ("eq", {"a": 1}, {"a": True}), ("ne", 5, 5), ("ne", 5, "5.0"), ("ne", 5, "$5"), ("ne", 5, None),
    ("ne", 5, NOTHING),
    ("ne", "5", "5.0"), ("eq", "5", "5.0"), ("not_in", ["1.10"], "1.1"), ("ne", {"a": [5]}, {"a": [5.0]}),
    ("ne", ["5"], ["5.0"]), ("eq", ["5"], ["5.0"]), ("not_in", [{"a": "5"}], {"a": 5}), ("ne", 5, "five 5"),
    ("ne", 1, True), ("ne", "a", ["a"]), ("ne", "a", "a"), ("in", ["USD"], "GBP"), ("in", ["USD"], "usd"),
    ("in", ["USD"], ["USD"]),
    ("in", [1], True), ("in", ["USD"], NOTHING), ("not_in", ["GBP"], "GBP"), ("not_in", ["GBP"], ["GBP"]),
    ("not_in", [5], "$5"),
    ("not_in", ["GBP"], NOTHING), ("not_in", [5], "5.0"), ("matches", "[A-Z]+-[0-9]+", "x PROJ-1"),
    ("matches", "[0-9]+", "12\n"),
    ("matches", "[A-Z]+-[0-9]+", "PROJ-1; rm"), ("matches", "^PROJ-", "x PROJ-1"), ("matches", ".*", None),
    ("matches", ".*", True),
    ("matches", ".*", ["a"]), ("matches", ".*", NOTHING), ("glob", "src/*", "lib/a"), ("glob", "*.md", "a.mdx"),
    ("glob", "*", None),
    ("glob", "*", NOTHING), ("glob", "a?c", "ac"), ("exists", True, NOTHING), ("exists", True, None),
    ("exists", False, 1),
    ("exists", False, None), ("exists", NOTHING, NOTHING),
]  # fmt: skip


@pytest.mark.parametrize(("op", "wanted", "given"), PASS)
def test_a_value_that_holds_passes(op: str, wanted: Any, given: Any, decide: Decide) -> None:
    assert verdict(decide, op, wanted, given) == "none"


@pytest.mark.parametrize(("op", "wanted", "given"), FAIL)
def test_a_value_that_does_not_hold_or_cannot_be_compared_is_denied(
    op: str, wanted: Any, given: Any, decide: Decide
) -> None:
    assert verdict(decide, op, wanted, given) == "deny"


def test_fields_are_dotted_paths_into_objects_and_lists(decide: Decide) -> None:
    given = {"a": {"b": [{"c": 5}]}, "a.b": 1}
    assert verdict(decide, "eq", 5, given, "f.a.b.0.c") == "none"
    for path in ("f.a.b.1.c", "f.a.b.c", "f.a.b.0.c.d", "f.a.b.-1.c", "f.a.b.00.c", "f.a.b..c", "f.a.b.0", "g"):
        assert verdict(decide, "eq", 5, given, path) == "deny", path


def test_all_checks_must_hold_and_the_reason_is_the_handlers_own(decide: Decide) -> None:
    checks = [{"field": "amount", "op": "le", "value": 500}, {"field": "currency", "op": "in", "value": ["USD"]}]
    handler = {"match": "refunds", "patterns": ["pay"], "input_checks": checks, "reason": "Call escalate_to_human."}
    assert decide([handler], "pay", {"amount": 5, "currency": "USD"})["decision"] == "none"
    for given in ({"amount": 501, "currency": "USD"}, {"amount": 5, "currency": "GBP"}, {"amount": 5}):
        result = decide([handler], "pay", given)
        assert (result["decision"], result["reason"]) == ("deny", "Call escalate_to_human.")
    assert result["notes"] == ["input check failed: currency in"]


def test_what_a_pass_and_a_failure_become_is_the_handlers_choice(decide: Decide) -> None:
    handler = {"match": "m", "patterns": ["pay"], "input_checks": [{"field": "n", "op": "le", "value": 5}],
               "on_pass": "allow", "on_fail": "ask"}  # fmt: skip
    assert [decide([handler], "pay", {"n": n})["decision"] for n in (5, 6)] == ["allow", "ask"]
    assert [decide([handler], "pay", {"n": n}, codex=True)["decision"] for n in (5, 6)] == ["allow", "deny"]


def test_the_values_of_the_payload_are_compared_as_they_were_sent(hook: Hook) -> None:
    hook.write({"match": "m", "patterns": ["pay"], "input_checks": [{"field": "n", "op": "le", "value": 500}]})
    payload = json.dumps({"tool_name": "pay", "tool_input": {"n": "N"}})
    for number, decision in {"500": "none", "5E2": "none", "500.0": "none", "501": "deny", "1e9": "deny",
        "1e999": "deny",
                             "NaN": "deny", "-Infinity": "deny", "9" * 5000: "deny"}.items():  # fmt: skip
        assert hook.send(payload.replace('"N"', number).encode()).decision == decision, number[:20]
