"""The replay program asks hooks as Claude Code does: what blocks there blocks here, what fails open there runs here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harbor_tasks.resources import script_module

RAN = (False, "ran")
TOUCH: dict[str, Any] = {"tool": "Bash", "input": {"command": "echo ran"}}
QUESTIONS = [{"question": "Proceed?", "header": "Go", "options": [{"label": "Yes"}, {"label": "No"}]}]
ASK: dict[str, Any] = {"tool": "AskUserQuestion", "input": {"questions": QUESTIONS}}


def test_a_deny_shows_exactly_its_reason_as_an_error(player: Any) -> None:
    played = player.play(TOUCH, settings=player.pre('say("deny", "Not permitted here: uploads")'))
    assert played.result == (True, "Not permitted here: uploads")


def test_an_empty_reason_still_denies_with_a_text(player: Any) -> None:
    is_error, text = player.play(TOUCH, settings=player.pre('say("deny", "")')).result
    assert is_error
    assert "denied" in text


def test_exit_2_blocks_and_shows_command_and_stderr(player: Any) -> None:
    is_error, text = player.play(TOUCH, settings=player.pre('print("why", file=sys.stderr); sys.exit(2)')).result
    assert is_error
    assert "why" in text
    assert "hook1.py" in text


@pytest.mark.parametrize(
    "body",
    [
        "sys.exit(1)",
        "sys.exit(3)",
        "os.kill(os.getpid(), 9)",
        "pass",
        'print("note"); say("deny")',
        'say("deny"); print("note")',
        'say("deny"); say("deny")',
        'say("Deny")',
        'say("deny", ["a list"])',
        'say("deny", event="pretooluse")',
        'print(json.dumps({"hookSpecificOutput": {"permissionDecision": "deny"}}))',
        'print(json.dumps({"permissionDecision": "deny", "permissionDecisionReason": "no"}))',
        'print(json.dumps([{"hookSpecificOutput": {}}]))',
        'say("allow", updatedInput="echo other")',
    ],
)
def test_what_fails_open_in_the_program_runs_here(player: Any, body: str) -> None:
    assert player.play(TOUCH, settings=player.pre(body)).result == RAN


def test_a_hook_that_is_not_there_fails_open(player: Any) -> None:
    hook = {"type": "command", "command": "/no/such/hook", "timeout": 5}
    assert player.play(TOUCH, settings={"hooks": {"PreToolUse": [{"hooks": [hook]}]}}).result == RAN


def test_a_deny_that_comes_too_late_is_lost(player: Any) -> None:
    body = 'say("deny"); sys.stdout.flush(); time.sleep(20)'
    played = player.play(TOUCH, settings=player.pre(body, timeout=0.5))
    assert played.result == RAN
    assert "0.5 s" in played.stderr


def test_a_child_that_holds_the_output_open_delays_the_decision_past_its_limit(player: Any) -> None:
    body = 'import subprocess; subprocess.Popen(["sleep", "20"]); say("deny")'
    assert player.play(TOUCH, settings=player.pre(body, timeout=0.7)).result == RAN


def test_ask_is_a_deny_where_no_human_is(player: Any) -> None:
    is_error, text = player.play(TOUCH, settings=player.pre('say("ask")')).result
    assert is_error
    assert "haven't granted" in text


def test_defer_ends_the_session(player: Any) -> None:
    played = player.play(TOUCH, TOUCH, settings=player.pre('say("defer")'))
    assert played.exit_code == 3
    assert played.results == []
    assert played.lines[-1]["type"] == "result"


def test_of_several_hooks_the_strictest_wins(player: Any) -> None:
    def outcome(*bodies: str) -> tuple[bool, str]:
        hooks = [player.hook(body) for body in bodies]
        found: tuple[bool, str] = player.play(TOUCH, settings={"hooks": {"PreToolUse": [{"hooks": hooks}]}}).result
        return found

    assert outcome('say("allow")', 'say("deny", "first")', 'say("ask")') == (True, "first")
    assert "haven't granted" in outcome('say("allow")', 'say("ask")')[1]
    assert outcome('say("allow")', "pass") == RAN


def test_of_two_rewrites_the_last_to_finish_wins(player: Any) -> None:
    slow = player.hook('time.sleep(0.6); say("allow", updatedInput={"command": "echo slow"})')
    fast = player.hook('say("allow", updatedInput={"command": "echo fast"})')
    played = player.play(TOUCH, settings={"hooks": {"PreToolUse": [{"hooks": [slow, fast]}]}})
    assert played.result == (False, "slow")


def test_a_rewrite_replaces_the_whole_input_and_the_transcript_keeps_the_original(player: Any) -> None:
    entry = {"tool": "Bash", "input": {"command": "echo ran", "timeout": 5000}}
    played = player.play(entry, settings=player.pre('say("allow", updatedInput={"command": "echo other"})'))
    assert played.result == (False, "other")
    [use] = [line["message"]["content"][0] for line in played.lines if line["type"] == "assistant"]
    assert use["input"] == entry["input"]


def test_a_rewrite_that_breaks_a_built_in_tools_schema_denies(player: Any) -> None:
    is_error, text = player.play(TOUCH, settings=player.pre('say("allow", updatedInput={"cmd": "echo other"})')).result
    assert is_error
    assert "command" in text


def test_the_payload_is_what_the_program_sends(player: Any) -> None:
    player.play(TOUCH, settings=player.pre("pass"))
    payload = player.seen()
    assert payload == {
        "session_id": payload["session_id"], "transcript_path": str(player.folder / "transcript.jsonl"),
        "cwd": str(player.workspace), "prompt_id": payload["prompt_id"], "permission_mode": "bypassPermissions",
        "effort": {"level": "medium"}, "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "tool_input": {"command": "echo ran"}, "tool_use_id": "toolu_replay_0001",
    }  # fmt: skip


def test_a_subagents_call_names_it_and_its_parent(player: Any) -> None:
    start = {"tool": "Task", "input": {"prompt": "go", "subagent_type": "reviewer"}}
    played = player.play(start, {**TOUCH, "agent": "reviewer"}, settings=player.pre("pass"))
    payload = player.seen("toolu_replay_0002")
    assert payload["agent_type"] == "reviewer"
    assert payload["agent_id"]
    assert player.seen("toolu_replay_0001")["tool_name"] == "Agent"
    assert [line["parent_tool_use_id"] for line in played.lines if line["type"] == "user"] == [
        None,
        "toolu_replay_0001",
    ]


def test_a_subagent_that_was_refused_makes_no_calls(player: Any) -> None:
    start = {"tool": "Agent", "input": {"prompt": "go", "subagent_type": "reviewer"}}
    played = player.play(start, {**TOUCH, "agent": "reviewer"}, settings=player.deny("Task"))
    assert played.results == [(True, "no")]


def test_the_hook_runs_where_the_agent_has_gone_and_knows_the_project(player: Any) -> None:
    (player.workspace / "deep").mkdir()
    body = "(seen / 'where').write_text(os.getcwd() + ' ' + os.environ['CLAUDE_PROJECT_DIR'])"
    move = {"tool": "Bash", "input": {"command": "cd deep; export CLAUDE_PROJECT_DIR=/elsewhere"}}
    player.play(move, TOUCH, settings=player.pre(body))
    expected = f"{player.workspace / 'deep'} {player.workspace}"
    assert (player.folder / "seen" / "where").read_text() == expected


def test_the_settings_env_reaches_hooks_and_commands_and_the_project_dir_only_hooks(player: Any) -> None:
    settings = {**player.pre("(seen / 'mode').write_text(os.environ['MODE'])"), "env": {"MODE": "dry"}}
    command = {"tool": "Bash", "input": {"command": "echo $MODE ${CLAUDE_PROJECT_DIR-unset}"}}
    assert player.play(command, settings=settings).result == (False, "dry unset")
    assert (player.folder / "seen" / "mode").read_text() == "dry"


def test_no_hook_is_asked_for_a_tool_that_is_not_registered(player: Any) -> None:
    unknown = {"tool": "mcp__tracker__delete", "input": {}}
    played = player.play(unknown, {"tool": "Bogus", "input": {}}, settings=player.deny("*"))
    assert [text for _, text in played.results] == [
        f"<tool_use_error>Error: No such tool available: {name}</tool_use_error>"
        for name in ("mcp__tracker__delete", "Bogus")
    ]
    assert player.seen() is None


def test_no_hook_is_asked_for_an_input_that_breaks_the_schema(player: Any) -> None:
    is_error, text = player.play({"tool": "Bash", "input": {"cmd": "ls"}}, settings=player.deny("*")).result
    assert is_error
    assert "InputValidationError" in text
    assert player.seen() is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s["hooks"]["PreToolUse"].append({"matcher": "Read", "hooks": [{"type": "shell", "command": "x"}]}),
        lambda s: s["hooks"]["PreToolUse"].append({"hooks": [{"type": "command", "command": "x", "timeout": "5"}]}),
        lambda s: s["hooks"].update(PostToolUse={"matcher": "*"}),
        lambda s: s["hooks"]["PreToolUse"].append({"matcher": 3, "hooks": []}),
        lambda s: s.update(disableAllHooks=True),
    ],
    ids=["type", "timeout", "group", "matcher", "switched-off"],
)
def test_one_invalid_value_drops_all_hooks_of_the_file(player: Any, spoil: Any) -> None:
    settings = player.deny("*")
    assert player.play(TOUCH, settings=settings).result == (True, "no")
    spoil(settings)
    assert player.play(TOUCH, settings=settings).result == RAN


def test_a_settings_file_with_a_comment_has_no_hooks(player: Any) -> None:
    text = "// hooks\n" + json.dumps(player.deny("*"))
    assert player.play(TOUCH, settings=text).result == RAN


def test_settings_that_the_agent_rewrites_are_read_again(player: Any) -> None:
    settings = player.deny("Read")
    undo = {"tool": "Bash", "input": {"command": f"echo '{{}}' > {player.folder / 'settings.json'}"}}
    (player.workspace / "a").write_text("text")
    read = {"tool": "Read", "input": {"file_path": "a"}}
    denied, _, allowed = player.play(read, undo, read, settings=settings).results
    assert denied == (True, "no")
    assert allowed[0] is False


def test_a_question_is_answered_only_by_a_hook(player: Any) -> None:
    is_error, text = player.play(ASK).result
    assert is_error
    assert "not answered" in text
    given = '"questions": payload["tool_input"]["questions"], "answers": {"Proceed?": "No"}'
    answer = f'say("allow", updatedInput={{{given}}})'
    assert '"Proceed?"="No"' in player.play(ASK, settings=player.pre(answer)).result[1]
    in_default_mode = player.play(ASK, settings=player.pre(answer), options=("--permission-mode", "default"))
    assert in_default_mode.result[0] is False


@pytest.mark.parametrize("answers", ['{"Proceed?": 1}', '{"Proceed": "No"}', '{"Proceed?": {"label": "No"}}'])
def test_an_answer_of_another_shape_does_not_count(player: Any, answers: str) -> None:
    body = f'say("allow", updatedInput={{"questions": payload["tool_input"]["questions"], "answers": {answers}}})'
    assert player.play(ASK, settings=player.pre(body)).result[0]


def test_answers_without_the_questions_deny(player: Any) -> None:
    body = 'say("allow", updatedInput={"answers": {"Proceed?": "No"}})'
    is_error, text = player.play(ASK, settings=player.pre(body)).result
    assert is_error
    assert "questions" in text


def after(player: Any, output: str) -> dict[str, Any]:
    """Settings with a PostToolUse hook that puts ``output`` in place of the tool's own."""
    reply = f'{{"hookSpecificOutput": {{"hookEventName": "PostToolUse", "updatedToolOutput": {output}}}}}'
    return {"hooks": {"PostToolUse": [{"hooks": [player.hook(f"print(json.dumps({reply}))")]}]}}


