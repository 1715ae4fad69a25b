"""What a judge sees: the workspace, what the agent did and said, what became of its calls."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .kit import POWERLESS, Judged, Task, assistant, call, check, decided, make_deep, remove_deep, result, text

SEEN = "import json, pathlib\npathlib.Path(arguments['to']).write_text(json.dumps(outputs))\nreturn True"


class Look:
    """A task, and the `outputs` that a check of it sees."""

    def __init__(self, folder: Path) -> None:
        self.task = Task(folder)
        self.to = folder / "seen.json"
        self.judged: Judged | None = None

    def outputs(self, **config: Any) -> dict[str, Any]:
        """Let a check write down what it sees."""
        self.judged = self.task.verify(check(SEEN, arguments={"to": str(self.to)}), **config)
        assert self.judged.only["error"] is None
        seen: dict[str, Any] = json.loads(self.to.read_text(encoding="utf-8"))
        return seen

    def started_with(self, **files: str) -> None:
        """The workspace before the agent begins; `_` in a name is a slash."""
        initial = {}
        for name, content in files.items():
            path = name.replace("_", "/", 1)
            self.task.made(f"{path}.md", content)
            initial[f"{path}.md"] = hashlib.sha256(content.encode()).hexdigest()
        (self.task.tests / "initial.json").write_text(json.dumps(initial), encoding="utf-8")
        self.begin()

    def begin(self) -> None:
        """The setup is over: what comes now is the agent's."""
        time.sleep(0.02)  # a file's time is as coarse as the kernel's tick
        (self.task.home / "started").touch()
        time.sleep(0.02)


@pytest.fixture
def look(tmp_path: Path) -> Iterator[Look]:
    """A task whose agent left nothing."""
    yield Look(tmp_path)
    remove_deep(tmp_path)


# ---- files ----


def test_the_files_are_what_the_agent_made_or_changed_and_what_lies_in_the_outputs(look: Look) -> None:
    look.task.made(".claude/skills/review/SKILL.md", "a skill")
    look.started_with(notes="old", report="old", out_given="given")
    look.task.made("report.md", "new")
    look.task.made("src/app.py", "print()")
    seen = look.outputs(outputs=[{"path": "out"}])
    assert seen["files"] == {"out/given.md": "given", "report.md": "new", "src/app.py": "print()"}
    assert seen["modified_files"] == {"report.md": "new", "src/app.py": "print()"}


def test_a_file_written_again_with_the_same_content_is_not_modified(look: Look) -> None:
    look.started_with(notes="same")
    look.task.made("notes.md", "same")
    assert look.outputs()["modified_files"] == {}


def test_without_a_mark_every_unknown_file_is_the_agents(look: Look) -> None:
    look.task.made("out.txt", "x")
    assert look.outputs()["modified_files"] == {"out.txt": "x"}


def test_a_starting_file_that_is_gone_is_named(look: Look) -> None:
    look.started_with(notes="old", docs_a="a")
    (look.task.workspace / "docs" / "a.md").unlink()
    seen = look.outputs()
    assert (seen["deleted_files"], seen["files"]) == (["docs/a.md"], {})


@pytest.mark.parametrize("declared", [".", "./", "out", "out/", "out/*.txt", "out/a.txt"])
def test_an_output_is_a_file_a_folder_a_glob_or_all(look: Look, declared: str) -> None:
    look.task.made("out/a.txt", "A")
    look.begin()
    assert look.outputs(outputs=[{"tool": "mcp__x__y"}, {"path": declared}])["files"] == {"out/a.txt": "A"}


def test_another_folder_with_the_same_beginning_is_no_output(look: Look) -> None:
    look.task.made("outside/a.txt", "A")
    look.begin()
    assert look.outputs(outputs=[{"path": "out"}])["files"] == {}


