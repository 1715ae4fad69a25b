from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.policy.matchers import codex_names, covered, hook_matcher, named, overlap, subsumed, with_aliases
from harbor_tasks.resources import resource

TOOLS = [
    "Agent", "AskUserQuestion", "Bash", "BashOutput", "Edit", "Glob", "Grep", "MultiEdit", "NotebookEdit", "Read",
    "Skill", "TodoWrite", "WebFetch", "WebSearch", "Write", "mcp__a__get", "mcp__a__get_all", "mcp__a-b__get",
    "mcp__aXb__get", "mcp__a.b__get", "mcp__db1__drop", "mcp__db12__drop", "mcp__brave-search__web", "mcp__brave__web",
    "mcp__7c0d1c1e-9b1f-4f3a-8a55-0f6f0d6f2a10__create_issue",
]  # fmt: skip

PATTERNS = [
    ["AskUserQuestion"],
    ["Bash", "AskUserQuestion"],
    ["mcp__a__get"],
    ["mcp__a-b__get"],
    ["mcp__a.b__get"],
    ["mcp__a__*", "Bash"],
    ["mcp__brave-search__*", "AskUserQuestion"],
    ["mcp__*__create_issue"],
    ["mcp__db?__drop"],
    ["Task"],
    ["Agent", "Read"],
    ["*Edit", "Write"],
    ["mcp__*", "WebFetch", "WebSearch"],
    ["mcp__a(b)__x", "we+ird", "[odd]", "Read"],
    ["mcp__**__get"],
    ["*"],
    ["Read", "**"],
]


def claude_code_matches(matcher: str, tool: str) -> bool:
    """The rule of Claude Code: plain characters are exact names, anything else an unanchored regex; Task is Agent."""
    if matcher == "*":
        return True
    names = {tool, "Task"} if tool == "Agent" else {tool}
    if re.fullmatch(r"[A-Za-z0-9_|, -]+", matcher):
        return not names.isdisjoint(part.strip() for part in re.split(r"[|,]", matcher))
    return any(re.search(matcher, name) for name in names)


def codex_matches(matcher: str, tool: str) -> bool:
    """The rule of Codex: a patch is also hit by the names Edit and Write."""
    names = {tool, "Edit", "Write"} if tool == "apply_patch" else {tool}
    if matcher == "*":
        return True
    if re.fullmatch(r"[A-Za-z0-9_|]+", matcher):
        return not names.isdisjoint(matcher.split("|"))
    return any(re.search(matcher, name) for name in names)


@pytest.mark.parametrize("patterns", PATTERNS, ids=str)
def test_the_matcher_hits_exactly_the_tools_that_the_patterns_catch(patterns: list[str]) -> None:
    matcher = hook_matcher(patterns, protect=False)
    assert matcher is not None
    hit = [tool for tool in TOOLS if claude_code_matches(matcher, tool)]
    assert hit == [tool for tool in TOOLS if covered(tool, patterns)]


@pytest.mark.parametrize("patterns", PATTERNS, ids=str)
def test_protection_adds_the_writing_tools_and_bash_and_nothing_else(patterns: list[str]) -> None:
    matcher = hook_matcher(patterns, protect=True)
    assert matcher is not None
    protected = {"Bash", "Write", "Edit", "MultiEdit", "NotebookEdit"}
    hit = [tool for tool in TOOLS if claude_code_matches(matcher, tool)]
    assert hit == [tool for tool in TOOLS if tool in protected or covered(tool, patterns)]


@pytest.mark.parametrize("patterns", PATTERNS, ids=str)
def test_a_matcher_is_one_that_javascript_reads(patterns: list[str]) -> None:
    matcher = hook_matcher(patterns, protect=True)
    assert matcher is not None
    if matcher != "*" and not re.fullmatch(r"[A-Za-z0-9_|]+", matcher):
        assert matcher.startswith("^(?:")
        assert matcher.endswith(")$")
        assert not re.search(r"\(\?P|\(\?[aiLmsux]|\\[AZzbBdDsSwW]", matcher)
        assert "**" not in matcher


def test_exact_names_make_a_plain_list_of_names() -> None:
    assert hook_matcher(["AskUserQuestion", "mcp__a__get"], protect=False) == "AskUserQuestion|mcp__a__get"


def test_no_patterns_need_no_hook() -> None:
    assert hook_matcher([], protect=True) is None


def test_codex_gets_its_own_names_for_questions_and_edits() -> None:
    matcher = hook_matcher(["AskUserQuestion", "Write"], protect=False, runtime="codex")
    assert matcher is not None
    assert [t for t in ("request_user_input", "apply_patch", "Bash") if codex_matches(matcher, t)] == [
        "request_user_input", "apply_patch",
    ]  # fmt: skip


@pytest.mark.parametrize("patterns", [["mcp__a-b__x"], ["Bash", "mcp__a__*"]], ids=str)
def test_a_codex_matcher_with_other_than_word_characters_is_an_anchored_regex(patterns: list[str]) -> None:
    matcher = hook_matcher(patterns, protect=False, runtime="codex")
    assert matcher is not None
    assert not codex_matches(matcher, "mcp__a-b__xy")
    assert not codex_matches(matcher, "apply_patch")