def test_a_hook_after_the_call_replaces_what_the_model_sees(player: Any) -> None:
    shown = player.play(TOUCH, settings=after(player, '{"stdout": "else", "stderr": "", "interrupted": False}')).result
    assert shown == (False, "else")
    payload = player.seen(event="PostToolUse")
    assert payload["tool_response"]["stdout"] == "ran"


@pytest.mark.parametrize("output", ['{"stdout": "else"}', '"else"', "7"])
def test_an_output_of_another_shape_changes_nothing(player: Any, output: str) -> None:
    assert player.play(TOUCH, settings=after(player, output)).result == RAN


def test_a_failed_command_is_another_event_whose_output_counts_for_nothing(player: Any) -> None:
    settings = after(player, '{"stdout": "else", "stderr": "", "interrupted": False}')
    settings["hooks"]["PostToolUseFailure"] = [{"hooks": [player.hook("pass")]}]
    fail = {"tool": "Bash", "input": {"command": "echo ran; exit 4"}}
    assert player.play(fail, settings=settings).result == (True, "Exit code 4\nran")
    assert player.seen(event="PostToolUse") is None
    assert "Exit code 4" in player.seen(event="PostToolUseFailure")["error"]


def test_a_denied_call_fires_nothing_afterwards(player: Any) -> None:
    settings = after(player, "7")
    settings["hooks"].update(player.deny()["hooks"])
    player.play(TOUCH, settings=settings)
    assert player.seen(event="PostToolUse") is None