def test_a_link_out_of_the_workspace_is_not_followed_and_said(look: Look, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the answer", encoding="utf-8")
    (look.task.workspace / "file").symlink_to(secret)
    (look.task.workspace / "folder").symlink_to(tmp_path)
    (look.task.workspace / "up").symlink_to("../secret.txt")
    (look.task.workspace / "gone").symlink_to("nowhere")
    look.task.made("real.txt", "inside")
    (look.task.workspace / "inside").symlink_to("real.txt")
    seen = look.outputs(outputs=[{"path": "."}])
    assert seen["files"] == {"inside": "inside", "real.txt": "inside"}
    assert "the answer" not in json.dumps(seen)
    assert set(seen["unread"]) == {"file", "folder/", "up", "gone"}
    assert "leaves the workspace" in seen["unread"]["up"]


def test_what_is_no_text_gets_a_placeholder_and_is_said(look: Look) -> None:
    look.task.made("image.png", b"\x89PNG\r\n\0\0binary")
    look.task.made("latin.txt", "Größe".encode("latin-1"))
    look.task.made("text.txt", "Größe \u2028 \ufffd")
    seen = look.outputs()
    assert seen["files"]["image.png"] == "[binary file, 14 bytes]"
    assert seen["files"]["latin.txt"] == "Gr\ufffd\ufffde"
    assert seen["files"]["text.txt"] == "Größe \u2028 \ufffd"
    assert set(seen["unread"]) == {"image.png", "latin.txt"}


def test_big_files_and_many_of_them_are_cut(look: Look) -> None:
    look.task.made("big.log", b"x" * (3 << 20))
    for at in range(40):
        look.task.made(f"many/{at:02}.log", b"y" * (1 << 20))
    seen = look.outputs()
    assert len(seen["files"]["big.log"]) == 1 << 20
    assert sum(map(len, seen["files"].values())) <= 32 << 20
    assert "only the first 1048576 of 3145728 bytes" in seen["unread"]["big.log"]
    assert "only the first 0 of" in seen["unread"]["many/39.log"]


def test_special_files_do_not_stop_the_verifier(look: Look) -> None:
    os.mkfifo(look.task.workspace / "pipe")
    look.task.made("deep/" * 50 + "a.txt", "deep")
    seen = look.outputs()
    assert seen["unread"]["pipe"] == "not a regular file"
    assert list(seen["files"].values()) == ["deep"]


def test_a_tree_of_any_depth_does_not_stop_the_verifier(look: Look) -> None:
    make_deep(look.task.workspace, 1050, "d")
    (look.task.workspace / "e").mkdir()
    make_deep(look.task.workspace / "e", 700)  # longer than a path may be
    look.task.made("z.txt", "found")
    seen = look.outputs()
    assert seen["files"]["z.txt"] == "found"
    assert f"{'d/' * 1049}file" in seen["files"]
    assert any("File name too long" in why for why in seen["unread"].values())


def test_what_the_agent_closed_is_seen_all_the_same(look: Look) -> None:
    """A verifier of the agent's own user sees what one that is root sees."""
    look.started_with(a_start="as it was", a_same="same")
    look.task.made("a/start.md", "changed")
    for name in ("closed/done.txt", "a/start.md", "a/same.md"):
        look.task.made(name, "same" if "same" in name else "yes").chmod(0)
    for folder in ("closed", "a", "."):
        (look.task.workspace / folder).chmod(0)
    look.task.prefix = POWERLESS
    seen = look.outputs(outputs=[{"path": "."}])
    assert seen["modified_files"] == {"a/start.md": "yes", "closed/done.txt": "yes"}
    assert seen["unread"] == {}
    assert stat.S_IMODE((look.task.workspace / "closed" / "done.txt").stat().st_mode) == 0


def test_files_in_masses_hide_neither_starting_files_nor_declared_ones(look: Look) -> None:
    look.started_with(zz_start="as it was")
    look.task.made("zz/start.md", "changed")
    script = look.task.tests / "verify.py"  # the same with smaller limits, for the sake of time
    text = script.read_text().replace("MAX_FILES = 20_000", "MAX_FILES = 200")
    script.write_text(text.replace("MAX_TEXTS = 32 << 20", "MAX_TEXTS = 1000"))
    for at in range(250):
        look.task.made(f"aa/{at}.log", b"y" * 100)
    look.task.made("zz/done.md", "yes")
    seen = look.outputs(outputs=[{"path": "zz/done.md"}])
    assert (seen["files"]["zz/done.md"], seen["modified_files"]["zz/start.md"]) == ("yes", "changed")
    assert seen["unread"]["..."] == "more than 200 files"
    assert look.judged is not None
    assert any("did not see all" in note and "200 files" in note for note in look.judged.report["notes"])


def test_a_starting_file_without_an_end_is_known_as_changed(look: Look) -> None:
    look.started_with(a_big="x", b_same="y")
    os.truncate(look.task.workspace / "a" / "big.md", 1 << 40)
    begun = time.monotonic()
    seen = look.outputs()
    assert time.monotonic() - begun < 20
    assert set(seen["modified_files"]) == {"a/big.md"}


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_what_lies_in_the_place_of_a_log_is_neither_waited_for_nor_followed(look: Look, put: Any) -> None:
    for path in (look.task.transcript, look.task.log):
        put(path)
    seen = look.outputs()
    assert (seen["stdout"], seen["tool_calls"], seen["interceptions"]) == ("", [], [])


def test_a_name_that_is_not_utf8_does_not_stop_the_verifier(look: Look) -> None:
    path = os.fsencode(look.task.workspace) + b"/caf\xe9.txt"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - a name in bytes
        file.write("found")
    assert list(look.outputs()["files"].values()) == ["found"]


def test_a_repository_and_caches_are_not_looked_into(look: Look) -> None:
    for name in (".git/config", "a/node_modules/x.js", "__pycache__/a.pyc"):
        look.task.made(name, "x")
    seen = look.outputs(outputs=[{"path": "."}])
    assert seen["files"] == {}
    assert set(seen["unread"]) == {".git/", "a/node_modules/", "__pycache__/"}


def test_the_settings_that_carry_the_policy_are_nobodys_output(look: Look) -> None:
    for name in (".claude/settings.json", ".claude/settings.local.json", ".codex/hooks.json"):
        look.task.made(name, "{}")
    look.task.made(".claude/skills/new/SKILL.md", "made")
    look.task.made("app/.claude/settings.json", "made")
    seen = look.outputs(outputs=[{"path": "."}])
    assert set(seen["files"]) == {".claude/skills/new/SKILL.md", "app/.claude/settings.json"}


def test_a_modified_file_is_found_by_its_bare_name_too(look: Look) -> None:
    look.task.made("deep/in/verdict.json", "{}")
    look.task.made("a/twice.txt", "1")
    look.task.made("b/twice.txt", "2")
    code = """
found = outputs["modified_files"]
assert found["verdict.json"] == found.get("verdict.json") == found["deep/in/verdict.json"] == "{}"
assert "verdict.json" in found and "twice.txt" not in found and found.get("twice.txt", "no") == "no"
return sorted(found) == ["a/twice.txt", "b/twice.txt", "deep/in/verdict.json"]
"""
    assert look.task.verify(check(code)).only["value"] is True


@pytest.mark.parametrize(
    ("made", "declared", "main"),
    [
        ({"out/a.md": "long text", "out/b.md": "b", "other.md": "longer than all"}, ["out"], "long text"),
        ({"b/x.md": "second", "a/x.md": "first, longer"}, ["b", "a"], "second"),
        ({"a/x.md": "there"}, ["missing", "a"], "there"),
        ({"only.py": "code"}, [], "code"),
        ({"x.bin": "\0\0\0\0\0\0\0\0\0\0", "x.md": "text"}, [], "text"),
        ({"scratch.txt": "notes"}, ["out"], "said last"),
        ({"out/empty.md": ""}, ["out"], "said last"),
        ({}, [], "said last"),
    ],
)
def test_the_main_content(look: Look, made: dict[str, str], declared: list[str], main: str) -> None:
    for path, content in made.items():
        look.task.made(path, content)
    look.task.said(assistant(text("said first")), assistant(text("said last")))
    assert look.outputs(outputs=[{"path": path} for path in declared])["main_content"] == main


def test_references_are_there_for_judges_only(look: Look) -> None:
    place = look.task.tests / "references" / "gold" / "answer.md"
    place.parent.mkdir(parents=True)
    place.write_text("gold", encoding="utf-8")
    assert look.outputs()["references"] == {"gold/answer.md": "gold"}


# ---- what was done and said ----


def test_calls_carry_their_result_and_what_the_log_says_of_them(look: Look) -> None:
    look.task.said(
        assistant(text("I look."), call("t1", "Bash", command="ls"), call("t2", "mcp__x__pay", amount=9)),
        result("t1", [{"type": "text", "text": "a.txt"}, {"type": "image", "source": {}}]),
        result("t2", "Not permitted here: payments", error=True),
        assistant(call("t3", "mcp__x__note", text="hi"), call("t4", "Write", file_path="x")), result("t3", "noted"),
    )  # fmt: skip
    look.task.logged(
        decided("t2", "mcp__x__pay", "deny", reason="Not permitted here: payments", handler=0),
        decided("t1", "Bash", "none"),
        decided("t3", "mcp__x__note", "rewrite", reason="rewritten", updated_input={"text": "[bot] hi"}),
    )
    seen = look.outputs()
    shown = [(c["name"], c["decision"], c["result"], c["is_error"], c["logged"]) for c in seen["tool_calls"]]
    assert shown == [
        ("Bash", "none", "a.txt\n[image]", False, True),
        ("mcp__x__pay", "deny", "Not permitted here: payments", True, True),
        ("mcp__x__note", "rewrite", "noted", False, True),
        ("Write", "none", None, False, False),
    ]
    assert [(c["input"], c["input_as_run"]) for c in seen["tool_calls"]] == [
        ({"command": "ls"}, {"command": "ls"}),
        ({"amount": 9}, None),
        ({"text": "hi"}, {"text": "[bot] hi"}),
        ({"file_path": "x"}, {"file_path": "x"}),
    ]
    assert [line["tool_use_id"] for line in seen["interceptions"]] == ["t2", "t1", "t3"]
    assert look.judged is not None
    assert look.judged.report["calls"] == {"total": 4, "denied": 1, "answered": 0, "guessed": 0, "rewritten": 1}


def test_a_permission_rules_deny_is_seen_though_no_hook_saw_it(look: Look) -> None:
    denied = [{"tool_name": "WebFetch", "tool_use_id": "t1"}]
    look.task.said(
        assistant(call("t1", "WebFetch", url="http://x")),
        result("t1", "Denied by a rule", error=True),
        {"type": "result", "result": "", "permission_denials": denied},
    )
    (seen,) = look.outputs(handlers=["*"])["tool_calls"]
    assert (seen["decision"], seen["reason"]) == ("deny", "Denied by a rule")
    assert look.judged is not None
    assert (look.judged.report["calls"]["denied"], look.judged.report["not_logged"]) == (1, [])


def test_the_conversation_is_what_the_agent_said_itself(look: Look) -> None:
    look.task.said(
        {"type": "system", "subtype": "init", "session_id": "s"},
        {"type": "user", "message": {"content": "do it"}, "parent_tool_use_id": None},
        assistant({"type": "thinking", "thinking": "hmm"}, text("First."), call("t1", "Agent", prompt="look")),
        assistant(text("I am a subagent."), call("t2", "Read", file_path="a"), agent="t1"),
        result("t2", "text"), result("t1", "done"),
        assistant(text("Last.")),
        {"type": "result", "result": "Last.", "num_turns": 3, "total_cost_usd": 0.5, "duration_ms": 1500},
    )  # fmt: skip
    seen = look.outputs()
    assert seen["conversation"] == "First.\n\nLast."
    assert seen["main_content"] == "Last."
    assert [c["agent"] for c in seen["tool_calls"]] == [None, "t1"]
    kinds = [(e["type"], e["text"], [t["name"] for t in e["tools"]]) for e in seen["events"]]
    assert kinds == [
        ("user", "do it", []), ("assistant", "First.", ["Agent"]), ("assistant", "I am a subagent.", ["Read"]),
        ("tool_result", "text", []), ("tool_result", "done", []), ("assistant", "Last.", []), ("result", "Last.", []),
    ]  # fmt: skip
    assert (seen["num_turns"], seen["cost_usd"], seen["duration_s"]) == (3, 0.5, 1.5)


def test_the_costs_of_several_sessions_add_up_and_within_one_the_last_is_the_whole(look: Look) -> None:
    ends = [("a", 0.1), ("a", 0.3), ("b", 0.5), (None, 0.25)]
    look.task.said(*({"type": "result", "session_id": name, "total_cost_usd": cost} for name, cost in ends))
    assert look.outputs()["cost_usd"] == pytest.approx(1.05)


def test_questions_come_with_their_answers(look: Look) -> None:
    asked = [
        {"question": "Which color?", "options": [{"label": "red"}, {"label": "blue"}]},
        {"question": "Sure?", "options": ["Yes", "No"]},
    ]
    look.task.said(assistant(call("t1", "AskUserQuestion", questions=asked)), assistant(
        call("t2", "AskUserQuestion", questions=[{"question": "Really?", "options": []}])))  # fmt: skip
    answers = [
        {"question": "Which color?", "answer": "blue", "tier": "override", "free_text": False},
        {"question": "Sure?", "answer": "Yes", "tier": "guessed", "free_text": False},
    ]
    late = [{"question": "In a subagent?", "answer": "so", "tier": "model", "free_text": True}]
    look.task.logged(
        decided("t1", "AskUserQuestion", "answer", tier="guessed", answers=answers),
        decided("t2", "AskUserQuestion", "deny", reason="nobody answered: Really?"),
        decided("t9", "AskUserQuestion", "answer", tier="model", answers=late),
    )
    seen = look.outputs()["questions"]
    assert [(q["question"], q["options"], q["answer"], q["tier"], q["decision"]) for q in seen] == [
        ("Which color?", ["red", "blue"], "blue", "override", "answer"),
        ("Sure?", ["Yes", "No"], "Yes", "guessed", "answer"),
        ("Really?", [], None, None, "deny"),
        ("In a subagent?", [], "so", "model", "answer"),
    ]
    assert look.judged is not None
    assert look.judged.report["calls"] == {"total": 3, "denied": 1, "answered": 2, "guessed": 1, "rewritten": 0}


def test_broken_lines_are_counted_not_fatal(look: Look) -> None:
    deep = "[" * 100_000
    look.task.said(
        "Warning: no config", assistant(call("t1", "Bash", command="ls")), '{"type": "assist', "[]", deep, ""
    )
    look.task.logged("{", decided("t1", "Bash", "none"), {"decision": "perhaps", "tool_use_id": "t1"})
    assert len(look.outputs()["tool_calls"]) == 1
    assert look.judged is not None
    assert look.judged.report["notes"] == [
        "4 lines of the transcript are no JSON objects", "1 lines of the interception log are no JSON objects",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        {"type": "assistant"},
        {"type": "assistant", "message": "text"},
        {
            "type": "assistant",
            "message": {"content": [None, 3, {"type": "tool_use"}, {"type": "tool_use", "input": 1}]},
        },
        {"type": "user", "message": {"content": [{"type": "tool_result"}, {"type": "tool_result", "content": 5}]}},
        {"type": "result", "result": {"a": 1}, "total_cost_usd": "NaN", "duration_ms": True, "permission_denials": [1]},
        {"type": "result", "total_cost_usd": 1e400},
        {"type": ["x"]},
    ],
)
def test_lines_of_another_shape_are_not_fatal(look: Look, line: dict[str, Any]) -> None:
    look.task.said(line, assistant(text("still here")))
    assert "still here" in look.outputs()["conversation"]


