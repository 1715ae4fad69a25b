"""tool_handlers.yaml of a task: what is no handler denies every call, by the file's name and the entry's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Decide, Hook

GOOD = {"match": "m", "patterns": ["x"]}


def entry(**more: Any) -> dict[str, Any]:
    return {**GOOD, **more}


def check(**more: Any) -> dict[str, Any]:
    return entry(input_checks=[{"field": "f", "op": "eq", "value": 1, **more}])


WRONG_FILES: dict[str, tuple[Any, str]] = {
    "a list": ([], "handlers"), "a text": ("x", "handlers"), "null": (None, "handlers"), "empty": ({}, "handlers"),
    "handlers missing": ({"handler": []}, "handlers"), "handlers null": ({"handlers": None}, "handlers"),
    "handlers a mapping": ({"handlers": {}}, "handlers"), "an unknown key": ({"handlers": [], "rules": []}, "rules"),
    "model null": ({"handlers": [], "hook_model": None}, "hook_model"),
    "model empty": ({"handlers": [], "hook_model": ""}, "hook_model"),
    "model a number": ({"handlers": [], "hook_model": 4}, "hook_model"),
    "overrides a list": ({"handlers": [], "case_overrides": []}, "case_overrides"),
    "overrides null": ({"handlers": [], "case_overrides": None}, "case_overrides"),
    "override a number": ({"handlers": [], "case_overrides": {"A?": 1}}, "A?"),
    "override null": ({"handlers": [], "case_overrides": {"A?": None}}, "A?"),
    "override a mapping": ({"handlers": [], "case_overrides": {"A?": {}}}, "A?"),
    "override a list of numbers": ({"handlers": [], "case_overrides": {"A?": ["a", 1]}}, "A?"),
    "two answers": ({"handlers": [], "case_overrides": {"A  b?": "x", "a B?": "y"}}, "case_overrides"),
}  # fmt: skip
WRONG_HANDLERS: dict[str, tuple[Any, str]] = {
    "a text": ("x", "handlers[1]"), "null": (None, "handlers[1]"), "empty": ({}, "handlers[1]"),
    "no match": ({"patterns": ["x"]}, "handlers[1]"), "no patterns": ({"match": "m"}, "handlers[1]"),
    "match empty": (entry(match=" "), "handlers[1].match"), "match a list": (entry(match=["m"]), "handlers[1].match"),
    "patterns a text": (entry(patterns="x"), "handlers[1].patterns"),
    "patterns empty": (entry(patterns=[]), "handlers[1].patterns"),
    "patterns null": (entry(patterns=None), "handlers[1].patterns"),
    "pattern a number": (entry(patterns=["x", 1]), "patterns[1]"),
    "pattern empty": (entry(patterns=[""]), "patterns[0]"),
    "filters a text": (entry(input_filters="rm"), "input_filters"),
    "filters null": (entry(input_filters=None), "input_filters"),
    "bad filter": (entry(input_filters=["a", "jira("]), "input_filters[1]"),
    "bad escape": (entry(input_filters=["\\q"]), "input_filters[0]"),
    "deep filter": (entry(input_filters=["(" * 5000]), "input_filters[0]"),
    "filter a number": (entry(input_filters=[1]), "input_filters[0]"),
    "misspelt": (entry(input_filter=["rm"]), "input_filter"),
    "requires": (entry(requires=[]), "requires"), "max_calls": (entry(max_calls=1), "max_calls"),
    "respond": (entry(respond={}), "respond"),
    "after": (entry(after=[]), "after"), "prompt null": (entry(prompt=None), "prompt"),
    "reason empty": (entry(reason=""), "reason"),
    "on_pass": (entry(on_pass="deny"), "on_pass"), "on_fail": (entry(on_fail="none"), "on_fail"),
    "on_fail list": (entry(on_fail=["deny"]), "on_fail"),
    "on_unanswered": (entry(on_unanswered="guess"), "on_unanswered"),
    "on_pass true": (entry(on_pass=True), "on_pass"),
    "env empty": (entry(env_checks={}), "env_checks"), "env null": (entry(env_checks=None), "env_checks"),
    "env list": (entry(env_checks=["A"]), "env_checks"),
    "env no name": (entry(env_checks={"": {"equals": "a"}}), "env_checks"),
    "env rules null": (entry(env_checks={"A": None}), "env_checks.A"),
    "env rules empty": (entry(env_checks={"A": {}}), "env_checks.A"),
    "env rules a text": (entry(env_checks={"A": "localhost"}), "env_checks.A"),
    "env unknown": (entry(env_checks={"A": {"must_equal": ["x"]}}), "must_equal"),
    "env contain a text": (entry(env_checks={"A": {"must_contain": "x"}}), "must_contain"),
    "env contain empty": (entry(env_checks={"A": {"must_contain": []}}), "must_contain"),
    "env contain blank": (entry(env_checks={"A": {"must_contain": ["x", ""]}}), "must_contain[1]"),
    "env host a text": (entry(env_checks={"A": {"host_in": "x"}}), "host_in"),
    "env equals a list": (entry(env_checks={"A": {"equals": ["x"]}}), "equals"),
    "env equals a number": (entry(env_checks={"A": {"equals": 1}}), "equals"),
    "env bad regex": (entry(env_checks={"A": {"matches": "("}}), "matches"),
    "checks empty": (entry(input_checks=[]), "input_checks"),
    "checks a mapping": (entry(input_checks={}), "input_checks"),
    "check null": (entry(input_checks=[None]), "input_checks[0]"), "check unknown": (check(values=1), "values"),
    "check op": (check(op="less"), "op"),
    "check op missing": (entry(input_checks=[{"field": "f", "value": 1}]), "input_checks[0]"),
    "check field missing": (entry(input_checks=[{"op": "eq", "value": 1}]), "input_checks[0]"),
    "check value missing": (entry(input_checks=[{"field": "f", "op": "eq"}]), "input_checks[0]"),
    "check le text": (check(op="le", value="$5"), "value"), "check le true": (check(op="le", value=True), "value"),
    "check in text": (check(op="in", value="USD"), "value"), "check in empty": (check(op="in", value=[]), "value"),
    "check matches": (check(op="matches", value="("), "value"), "check glob": (check(op="glob", value=5), "value"),
    "check exists": (check(op="exists", value="yes"), "value"), "check field list": (check(field=["f"]), "field"),
    "rewrite empty": (entry(rewrite={}), "rewrite"), "rewrite list": (entry(rewrite=[]), "rewrite"),
    "rewrite unknown": (entry(rewrite={"f": {"prefx": "a"}}), "prefx"),
    "rewrite two": (entry(rewrite={"f": {"prefix": "a", "suffix": "b"}}), "f"),
    "rewrite none": (entry(rewrite={"f": {}}), "rewrite.f"),
    "rewrite number": (entry(rewrite={"f": {"prefix": 1}}), "prefix"),
    "replace text": (entry(rewrite={"f": {"replace": "a"}}), "rewrite.f"),
    "replace one": (entry(rewrite={"f": {"replace": ["a"]}}), "replace"),
    "replace regex": (entry(rewrite={"f": {"replace": ["(", ""]}}), "rewrite.f"),
    "replace template": (entry(rewrite={"f": {"replace": ["a", "\\9"]}}), "rewrite.f"),
    "rewrite of a question": (entry(patterns=["AskUserQuestion"], rewrite={"f": "x"}), "handlers[1]"),
    "rewrite of Codex's question": (entry(patterns=["request_user_input"], rewrite={"f": "x"}), "handlers[1]"),
}  # fmt: skip
WRONG_TEXTS = {
    "empty": b"", "blank": b" \n", "YAML": b"handlers: []\n", "a comment": b"# x\n{\"handlers\": []}",
    "cut off": b'{"handlers": [',
    "two documents": b'{"handlers": []} {"handlers": []}', "text behind": b'{"handlers": []} x',
    "NaN": b'{"handlers": [NaN]}',
    "too large": b'{"handlers": [1e999]}', "duplicate key": b'{"handlers": [], "handlers": []}',
    "UTF-16": '{"handlers": []}'.encode("utf-16"),
    "Latin-1": b'{"handlers": [], "hook_model": "\xe4"}', "BOM": b'\xef\xbb\xbf{"handlers": []}',
    "deep": b"[" * 200_000,
    "duplicate in a handler": b'{"handlers": [{"match": "m", "patterns": ["x"], "patterns": ["y"]}]}',
    "control": b'{"handlers": [], "hook_model": "a\x00"}',
}  # fmt: skip


@pytest.mark.parametrize(("config", "named"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_file_of_another_shape_is_refused_by_entry(config: Any, named: str, tools: Any) -> None:
    with pytest.raises(tools.HandlersError, match="tool_handlers") as refused:
        tools.load_handlers(json.dumps(config).encode())
    assert named in str(refused.value)


@pytest.mark.parametrize(("handler", "named"), WRONG_HANDLERS.values(), ids=WRONG_HANDLERS)
def test_a_handler_of_another_shape_is_refused_by_entry(handler: Any, named: str, tools: Any) -> None:
    with pytest.raises(tools.HandlersError, match="tool_handlers") as refused:
        tools.load_handlers(json.dumps({"handlers": [GOOD, handler]}).encode())
    assert named in str(refused.value)


@pytest.mark.parametrize("data", WRONG_TEXTS.values(), ids=WRONG_TEXTS)
def test_a_text_that_is_not_pure_json_is_refused(data: bytes, tools: Any) -> None:
    with pytest.raises(tools.HandlersError, match="tool_handlers"):
        tools.load_handlers(data)


def test_what_is_refused_denies_every_call_even_those_that_no_handler_names(hook: Hook) -> None:
    for data in (*list(WRONG_TEXTS.values())[:5], json.dumps({"handlers": [entry(input_filters=["jira("])]}).encode()):
        hook.handlers_file.write_bytes(data)
        done = hook.call("Read", {"file_path": "a"})
        assert done.decision == "deny"
        assert "tool_handlers.yaml" in done.reason
    assert "handlers[0].input_filters[0]" in done.reason


def test_no_handlers_at_all_is_valid(hook: Hook) -> None:
    assert hook.write().call("Read", {"file_path": "a"}).decision == "none"
    assert hook.write(hook_model="m", case_overrides={}).bash("ls").decision == "none"


def test_everything_that_is_allowed_is_taken(tools: Any) -> None:
    full = entry(
        input_filters=["a"], env_checks={"A": {"must_contain": ["a"], "equals": "", "host_in": ["a"],
            "matches": "a"}}, prompt="",
        prompt_file="p.md", reason="r", input_checks=[{"field": "a.b", "op": "exists"},
            {"field": "a", "op": "eq", "value": None}],
        rewrite={"a": {"replace": ["(a)", r"\1"]}, "b": None, "c.d": [1]}, on_pass="allow", on_fail="ask",
            on_unanswered="deny",
    )  # fmt: skip
    loaded = tools.load_handlers(json.dumps({"handlers": [full], "case_overrides": {"A b?": ["x", ""]}}).encode())
    assert (len(loaded["handlers"]), loaded["overrides"]) == (1, {"a b?": ["x", ""]})
    assert loaded["hook_model"] == "claude-haiku-4-5-20251001"


MATCHES = {
    ("mcp__a__get", "mcp__a__get"): True, ("mcp__a__get", "mcp__a__get_all"): False, ("mcp__a__*", "mcp__a__x"): True,
    ("mcp__a__*", "mcp__b__x"): False, ("mcp__*__delete", "mcp__x-1__delete"): True,
    ("mcp__*__delete", "mcp__x__delete_all"): False,
    ("mcp__db?__drop", "mcp__db1__drop"): True, ("mcp__db?__drop", "mcp__db__drop"): False, ("*", "Read"): True,
    ("?*", "Read"): True,
    ("R*d", "Read"): True, ("read", "Read"): False, ("[R]ead", "Read"): False, ("[R]*", "Read"): False,
    ("Re.d", "Read"): False,
    ("**", "Read"): True, ("*e*a*", "Read"): True, ("*x*", "Read"): False, ("Read", "Read "): False,
    ("Task", "Agent"): True,
    ("Agent", "Task"): True, ("Tas?", "Agent"): True, ("Write", "apply_patch"): True, ("Edit", "apply_patch"): True,
    ("apply_patch", "Write"): True, ("apply_patch", "Edit"): True, ("Write", "Edit"): False,
    ("W*", "apply_patch"): True,
    ("NotebookEdit", "apply_patch"): False, ("*" * 40 + "x", "a" * 5000): False,
}  # fmt: skip


@pytest.mark.parametrize(("pattern", "tool", "expected"), [(*key, value) for key, value in MATCHES.items()])
def test_patterns_are_names_or_globs(pattern: str, tool: str, expected: bool, decide: Decide) -> None:
    result = decide([{"match": "m", "patterns": ["other", pattern]}], tool, {"command": ""})
    assert result["decision"] == ("deny" if expected else "none")


def test_the_first_handler_that_matches_decides(decide: Decide) -> None:
    gate = {"match": "gate", "patterns": ["mcp__a__*"], "env_checks": {"X": {"equals": "y"}}}
    never = {"match": "never", "patterns": ["mcp__a__delete"]}
    assert decide([gate, never], "mcp__a__delete", {}, env={"X": "y"})["decision"] == "none"
    assert decide([never, gate], "mcp__a__delete", {}, env={"X": "y"})["decision"] == "deny"


def test_the_reason_is_neutral_and_of_one_line(hook: Hook) -> None:
    hook.write(
        {"match": "No web access,\n  at all", "patterns": ["WebFetch"]},
        {"match": "m", "patterns": ["x"], "reason": "Ask\nfirst"},
    )
    assert hook.call("WebFetch", {"url": "http://x"}).reason == "Not permitted here: No web access, at all"
    assert hook.call("x", {}).reason == "Ask\nfirst"


def test_the_pin_is_of_the_bytes(hook: Hook, tmp_path: Path) -> None:
    hook.write({"match": "m", "patterns": ["x"]})
    assert hook.call("Read", {}).decision == "none"
    command = hook.command()
    hook.handlers_file.write_bytes(hook.handlers_file.read_bytes() + b"\n")
    hook.command = lambda: command  # type: ignore[method-assign]
    done = hook.call("Read", {})
    assert done.decision == "deny"
    assert "tool_handlers.yaml" in done.reason