@pytest.mark.parametrize(
    ("matcher", "tool", "hit"),
    [
        ("Bash", "Bash", True), ("bash", "Bash", False), ("Bas", "Bash", False), ("Read|Bash", "Bash", True),
        ("Read, Bash", "Bash", True), ("", "Bash", True), ("*", "Bash", True), (None, "Bash", True),
        ("Task", "Agent", True), ("Agent", "Agent", True), ("^Task$", "Agent", True), ("Agents", "Agent", False),
        ("mcp__tracker", "mcp__tracker__get", False), ("mcp__tracker__*", "mcp__tracker__get", True),
        ("mcp__tracker__.*", "mcp__tracker__get", True), ("mcp__my-server__get", "mcp__my-server__get", True),
        ("Bash(echo *)", "Bash", False), ("[", "Bash", False), ("**", "Bash", False), ("a++", "aa", False),
        ("Web.*", "WebFetch", True), ("eb.", "WebFetch", True), ("^eb", "WebFetch", False), ("(?i)bash", "Bash", False),
        ("(?P<x>B)ash", "Bash", False), ("(?<x>B)ash", "Bash", True), (r"^Bash\Z", "Bash", False),
        (r"\ABash", "Bash", False), ("[^]ash", "Bash", True), ("[]|x", "Bash", False), ("Bash$", "Bash", True),
        ("^(?:Bash|Read)$", "Read", True), ("^(?!Bash)", "Bash", False), ("Ba{1}sh", "Bash", True),
        ("B{a", "B{a", True),
        (r"^\w+$", "Bash", True), ("[a-z&&x]", "&", True), (r"mcp__[\w\-]+__del", "mcp__a-b__delete", True),
    ],
)  # fmt: skip
def test_a_matcher_is_exact_names_or_an_unanchored_javascript_regex(matcher: str | None, tool: str, hit: bool) -> None:
    assert script_module("replay").matches(matcher, tool) is hit