def test_the_same_message_told_twice_counts_once(look: Look) -> None:
    said = assistant(call("t1", "Bash", command="ls"))
    look.task.said(said, result("t1", "a"), said, assistant(call("t1", "Bash", command="rm -r x")))
    assert [c["input"]["command"] for c in look.outputs()["tool_calls"]] == ["ls", "rm -r x"]


def test_what_is_not_known_is_left_out_and_what_the_run_says_wins(look: Look) -> None:
    assert not {"exit_code", "cost_usd", "duration_s", "num_turns"} & set(look.outputs())
    (look.task.workspace.parent / "out.txt").write_text("printed", encoding="utf-8")
    facts = {
        "exit_code": 0,
        "cost_usd": 0,
        "duration_s": 2.5,
        "stdout_file": str(look.task.workspace.parent / "out.txt"),
    }
    look.task.run.write_text(json.dumps(facts), encoding="utf-8")
    look.task.said({"type": "result", "total_cost_usd": 7, "duration_ms": 9000})
    seen = look.outputs()
    assert (seen["exit_code"], seen["cost_usd"], seen["duration_s"], seen["stdout"]) == (0, 0, 2.5, "printed")


def test_standard_output_is_the_transcript_when_nobody_kept_another(look: Look) -> None:
    look.task.said(assistant(text("words")))
    assert '"words"' in look.outputs()["stdout"]


