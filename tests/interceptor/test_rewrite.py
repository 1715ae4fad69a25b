"""Rewrites: the whole input goes back, changed, and the call is approved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Decide, Hook

GIVEN = {"file_path": "notes.md", "content": "x", "deep": {"to": "a@prod", "n": 1}, "list": [1.5, None, True]}
CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"file_path": {"prefix": "/sandbox/"}}, {"file_path": "/sandbox/notes.md"}),
    ({"file_path": {"suffix": ".bak"}}, {"file_path": "notes.md.bak"}),
    ({"file_path": {"replace": ["o(.)", r"<\1>"]}}, {"file_path": "n<t>es.md"}),
    ({"file_path": {"replace": ["zzz", ""]}}, {"file_path": "notes.md"}),
    ({"content": "y", "new": 5}, {"content": "y", "new": 5}),
    ({"content": None, "list": []}, {"content": None, "list": []}),
    ({"deep.to": {"replace": ["@prod$", "@test"]}}, {"deep": {"to": "a@test", "n": 1}}),
    ({"deep.new": False}, {"deep": {"to": "a@prod", "n": 1, "new": False}}),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_a_rewrite_changes_its_fields_and_keeps_the_others(
    change: dict[str, Any], expected: dict[str, Any], decide: Decide
) -> None:
    result = decide([{"match": "m", "patterns": ["Write"], "rewrite": change}], "Write", GIVEN)
    assert (result["decision"], result["updated"]) == ("rewrite", {**GIVEN, **expected})
    assert GIVEN["deep"] == {"to": "a@prod", "n": 1}


@pytest.mark.parametrize("field", ["missing", "deep", "deep.n", "deep.missing.to", "list", "list.0", "content.x"])
def test_a_field_that_is_no_text_cannot_be_changed_so_the_call_is_denied(field: str, decide: Decide) -> None:
    for change in ({"prefix": "a"}, {"suffix": "a"}, {"replace": ["a", "b"]}):
        assert (
            decide([{"match": "m", "patterns": ["Write"], "rewrite": {field: change}}], "Write", GIVEN)["decision"]
            == "deny"
        )


def test_a_rewrite_is_made_only_when_the_checks_hold(decide: Decide) -> None:
    handler = {"match": "m", "patterns": ["Write"], "rewrite": {"content": "y"},
               "input_checks": [{"field": "file_path", "op": "glob", "value": "*.md"}]}  # fmt: skip
    assert decide([handler], "Write", GIVEN)["decision"] == "rewrite"
    assert decide([handler], "Write", {**GIVEN, "file_path": "a.py"})["decision"] == "deny"


def test_it_goes_out_as_an_allow_with_the_whole_input(hook: Hook) -> None:
    hook.write({"match": "writes", "patterns": ["Write"], "rewrite": {"file_path": {"prefix": "/sandbox/"}}})
    done = hook.call("Write", GIVEN)
    assert (done.decision, done.updated) == ("allow", {**GIVEN, "file_path": "/sandbox/notes.md"})
    assert done.log[0]["decision"] == "rewrite"


def test_a_rewrite_does_not_lead_to_the_policy(hook: Hook) -> None:
    for change in (
        "tool_handlers.yaml",
        {"replace": ["notes.md", ".claude/settings.json"]},
        {"prefix": ".claude/../hooks/../"},
    ):
        hook.write({"match": "writes", "patterns": ["Write"], "rewrite": {"file_path": change}})
        done = hook.call(
            "Write",
            {
                **GIVEN,
                "file_path": "notes.md" if change != {"prefix": ".claude/../hooks/../"} else "interceptions.jsonl",
            },
        )
        assert done.decision == "deny", change
    hook.write(
        {"match": "m", "patterns": ["Bash"], "input_filters": ["ls"], "rewrite": {"command": "rm tool_handlers.yaml"}}
    )
    assert hook.bash("ls").decision == "deny"


def test_a_replacement_keeps_text_of_any_kind(hook: Hook) -> None:
    hook.write({"match": "m", "patterns": ["x"], "rewrite": {"t": {"replace": ["(ö)", r"[\1]"]}}})
    text = 'a\u2028ö\U0001f600\\ " \x7f\n'
    assert hook.call("x", {"t": text}).updated == {"t": text.replace("ö", "[ö]")}