def test_call_hooks_can_be_used_without_a_session(player: Any) -> None:
    replay = script_module("replay")
    payload = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}, "tool_use_id": "t1"}
    env = {**player.env, "CLAUDE_PROJECT_DIR": str(player.workspace)}
    outcome = replay.call_hooks(player.deny(), "PreToolUse", payload, str(player.workspace), env)
    assert (outcome.decision, outcome.reason, outcome.fired) == ("deny", "no", 1)
    assert player.seen("t1") == payload
    other = replay.call_hooks(player.deny(), "PreToolUse", {**payload, "tool_name": "Read"}, str(player.workspace), env)
    assert (other.decision, other.fired) == (None, 0)


@pytest.mark.pythons
def test_every_python_plays_a_script_under_a_hook(player: Any, pythons: Any) -> None:
    settings = player.pre('say("deny" if "no" in payload["tool_input"]["command"] else "allow", "größer")')
    for python in pythons:
        played = player.play(TOUCH, {"tool": "Bash", "input": {"command": "echo no"}}, settings=settings, python=python)
        assert played.results == [RAN, (True, "größer")], python


def test_a_models_key_reaches_hooks_and_no_command(player: Any) -> None:
    player.env["ANTHROPIC_API_KEY"] = "sk-1"
    command = {"tool": "Bash", "input": {"command": "echo ${ANTHROPIC_API_KEY-none}"}}
    settings = player.pre("(seen / 'key').write_text(os.environ['ANTHROPIC_API_KEY'])")
    assert player.play(command, settings=settings).result == (False, "none")
    assert (player.folder / "seen" / "key").read_text() == "sk-1"
