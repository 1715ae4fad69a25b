"""Codex: other names, no `ask`, and a question tool that is answered after it ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Decide, Hook

Ask = Callable[..., dict[str, Any]]
CODEX = {"turn_id": "t1", "model": "gpt-5.5"}
POST = {**CODEX, "hook_event_name": "PostToolUse", "tool_response": "cancelled"}
HANDLER = {"match": "Questions", "patterns": ["AskUserQuestion"], "prompt": "p"}


def questions(question: Ask, *ids: Any) -> dict[str, Any]:
    """The input of request_user_input."""
    return {"questions": [{**question(f"Q{i}?", "a", "b"), "id": ident} for i, ident in enumerate(ids)]}


def test_a_question_is_answered_when_the_tool_has_run(hook: Hook, question: Ask) -> None:
    for patterns in (["AskUserQuestion"], ["request_user_input"]):
        hook.write({**HANDLER, "patterns": patterns}, case_overrides={"q1?": "B"})
        given = questions(question, "one", "two")
        assert hook.call("request_user_input", given, more=CODEX).out == ""
        done = hook.call("request_user_input", given, more=POST)
        said = json.loads(done.out)
        assert (done.code, set(said), said["decision"]) == (0, {"decision", "reason"}, "block")
        assert json.loads(said["reason"]) == {"answers": {"one": {"answers": ["a"]}, "two": {"answers": ["b"]}}}
        before, after = done.log[-2:]
        assert (before["event"], before["decision"]) == ("PreToolUse", "none")
        assert (after["event"], after["decision"], after["tier"]) == ("PostToolUse", "answer", "guessed")


def test_several_labels_stay_a_list(hook: Hook, question: Ask) -> None:
    hook.write(HANDLER, case_overrides={"Q0?": ["a", "b"]})
    given = questions(question, "one")
    given["questions"][0]["multiSelect"] = True
    said = json.loads(hook.call("request_user_input", given, more=POST).out)
    assert json.loads(said["reason"]) == {"answers": {"one": {"answers": ["a", "b"]}}}


def test_a_question_that_cannot_be_answered_is_denied_before_it_runs(hook: Hook, question: Ask) -> None:
    given = questions(question, "one")
    assert (
        hook.write({"match": "m", "patterns": ["*"]}).call("request_user_input", given, more=CODEX).decision == "deny"
    )
    hook.write(HANDLER)
    wrong_ones: list[dict[str, Any]] = [{}, {"questions": []}, questions(question, None), questions(question, "x", "x")]
    for wrong in [*wrong_ones, questions(question, 5)]:
        assert hook.call("request_user_input", wrong, more=CODEX).decision == "deny"
    hook.handlers_file.write_text("nonsense")
    assert hook.call("request_user_input", given, more=CODEX).decision == "deny"


def test_a_fault_after_it_ran_replaces_the_output(hook: Hook, question: Ask) -> None:
    hook.write({**HANDLER, "on_unanswered": "deny"})
    said = json.loads(hook.call("request_user_input", questions(question, "one"), more=POST).out)
    assert said["decision"] == "block"
    assert "Q0?" in said["reason"]
    hook.handlers_file.write_text("nonsense")
    said = json.loads(hook.call("request_user_input", questions(question, "one"), more=POST).out)
    assert "tool_handlers.yaml" in said["reason"]


def test_other_results_are_left_alone(hook: Hook) -> None:
    hook.write({"match": "m", "patterns": ["*"]})
    assert hook.bash("ls", more=POST).out == ""
    assert hook.log[0]["decision"] == "none"
    asked = {"questions": [{"question": "Q?", "options": ["a", "b"]}]}
    hook.write({"match": "m", "patterns": ["AskUserQuestion"]}, case_overrides={"Q?": "a"})
    assert (hook.call("AskUserQuestion", asked, more=POST).out, hook.log[-1]["decision"]) == ("", "none")


def test_what_codex_cannot_do_becomes_a_deny(hook: Hook) -> None:
    handler: dict[str, Any] = {"match": "m", "patterns": ["pay"],
        "input_checks": [{"field": "n", "op": "le", "value": 5}],
                               "on_pass": "allow", "on_fail": "ask"}  # fmt: skip
    hook.write(handler)
    assert [hook.call("pay", {"n": n}, more=CODEX).decision for n in (5, 6)] == ["none", "deny"]
    assert [hook.call("pay", {"n": n}).decision for n in (5, 6)] == ["allow", "ask"]
    assert json.loads(hook.call("pay", {"n": 6}, more=CODEX).out)["hookSpecificOutput"].keys() == {
        "hookEventName", "permissionDecision", "permissionDecisionReason",
    }  # fmt: skip


PATCH = {"command": "*** Begin Patch\n*** Add File: a.md\n+x\n*** End Patch"}


@pytest.mark.parametrize("name", ["Write", "Edit", "apply_patch"])
def test_patches_are_writes_and_edits(name: str, decide: Decide) -> None:
    assert decide([{"match": "m", "patterns": [name]}], "apply_patch", PATCH)["decision"] == "deny"
    gate = {"match": "m", "patterns": [name], "input_checks": [{"field": "file_path", "op": "glob", "value": "*"}]}
    assert decide([gate], "apply_patch", PATCH)["decision"] == "deny"
    change = {"match": "m", "patterns": [name], "rewrite": {"file_path": "b.md"}}
    assert decide([change], "apply_patch", PATCH)["decision"] == "deny"
    own = {"match": "m", "patterns": [name], "rewrite": {"command": {"replace": ["a.md", "b.md"]}}}
    assert decide([own], "apply_patch", PATCH)["updated"]["command"] == PATCH["command"].replace("a.md", "b.md")
    for given in ({}, {"command": None}, {"command": ["*** Begin Patch"]}):
        assert decide([], "apply_patch", given)["decision"] == "deny"


def test_a_rewrite_is_an_allow_with_the_new_input(hook: Hook) -> None:
    hook.write({"match": "m", "patterns": ["pay"], "rewrite": {"n": 1}})
    done = hook.call("pay", {"n": 9}, more=CODEX)
    assert (done.decision, done.updated) == ("allow", {"n": 1})
