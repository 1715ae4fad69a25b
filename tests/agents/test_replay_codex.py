"""With `--runner codex` replay plays calls as Codex does; texts and effects are those of Codex 0.171 itself."""

from __future__ import annotations

from typing import Any

import pytest

CODEX = ("--runner", "codex")
ASK = {"tool": "AskUserQuestion", "input": {"questions": [{"question": "Which?", "options": ["A", "B"]}]}}
GONE = "No such file or directory (os error 2)"
UPDATED = "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess. Updated the following files:\n"


def patch(body: str) -> dict[str, Any]:
    return {"tool": "apply_patch", "input": {"command": f"*** Begin Patch\n{body}\n*** End Patch\n"}}


def codex(player: Any, *entries: dict[str, Any], **more: Any) -> Any:
    return player.play(*entries, options=CODEX, **more)


@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        ("a\nb", "*** Update File: f\n@@\n-b\n+c", "a\nc\n"),
        ("one\ntwo\nthree\n", "*** Update File: f\n@@ one\n two\n-three\n+3\n+4\n*** End of File", "one\ntwo\n3\n4\n"),
        ("one\ntwo\n3\n", "*** Update File: f\n@@\n-  two \n+TWO\n@@\n+last", "one\nTWO\n3\nlast\n"),
        ("x\n", "*** Add File: f\n+over", "over\n"),
        ("x\n", "*** Add File: f", ""),
        ("a\nb\na\nb\n", "*** Update File: f\n-b\n+1\n@@\n a\n-b\n+2", "a\n1\na\n2\n"),
    ],
)
def test_patches_do_to_files_what_codex_does(player: Any, before: str, body: str, after: str) -> None:
    (player.workspace / "f").write_text(before)
    failed, text = codex(player, patch(body)).result
    assert not failed, text
    assert text.startswith(UPDATED)
    assert (player.workspace / "f").read_text() == after


def test_a_patch_adds_moves_and_deletes(player: Any) -> None:
    (player.workspace / "old").write_text("x\n")
    (player.workspace / "gone").write_text("x\n")
    body = "*** Delete File: gone\n*** Update File: old\n*** Move to: d/new\n@@\n-x\n+y\n*** Add File: e/f\n+z"
    assert codex(player, patch(body)).result == (False, f"{UPDATED}A e/f\nM d/new\nD gone\n")
    left = {path.relative_to(player.workspace).as_posix(): path for path in player.workspace.rglob("*")}
    assert set(left) == {"d", "d/new", "e", "e/f"}
    assert left["d/new"].read_text() == "y\n"


@pytest.mark.parametrize(
    ("body", "why", "asked"),
    [
        ("*** Update File: f\n@@\n-zzz\n+c", "Failed to find expected lines in {}/f:\nzzz", True),
        ("*** Update File: f\n@@ nowhere\n-a\n+c", "Failed to find context 'nowhere' in {}/f", True),
        ("*** Delete File: no", f"Failed to read {{}}/no: {GONE}", True),
        ("*** Update File: no\n-a", f"Failed to read file to update {{}}/no: {GONE}", True),
        ("*** Update File: f", "invalid hunk at line 2, Update file hunk for path 'f' is empty", False),
        ("*** Add File: q\nx", "invalid hunk at line 3, 'x' is not a valid hunk header. Valid hunk headers: '*** Add "
         "File: {{path}}', '*** Delete File: {{path}}', '*** Update File: {{path}}'", False),
    ],
)  # fmt: skip
def test_a_patch_that_does_not_fit_changes_nothing(player: Any, body: str, why: str, asked: bool) -> None:
    (player.workspace / "f").write_text("a\n")
    both = body if not asked else f"*** Add File: first\n+x\n{body}"
    found = codex(player, patch(both), settings=player.pre("pass"))
    assert found.result == (True, "apply_patch verification failed: " + why.format(player.workspace))
    assert [path.name for path in player.workspace.iterdir()] == ["f"]
    assert (player.seen() is not None) is asked