# ---- around the policy ----


def sha256(command: str) -> str:
    """The hash under which the interceptor logs this command."""
    return hashlib.sha256(json.dumps({"command": command}, separators=(",", ":")).encode()).hexdigest()


@pytest.mark.parametrize(
    ("tool", "patterns", "shown", "failed", "found"),
    [
        ("Bash", ["Bash"], "done", False, True),
        ("Bash", ["Bash"], "Exit code 1", True, True),
        ("Bash", ["mcp__*"], "done", False, False),
        ("mcp__x__pay", ["mcp__x__*"], "paid", False, True),
        ("Agent", ["Task"], "done", False, True),
        ("apply_patch", ["Write"], "done", False, True),
        ("Bash", ["B?sh"], "done", False, True),
        ("Bash", ["[B]ash", "Ba"], "done", False, False),
        ("Bash", ["*"], "<tool_use_error>InputValidationError: x</tool_use_error>", True, False),
        ("Bash", ["*"], "Permission to use Bash with command x has been denied.", True, False),
    ],
)
def test_a_covered_call_that_ran_without_its_log_line_is_told(
    look: Look, tool: str, patterns: list[str], shown: str, failed: bool, found: bool
) -> None:
    look.task.said(assistant(call("t1", tool, command="x")), result("t1", shown, error=failed))
    look.outputs(handlers=patterns)
    assert look.judged is not None
    told = [{"tool_use_id": "t1", "tool": tool, "why": "ran without passing the interceptor"}]
    assert look.judged.report["not_logged"] == (told if found else [])


