from __future__ import annotations

import pytest

from harbor_tasks.policy.heuristic import patterns_of


@pytest.mark.parametrize(
    ("match", "patterns"),
    [
        ("Whatever the agent asks with AskUserQuestion.", ["AskUserQuestion"]),
        ("WebFetch/WebSearch, and mcp__docs__search", ["WebFetch", "WebSearch", "mcp__docs__search"]),
        ("Everything in Bash", ["Bash"]),
        ("mcp__billing tools and Bash(billing *) scripts", ["mcp__billing__*", "Bash"]),
        ("Edits made with apply_patch", ["apply_patch"]),
        ("MultiEdit and NotebookEdit", ["MultiEdit", "NotebookEdit"]),
    ],
)
def test_tool_names_are_found_as_whole_words_in_the_order_of_the_text(match: str, patterns: list[str]) -> None:
    assert list(patterns_of(match)) == patterns


@pytest.mark.parametrize(
    "match",
    [
        "What was already credited, spreadsheets, and bash history",
        "webfetch or grep",
        "the BashHelper, a Bash.md and my_Grep",
        "non-Bash things",
    ],
)
def test_parts_of_words_and_other_cases_are_no_tools(match: str) -> None:
    assert patterns_of(match) == ("*",)


@pytest.mark.parametrize(
    ("match", "patterns"),
    [
        ("`Read` of anything", ["Read"]),
        ("`Read(secrets/**)`, please", ["Read"]),
        ("Edit tool calls", ["Edit"]),
        ("Read and Write tools", ["Read", "Write"]),
        ("Any use of Write below docs/", ["Write"]),
        ("Subagents: Task or Agent", ["Task", "Agent"]),
        ("Write, Edit and MultiEdit of settings", ["Write", "Edit", "MultiEdit"]),
        ("Read(/etc/**) is not for it", ["Read"]),
        ("Write", ["Write"]),
        ("- Write\n- Edit\n", ["Write", "Edit"]),
        ("Nothing that changes files (e.g. Write).", ["Write"]),
    ],
)
def test_names_that_are_english_words_count_where_the_tool_is_meant(match: str, patterns: list[str]) -> None:
    assert list(patterns_of(match)) == patterns


@pytest.mark.parametrize(
    "match",
    [
        "Read the docs first. Write nothing down! Edit later?",
        "Write it down.\n\nTask for later: none",
        "- Read what is there\n- Write less",
        "the Read-only share and the Agent's notes",
        "`Read me` first",
        "read and edit tools",
    ],
)
def test_english_words_at_the_start_of_a_sentence_or_in_lower_case_are_words(match: str) -> None:
    assert patterns_of(match) == ("*",)


@pytest.mark.parametrize(
    ("match", "pattern"),
    [
        ("Block mcp__my-tracker__delete-all.", "mcp__my-tracker__delete-all"),
        ("all of mcp__jira, always", "mcp__jira__*"),
        ("all of mcp__jira__ as well", "mcp__jira__*"),
        ("mcp__jira__*.", "mcp__jira__*"),
        ("deleting through mcp__*__delete", "mcp__*__delete"),
        ("servers like mcp__jira*", "mcp__jira*"),
        ("any MCP tool (mcp__*)", "mcp__*"),
        ("**mcp__jira__get** only", "mcp__jira__get"),
        ("Is it mcp__jira__get?", "mcp__jira__get"),
        ("Writes and reads through mcp__sheets__*", "mcp__sheets__*"),
    ],
)
def test_mcp_tokens_keep_hyphens_and_stars_and_a_bare_server_means_all_its_tools(match: str, pattern: str) -> None:
    assert patterns_of(match) == (pattern,)


@pytest.mark.parametrize("match", ["Calls to the shipping API", "run by a script", "scripts/submit.py", "all APIs"])
def test_scripts_and_apis_alone_mean_bash(match: str) -> None:
    assert patterns_of(match) == ("Bash",)


@pytest.mark.parametrize("match", ["a description in TypeScript", "rapid changes", "HTTP requests to the tracker", "?"])
def test_what_names_nothing_becomes_everything(match: str) -> None:
    assert patterns_of(match) == ("*",)


def test_prose_of_several_lines_gives_the_tools_that_it_names() -> None:
    match = (
        "Questions that the skill asks with AskUserQuestion before it files a ticket, and\n"
        "any interaction with the tracker: creating, reading or updating issues through\n"
        "mcp__atlassian__*, the scripts (scripts/submit.py, scripts/fetch_issue.py), or any\n"
        "HTTP requests to a Jira server. Read the case for the answers.\n"
    )
    assert patterns_of(match) == ("AskUserQuestion", "mcp__atlassian__*")


def test_a_name_is_listed_once() -> None:
    assert patterns_of("Bash, and Bash again, and mcp__a__b or mcp__a__b") == ("Bash", "mcp__a__b")
