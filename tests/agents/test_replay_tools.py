"""What the replay program's tools do to a workspace, what its transcript says, and which scripts it refuses."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest


def test_commands_share_a_working_directory_but_no_variables(player: Any, call: Any) -> None:
    played = player.play(
        call("Bash", command="mkdir -p a/b && cd a/b && export X=1"),
        call("Bash", command="pwd; echo ${X-unset}; exit 0"),
    )
    assert played.results[1] == (False, f"{player.workspace}/a/b\nunset")


def test_the_directory_is_kept_when_the_command_exits_or_fails(player: Any, call: Any) -> None:
    (player.workspace / "a").mkdir()
    played = player.play(call("Bash", command="cd a; exit 5"), call("Bash", command="pwd"))
    assert played.results == [(True, "Exit code 5"), (False, f"{player.workspace}/a")]


def test_a_directory_that_is_gone_is_left_for_the_workspace(player: Any, call: Any) -> None:
    played = player.play(call("Bash", command="mkdir d; cd d; rmdir ../d"), call("Bash", command="pwd"))
    assert played.results[1] == (False, str(player.workspace))


def test_both_outputs_and_the_exit_code_are_shown(player: Any, call: Any) -> None:
    assert player.play(call("Bash", command="echo out; echo err >&2")).result == (False, "out\nerr")
    assert player.play(call("Bash", command="echo out; echo err >&2; exit 9")).result == (True, "Exit code 9\nout\nerr")


def test_a_command_that_does_not_end_is_ended_with_its_children(player: Any, call: Any) -> None:
    played = player.play(call("Bash", command="(sleep 60; echo) & echo $! > pid; echo begun; sleep 60", timeout=400))
    is_error, text = played.result
    assert is_error
    assert "timed out" in text
    assert "begun" in text
    assert ended(player.workspace / "pid")


def test_endless_output_is_cut(player: Any, call: Any) -> None:
    is_error, text = player.play(call("Bash", command="head -c 3000000 /dev/zero | tr '\\0' x")).result
    assert not is_error
    assert len(text) < 40000


def test_a_background_child_is_not_waited_for_and_lives_on(player: Any, call: Any) -> None:
    started = time.monotonic()
    played = player.play(call("Bash", command="sleep 5 & echo $! > pid; echo done"))
    assert played.result == (False, "done")
    assert time.monotonic() - started < 4
    os.kill(int((player.workspace / "pid").read_text()), 9)  # it is still there


def test_a_background_command_is_ended_with_the_session(player: Any, call: Any) -> None:
    background = call("Bash", command="echo $$ > pid; sleep 60", run_in_background=True)
    player.play(background, call("Bash", command="while [ ! -s pid ]; do sleep 0.05; done"))
    assert ended(player.workspace / "pid")


def ended(pid_file: Path) -> bool:
    """Is the process gone within two seconds?"""
    pid = int(pid_file.read_text())
    for _ in range(40):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_files_are_written_read_and_edited(player: Any, call: Any) -> None:
    played = player.play(
        call("Write", file_path="notes/a.txt", content="one\ntwo\nthree\n"),
        call("Edit", file_path="notes/a.txt", old_string="two", new_string="2"),
        call("MultiEdit", file_path="notes/a.txt", edits=[
            {"old_string": "one", "new_string": "1"}, {"old_string": "three", "new_string": "3"}]),
        call("Read", file_path=str(player.workspace / "notes" / "a.txt"), offset=2, limit=1),
    )  # fmt: skip
    assert (player.workspace / "notes" / "a.txt").read_text() == "1\n2\n3\n"
    assert played.results[3] == (False, "     2→2")


def test_bytes_of_a_text_are_kept(player: Any, call: Any) -> None:
    (player.workspace / "dos.txt").write_bytes(b"a\r\nb\r\n")
    player.play(call("Edit", file_path="dos.txt", old_string="a", new_string="ä"))
    assert (player.workspace / "dos.txt").read_bytes() == "ä\r\nb\r\n".encode()


@pytest.mark.parametrize(
    ("old", "new", "all_of_them", "says"),
    [
        ("x", "y", False, "not found"),
        ("a", "b", False, "2 matches"),
        ("a", "a", False, "exactly the same"),
        ("a", "b", True, None),
    ],
)
def test_an_edit_needs_one_place(
    player: Any, call: Any, old: str, new: str, all_of_them: bool, says: str | None
) -> None:
    (player.workspace / "f").write_text("a a")
    edit = call("Edit", file_path="f", old_string=old, new_string=new, replace_all=all_of_them)
    is_error, text = player.play(edit).result
    assert is_error is (says is not None)
    assert says is None or says in text
    assert (player.workspace / "f").read_text() == ("b b" if says is None else "a a")


def test_no_tool_opens_what_is_not_a_regular_file(player: Any, call: Any) -> None:
    os.mkfifo(player.workspace / "pipe")
    played = player.play(
        call("Read", file_path="pipe"), call("Write", file_path="pipe", content=""), call("Read", file_path="."),
        call("Grep", pattern="x"), call("Read", file_path="missing"), timeout=20,
    )  # fmt: skip
    assert [is_error for is_error, _ in played.results] == [True, True, True, False, True]


def test_files_are_found_by_name_and_by_content(player: Any, call: Any) -> None:
    for name, text in {"a.py": "import os\n", "sub/b.py": "import sys\n", "sub/c.txt": "import\n"}.items():
        (player.workspace / name).parent.mkdir(exist_ok=True)
        (player.workspace / name).write_text(text)
    root = player.workspace
    played = player.play(
        call("Glob", pattern="**/*.py"), call("Glob", pattern="*.py"), call("Glob", pattern="**/*.{txt,md}"),
        call("Grep", pattern="import (os|sys)", glob="*.py"),
        call("Grep", pattern="IMPORT S", output_mode="content", **{"-i": True}),
        call("Grep", pattern="import", output_mode="count", path="sub"),
        call("Grep", pattern="("), call("Glob", pattern="nothing"),
    )  # fmt: skip
    assert [text for _, text in played.results] == [
        f"{root}/a.py\n{root}/sub/b.py", f"{root}/a.py", f"{root}/sub/c.txt",
        f"{root}/a.py\n{root}/sub/b.py", f"{root}/sub/b.py:1:import sys",
        f"{root}/sub/b.py:1\n{root}/sub/c.txt:1", played.results[6][1], "No files found",
    ]  # fmt: skip
    assert played.results[6][0]


def test_a_skill_is_found_in_the_project_and_in_a_plugin(player: Any, call: Any) -> None:
    for path in (
        "workspace/.claude/skills/triage/SKILL.md",
        "plug/skills/orchestrate/SKILL.md",
        "plug/commands/run.md",
    ):
        (player.folder / path).parent.mkdir(parents=True)
        (player.folder / path).write_text("do it")
    manifest = player.folder / "plug" / ".claude-plugin" / "plugin.json"
    manifest.parent.mkdir()
    manifest.write_text('{"name": "docs-tools"}')
    names = ("triage", "docs-tools:orchestrate", "docs-tools:run", "orchestrate", "docs-tools:triage", "")
    calls = [call("Skill", skill=name) for name in names]
    played = player.play(*calls, options=("--plugin-dir", str(player.folder / "plug")))
    assert [not is_error for is_error, _ in played.results] == [True, True, True, False, False, False]


def test_tools_that_it_does_not_have_pass_the_hooks_and_say_so(player: Any, call: Any) -> None:
    fetch = call("WebFetch", url="https://example.com", prompt="read")
    is_error, text = player.play(fetch, settings=player.pre("pass")).result
    assert is_error
    assert "does not run this tool" in text
    assert player.seen()["tool_input"]["url"] == "https://example.com"


def test_an_optional_field_of_another_type_is_an_error_of_the_call(player: Any, call: Any) -> None:
    played = player.play(
        call("Read", file_path="x", offset="a"), call("Bash", command="echo", timeout="soon"),
        call("Bash", command="a\0b"), call("AskUserQuestion", questions=[1]), call("Bash", command="echo still here"),
    )  # fmt: skip
    assert [is_error for is_error, _ in played.results] == [True, True, True, True, False]


def test_the_transcript_is_stream_json(player: Any, call: Any) -> None:
    played = player.play({"say": "I look first."}, call("Bash", command="echo a"), {"say": "Done."})
    assert [line["type"] for line in played.lines] == [
        "system",
        "assistant",
        "assistant",
        "user",
        "assistant",
        "result",
    ]
    first, last = played.lines[0], played.lines[-1]
    assert (first["subtype"], first["cwd"], "Bash" in first["tools"]) == ("init", str(player.workspace), True)
    assert played.lines[1]["message"]["content"] == [{"type": "text", "text": "I look first."}]
    assert (last["subtype"], last["result"], last["total_cost_usd"], last["is_error"]) == (
        "success",
        "Done.",
        0.0,
        False,
    )
    assert len({line["session_id"] for line in played.lines}) == 1


def test_ids_are_the_scripts_own_or_numbered_with_the_step_in_them(player: Any, call: Any) -> None:
    script = {"steps": {"one": [call("Bash", command="echo"), {**call("Bash", command="echo"), "id": "toolu_mine"}]}}
    played = player.play(script=script, options=("--step", "one"))
    uses = [line["message"]["content"][0]["id"] for line in played.lines if line["type"] == "assistant"]
    assert uses == ["toolu_replay_one_0001", "toolu_mine"]


def test_denials_are_listed_as_the_program_lists_them(player: Any, call: Any) -> None:
    denied, by_subagent = call("Bash", command="a"), {**call("Bash", command="b"), "agent": "helper"}
    played = player.play(denied, by_subagent, settings=player.deny())
    listed = [one["tool_input"]["command"] for one in played.lines[-1]["permission_denials"]]
    assert listed == ["a"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("[", "--script"),
        ({"tool": "Bash"}, "list of entries"),
        ([{"tool": "Bash"}], "entry 1: `input`"),
        ([{"tool": "", "input": {}}], "`tool`"),
        ([{"tool": "Bash", "input": {}, "expect": "deny"}], "unknown key expect"),
        ([{"say": "a", "tool": "Bash"}], "stands alone"),
        ([{"say": 1}], "`say`"),
        ([{"tool": "Bash", "input": {}, "agent": 1}], "`agent`"),
        (["Bash"], "not a mapping"),
        ({"steps": {"one": []}}, "--step"),
    ],
)
def test_a_script_that_is_wrong_is_refused_before_anything_runs(player: Any, call: Any, script: Any, says: str) -> None:
    if isinstance(script, list) and isinstance(script[0], dict):
        script = [*script, call("Bash", command="touch ran")]
    played = player.play(script=script)
    assert played.exit_code == 2
    assert says in played.stderr
    assert not (player.workspace / "ran").exists()