def test_codex_protection_covers_patches() -> None:
    matcher = hook_matcher(["mcp__a__get"], protect=True, runtime="codex")
    assert matcher is not None
    assert codex_matches(matcher, "apply_patch")
    assert codex_matches(matcher, "Bash")


def test_a_star_stands_for_any_text_a_question_mark_for_one_character_and_nothing_else_is_special() -> None:
    assert covered("mcp__db1__drop", ["mcp__db?__drop"])
    assert not covered("mcp__db12__drop", ["mcp__db?__drop"])
    assert not covered("mcp__a1__x", ["mcp__a[1]__x"])
    assert not covered("bash", ["Bash"])
    assert not covered("mcp__a__get_all", ["mcp__a__get"])


def test_one_tool_is_caught_under_each_of_its_names() -> None:
    assert covered("Agent", ["Task"])
    assert covered("Task", ["Agent"])
    assert covered("request_user_input", ["AskUserQuestion"])
    assert covered("apply_patch", ["Edit"])
    assert covered("Write", ["apply_patch"])
    assert not covered("Write", ["Edit"])


def test_a_glob_catches_but_does_not_name() -> None:
    assert covered("AskUserQuestion", ["Ask*"])
    assert not named("AskUserQuestion", ["Ask*", "*"])
    assert named("AskUserQuestion", ["request_user_input"])


def test_aliases_follow_the_patterns_that_catch_them() -> None:
    assert with_aliases(["Task"]) == ("Task", "Agent")
    assert with_aliases(["*"]) == ("*",)
    assert with_aliases(["Write"], "codex") == ("Write", "apply_patch")


def test_inclusion_and_overlap_of_globs_agree_with_the_names_that_they_catch() -> None:
    names = ["".join(word) for length in range(6) for word in itertools.product("abc", repeat=length)]
    rng = random.Random(7)

    def catches(pattern: str) -> set[str]:
        return {name for name in names if covered(name, [pattern])}

    for _ in range(400):
        one, two, three = ("".join(rng.choices("ab*?", k=rng.randint(0, 4))) for _ in range(3))
        assert subsumed(one, [two, three]) == (catches(one) <= catches(two) | catches(three)), (one, two, three)
        assert overlap(one, two) == bool(catches(one) & catches(two)), (one, two)


@pytest.mark.parametrize(
    ("tool", "pattern"),
    [
        ("Agent", "Task"), ("Task", "Agent"), ("Agent", "T?sk"), ("Agent", "Ag*"), ("Agent", "Edit"),
        ("Edit", "Edit"), ("Write", "Edit"), ("apply_patch", "Edit"), ("apply_patch", "W*"), ("Write", "apply_patch"),
        ("MultiEdit", "apply_patch"), ("apply_patch", "NotebookEdit"), ("AskUserQuestion", "request_user_input"),
        ("request_user_input", "AskUserQuestion"), ("request_user_input", "Ask*"), ("Bash", "B*"), ("Bash", "bash"),
        ("mcp__a__get_all", "mcp__a__get"), ("mcp__a.b__get", "mcp__a.b__*"), ("mcp__aXb__get", "mcp__a.b__*"),
        ("mcp__db12__drop", "mcp__db?__drop"), ("mcp__db1__drop", "mcp__db?__drop"), ("mcp__a__x", "mcp__[a]__x"),
        ("mcp__x__delete", "mcp__*__delete"), ("mcp__x__delete_all", "mcp__*__delete"), ("Read", "**"),
    ],
)  # fmt: skip
def test_the_interceptor_catches_the_same_calls(tmp_path: Path, tool: str, pattern: str) -> None:
    script = tmp_path / "hooks" / "tools.py"
    script.parent.mkdir()
    shutil.copy(resource("interceptor", "tools.py"), script)
    never = {"input_filters": ["x"], "input_checks": [{"field": "nothing", "op": "exists"}]}
    handlers = {"handlers": [{"match": "m", "patterns": [pattern], **never}]}
    (tmp_path / "tool_handlers.yaml").write_text(json.dumps(handlers))
    payload: dict[str, Any] = {"hook_event_name": "PreToolUse", "tool_use_id": "t", "cwd": "/", "tool_name": tool}
    payload["tool_input"] = {"command": "x", "questions": []}
    argv = [sys.executable, "-I", "-S", "-E", str(script), "--sealed"]
    done = subprocess.run(argv, input=json.dumps(payload).encode(), capture_output=True, timeout=60, check=True)
    assert bool(done.stdout) == covered(tool, [pattern]), done


@pytest.mark.parametrize(
    ("patterns", "more"),
    [
        (["mcp__my-desk__get.it"], ("mcp__my_desk__get_it",)),
        (["mcp__my-desk__*", "mcp__b__c"], ("mcp__my_desk__*",)),
        (["Task"], ("spawn_agent", "collaborationspawn_agent")),
        (["spawn_agent"], ("collaborationspawn_agent",)),
        (["*"], ()),
        (["Bash", "some-tool"], ()),
    ],
)
def test_codex_has_other_names_for_servers_and_subagents(patterns: list[str], more: tuple[str, ...]) -> None:
    assert codex_names(patterns) == (*patterns, *more)