def test_a_hook_is_shown_what_codex_would_show_it(player: Any) -> None:
    write = {"tool": "Write", "input": {"file_path": "f", "content": "x\n"}}
    bash = {"tool": "Bash", "input": {"command": "pwd", "workdir": "sub", "timeout": 5, "description": "d"}}
    (player.workspace / "sub").mkdir()
    helper = {"tool": "Task", "input": {"prompt": "help", "subagent_type": "any"}}
    found = codex(player, write, bash, helper, ASK, settings=player.pre("pass"))
    seen = [player.seen(f"toolu_replay_{number:04d}") for number in (1, 2, 3, 4)]
    options = [{"description": "A", "label": "A"}, {"description": "B", "label": "B"}]
    question = {"id": "q1", "header": "Choice", "question": "Which?", "options": options}
    assert [(one["tool_name"], one["tool_input"]) for one in seen] == [
        ("apply_patch", {"command": "*** Begin Patch\n*** Add File: f\n+x\n*** End Patch\n"}),
        ("Bash", {"command": "pwd"}), ("spawn_agent", {"message": "help"}),
        ("request_user_input", {"questions": [question]}),
    ]  # fmt: skip
    assert seen[1]["cwd"] == str(player.workspace / "sub")
    assert set(seen[0]) == {
        "cwd", "hook_event_name", "model", "permission_mode", "session_id", "tool_input", "tool_name", "tool_use_id",
        "transcript_path", "turn_id",
    }  # fmt: skip
    assert found.results[3] == (True, "request_user_input is unavailable in Default mode")


def test_denied_calls_are_told_in_codexs_words_and_permissions_do_not_exist(player: Any) -> None:
    settings = {**player.pre('if "no" in str(payload["tool_input"]): say("deny", "Never.")'),
                "permissions": {"deny": ["Bash", "Edit(**)"]}}  # fmt: skip
    touch = [{"tool": "Bash", "input": {"command": f"touch {name}"}} for name in ("no", "yes")]
    found = codex(player, *touch, patch("*** Add File: no\n+x"), settings=settings)
    assert found.results[0] == (True, "Command blocked by PreToolUse hook: Never.. Command: touch no")
    assert [failed for failed, _ in found.results] == [True, False, True]
    assert [path.name for path in player.workspace.iterdir()] == ["yes"]


def test_a_question_is_answered_by_the_hook_after_it(player: Any) -> None:
    body = """print(json.dumps({"decision": "block", "reason": '{"answers": {"q1": {"answers": ["B"]}}}'}))"""
    settings = {"hooks": {"PostToolUse": [{"matcher": "request_user_input", "hooks": [player.hook(body)]}]}}
    assert codex(player, ASK, settings=settings).result == (False, '{"answers": {"q1": {"answers": ["B"]}}}')
    assert player.seen(event="PostToolUse")["tool_response"] == '{"answers":{}}'


def test_commands_start_in_the_workspace_each_anew(player: Any) -> None:
    (player.workspace / "sub").mkdir()
    calls = [{"tool": "Bash", "input": {"command": command}} for command in ("cd sub", "pwd", "echo no >&2; exit 3")]
    results = codex(player, *calls).results
    assert results[1][1].endswith(f"Process exited with code 0\nOutput:\n{player.workspace}\n")
    assert results[2][0]
    assert results[2][1].endswith("Process exited with code 3\nOutput:\nno\n")


def test_what_codex_has_no_call_for_is_not_played_and_that_is_said(player: Any) -> None:
    calls = [{"tool": "Read", "input": {"file_path": "f"}}, {"tool": "update_plan", "input": {}}]
    found = codex(player, *calls)
    assert found.stderr == "Read: not played, codex has no such tool\n"
    assert found.results == [(True, "unsupported call: update_plan")]


def test_for_claude_code_codexs_tools_do_not_exist(player: Any) -> None:
    failed, text = player.play(patch("*** Add File: f\n+x")).result
    assert failed
    assert "No such tool available: apply_patch" in text


@pytest.mark.pythons
def test_every_python_plays_a_patch_and_a_question(player: Any, pythons: Any) -> None:
    for python in pythons:
        found = codex(player, patch("*** Add File: f\n+x"), ASK, python=python)
        assert found.results == [
            (False, f"{UPDATED}A f\n"), (True, "request_user_input is unavailable in Default mode")
        ], (python, found.stderr)  # fmt: skip