@pytest.mark.parametrize(
    ("logged", "why"),
    [
        ({"input_sha256": sha256("ls")}, None),
        ({"input_sha256": sha256("rm")}, "ran without passing the interceptor"),
        ({"input_sha256": sha256("rm"), "tool": "Monitor"}, None),
        ({"input_sha256": sha256("ls"), "decision": "deny", "reason": "no"}, "ran although it was denied"),
        ({"input_sha256": sha256("ls"), "decision": "deny", "reason": "do"}, "ran although it was denied"),
    ],
    ids=["its line", "another's line", "asked about as another tool", "denied", "denied, and it says so"],
)
def test_a_run_that_went_around_the_interceptor_gets_no_reward(
    look: Look, logged: dict[str, str], why: str | None
) -> None:
    look.task.said(assistant(call("t1", "Bash", command="ls")), result("t1", "done"))
    look.task.logged({**decided("t1", "Bash", "none"), **logged})
    judged = look.task.verify(check("return True"), handlers=["Bash"])
    assert [found["why"] for found in judged.report["not_logged"]] == ([why] if why else [])
    assert (judged.reward is None) == (judged.report["reward"] is None) == (why is not None)
    assert why is None or f"Bash (t1) {why}" in judged.report["error"]


def test_a_line_that_no_call_belongs_to_is_told(look: Look) -> None:
    """Somebody asked the hook who is not the agent program, or took the call out of the transcript."""
    look.task.said(assistant(call("t1", "Bash", command="ls")), result("t1", "done"))
    look.task.logged(decided("t9", "Bash", "deny"))
    look.outputs()
    assert look.judged is not None
    assert any("t9" in note for note in look.judged.report["notes"])
