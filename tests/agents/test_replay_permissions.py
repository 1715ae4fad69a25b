"""The permission rules of the settings, as far as the replay program says that it holds them."""

from __future__ import annotations

from typing import Any

import pytest

from harbor_tasks.resources import script_module


def refused(player: Any, rules: dict[str, list[str]], tool: str, mode: str = "bypassPermissions", **given: Any) -> bool:
    """Do the rules stop the call?"""
    rulebook = script_module("replay").Permissions({"permissions": rules}, mode, str(player.workspace))
    return rulebook.refusal(tool, given, str(player.workspace), False) is not None


@pytest.mark.parametrize(
    ("rule", "tool", "given", "hit"),
    [
        ("Bash", "Bash", {"command": "ls"}, True),
        ("Bash(git push*)", "Bash", {"command": "git push origin main"}, True),
        ("Bash(git push*)", "Bash", {"command": "git pull"}, False),
        ("Bash(git push*)", "Bash", {"command": "cd x && git push"}, True),
        ("Bash(git push*)", "Bash", {"command": "echo 'a; git push'"}, False),
        ("Bash(npm run build)", "Bash", {"command": "npm run build --prod"}, False),
        ("Bash(rm:*)", "Bash", {"command": "rm -rf x"}, True),
        ("Bash(rm *)", "Bash", {"command": "rm"}, True),
        ("Read(secrets/**)", "Read", {"file_path": "secrets/deep/key"}, True),
        ("Read(secrets/**)", "Read", {"file_path": "sub/../secrets/key"}, True),
        ("Read(secrets/**)", "Read", {"file_path": "other/secrets/key"}, False),
        ("Read(secrets/**)", "Grep", {"pattern": "x", "path": "secrets"}, True),
        ("Read(*.pem)", "Read", {"file_path": "deep/down/a.pem"}, True),
        ("Read(secrets)", "Read", {"file_path": "secrets/key"}, True),
        ("Read(//etc/**)", "Read", {"file_path": "/etc/hosts"}, True),
        ("Read(/etc/**)", "Read", {"file_path": "/etc/hosts"}, False),
        ("Edit(eval.yaml)", "Write", {"file_path": "eval.yaml", "content": ""}, True),
        ("Edit(eval.yaml)", "Read", {"file_path": "eval.yaml"}, False),
        ("Edit(eval.yaml)", "NotebookEdit", {"notebook_path": "eval.yaml"}, True),
        ("Edit(a/*)", "Write", {"file_path": "a/b/c"}, True),
        ("Edit(a/?)", "Write", {"file_path": "a/bc"}, False),
        ("Read(eval/**)", "Grep", {"pattern": "x", "path": "eval"}, True),
        ("Write(a/*)", "Write", {"file_path": "a/b/c"}, False),  # which the program passes over, and says so
        ("mcp__tracker", "mcp__tracker__delete", {}, True),
        ("mcp__tracker__get", "mcp__tracker__get_all", {}, False),
        ("mcp__*", "mcp__tracker__get", {}, True),
        ("mcp__track", "mcp__tracker__get", {}, False),
        ("WebFetch(domain:example.com)", "WebFetch", {"url": "https://example.com/x"}, True),
        ("WebFetch(domain:example.com)", "WebFetch", {"url": "https://example.com.evil.org/x"}, False),
        ("Task(reviewer)", "Agent", {"prompt": "x", "subagent_type": "reviewer"}, True),
        ("Skill(publish)", "Skill", {"skill": "publish"}, True),
    ],
)
def test_a_deny_rule_holds_in_bypass_mode(player: Any, rule: str, tool: str, given: dict[str, Any], hit: bool) -> None:
    assert refused(player, {"deny": [rule]}, tool, **given) is hit


def test_a_link_does_not_lead_around_a_path_rule(player: Any) -> None:
    (player.workspace / "secrets").mkdir()
    (player.workspace / "open").symlink_to("secrets")
    assert refused(player, {"deny": ["Read(secrets/**)"]}, "Read", file_path="open/key")


def test_a_deny_rule_beats_a_hooks_allow(player: Any, call: Any) -> None:
    settings = {**player.pre('say("allow")'), "permissions": {"deny": ["Bash(rm *)"]}}
    played = player.play(call("Bash", command="rm -f x"), call("Bash", command="echo ok"), settings=settings)
    assert played.results[0][0]
    assert "denied" in played.results[0][1]
    assert played.results[1] == (False, "ok")


@pytest.mark.parametrize("mode", ["dontAsk", "default"])
def test_outside_bypass_mode_a_call_needs_an_allow(player: Any, mode: str) -> None:
    allow = {"allow": ["Bash(git *)", "mcp__tracker__get", "Edit(out/**)"]}
    assert not refused(player, allow, "Bash", mode, command="git status")
    assert refused(player, allow, "Bash", mode, command="git status && rm x")
    assert not refused(player, allow, "mcp__tracker__get", mode)
    assert refused(player, allow, "mcp__tracker__delete", mode)
    assert not refused(player, allow, "Write", mode, file_path="out/a", content="")
    assert refused(player, allow, "Write", mode, file_path="a", content="")
    assert not refused(player, allow, "Read", mode, file_path="a")
    assert refused(player, allow, "Read", mode, file_path="/etc/hosts")


def test_a_hooks_allow_runs_the_tool_in_default_mode(player: Any, call: Any) -> None:
    played = player.play(
        call("Bash", command="echo ok"), settings=player.pre('say("allow")'), options=("--permission-mode", "default")
    )
    assert played.result == (False, "ok")
    assert player.play(call("Bash", command="echo ok"), options=("--permission-mode", "default")).result[0]


def test_accept_edits_mode_writes_in_the_workspace_only(player: Any) -> None:
    assert not refused(player, {}, "Write", "acceptEdits", file_path="a", content="")
    assert refused(player, {}, "Write", "acceptEdits", file_path="/tmp/a", content="")


def test_a_rule_to_ask_is_a_deny(player: Any) -> None:
    assert refused(player, {"ask": ["Bash(git push*)"]}, "Bash", command="git push")
