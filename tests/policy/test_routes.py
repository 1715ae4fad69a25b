"""What handlers and permission rules make of each tool, and by which others the same is reached."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from harbor_tasks.evalspec.schema import Runner
from harbor_tasks.policy.handlers import Handler, Handlers
from harbor_tasks.policy.permissions import PermissionRules
from harbor_tasks.policy.routes import Permission, Permits, Route, permits_of, routes, routes_table


def rules(*handlers: Handler) -> Handlers:
    return Handlers(handlers)


def test_a_tool_that_no_handler_catches_is_unguarded() -> None:
    read, write = routes(rules(Handler("m", ("Read",))), Permits(), ["Read", "Write"])
    assert (read.state, read.reason, read.handler) == ("guarded", "denied", 0)
    assert (write.state, write.reason, write.handler) == ("unguarded", "no handler catches it", None)


@pytest.mark.parametrize(
    ("handler", "state"),
    [
        (Handler("m", ("Bash",), input_filters=("rm",)), "partly guarded"),
        (Handler("m", ("*",), input_filters=("rm",)), "partly guarded"),
        (Handler("m", ("*",)), "guarded"),
        (Handler("m", ("Bash",)), "unguarded"),
        (Handler("m", ("Read",)), "unguarded"),
    ],
    ids=str,
)
def test_bash_is_guarded_as_far_as_filters_go(handler: Handler, state: str) -> None:
    (route,) = routes(rules(handler), Permits(), ["Bash"])
    assert route.state == state


def test_a_bash_handler_without_filters_leaves_bash_to_the_next() -> None:
    (route,) = routes(rules(Handler("m", ("Bash",)), Handler("n", ("*",))), Permits(), ["Bash"])
    assert (route.state, route.handler) == ("guarded", 1)


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (Handler("m", ("AskUserQuestion",)), "answered"),
        (Handler("m", ("*",)), "denied: questions are answered only when they are named"),
    ],
    ids=str,
)
def test_questions_are_answered_only_by_name(handler: Handler, reason: str) -> None:
    (route,) = routes(rules(handler), Permits(), ["AskUserQuestion"])
    assert route.reason == reason


@pytest.mark.parametrize(
    ("patterns", "state", "reason"),
    [
        (("mcp__shop__*",), "guarded", "denied"),
        (("mcp__*",), "guarded", "denied"),
        (("mcp__shop__refund",), "partly guarded", "only mcp__shop__refund"),
        (("mcp__*__refund",), "partly guarded", "only mcp__*__refund"),
        (("mcp__shop2__*",), "unguarded", "no handler catches its tools"),
    ],
    ids=str,
)
def test_a_server_is_guarded_when_all_its_tools_are(patterns: tuple[str, ...], state: str, reason: str) -> None:
    (route,) = routes(rules(Handler("m", patterns)), Permits(), [], ["shop"])
    assert (route.tool, route.state, route.reason) == ("mcp__shop__*", state, reason)


def test_permission_rules_for_whole_tools_guard_too() -> None:
    denied = Permits(deny=("WebFetch", "Read(secrets/**)", "mcp__shop"))
    found = routes(None, denied, ["WebFetch", "Read"], ["shop", "docs"])
    assert [(route.tool, route.state) for route in found] == [
        ("WebFetch", "guarded"), ("Read", "unguarded"), ("mcp__shop__*", "guarded"), ("mcp__docs__*", "unguarded"),
    ]  # fmt: skip


def test_without_a_list_the_tools_that_reach_something_are_looked_at() -> None:
    assert {"Bash", "Write", "WebFetch", "Agent"} <= {route.tool for route in routes(None, Permits())}
    assert "apply_patch" in {route.tool for route in routes(None, Permits(runtime="codex"))}


CODEX = Permits(runtime="codex")
BASH = Handler("m", ("Bash",), input_filters=(r"^(curl|wget)\b",))


def one(tool: str, permits: Permits, *handlers: Handler) -> Route:
    return next(route for route in routes(rules(*handlers), permits) if route.tool == tool)


@pytest.mark.parametrize(
    ("mode", "tool", "permission"),
    [
        ("bypassPermissions", "Bash", "not pre-approved"), ("bypassPermissions", "Read", "not pre-approved"),
        ("default", "Bash", "asks"), ("default", "Read", "runs"), ("default", "Write", "asks"),
        ("default", "WebFetch", "asks"), ("default", "Skill", "runs"), ("manual", "Edit", "asks"),
        ("acceptEdits", "Bash", "asks"), ("acceptEdits", "Write", "runs"), ("acceptEdits", "WebSearch", "asks"),
        ("dontAsk", "Bash", "refused"), ("dontAsk", "Write", "refused"), ("dontAsk", "WebFetch", "refused"),
        ("dontAsk", "Read", "runs"), ("dontAsk", "Agent", "runs"),
        ("plan", "Write", "refused"), ("plan", "Bash", "judged"), ("plan", "WebFetch", "asks"),
        ("plan", "Agent", "asks"),
        ("auto", "Write", "runs"), ("auto", "Bash", "judged"), ("auto", "WebFetch", "judged"),
    ],
)  # fmt: skip
def test_a_permission_mode_says_what_no_rule_says(mode: str, tool: str, permission: str) -> None:
    """As tests/test_through.py sees it in the program itself."""
    assert one(tool, Permits(mode=mode)).permission == permission


@pytest.mark.parametrize("mode", ["default", "dontAsk", "bypassPermissions"])
def test_a_rule_for_the_whole_tool_beats_the_mode(mode: str) -> None:
    assert one("Bash", Permits(("Bash",), mode=mode)).permission == "pre-approved"
    assert one("Bash", Permits(("Bash",), ("Bash",), mode=mode)).permission == "removed"
    assert one("Bash", Permits(("Bash",), ask=("Bash",), mode=mode)).permission == "asks"
    approving = Handler("m", ("Bash",), input_filters=("x",), env_checks={"A": {"equals": "b"}}, on_pass="allow")
    assert one("Bash", Permits(mode=mode), approving).said_of_permission == "pre-approved: handlers[0]"


def test_rules_for_some_calls_stand_beside() -> None:
    permits = Permits(("Bash(ls *)",), ("Bash(git push*)", "Edit(a/**)"), mode="dontAsk")
    assert one("Bash", permits).said_of_permission == (
        "refused: but for commands that only read, pre-approved Bash(ls *), not Bash(git push*)"
    )
    assert one("Write", permits).rules == ("not Edit(a/**)",)  # by which the program judges all that write
    assert one("Read", permits).rules == ("in the workspace",)


def test_a_question_that_nobody_answers_is_not_offered_unless_the_program_did() -> None:
    assert one("AskUserQuestion", Permits()).said_of_permission == "removed: no handler answers it"
    assert one("request_user_input", CODEX).state == "unguarded"  # there it is offered, and says that it does not work
    (seen,) = routes(None, Permits(), ["AskUserQuestion"])
    assert (seen.state, seen.permission) == ("unguarded", "not pre-approved")
    answered = one("AskUserQuestion", Permits(mode="dontAsk"), Handler("m", ("AskUserQuestion",)))
    assert (answered.reason, answered.permission) == ("answered", "pre-approved")


def test_what_was_removed_stands_beside_what_was_offered() -> None:
    found = routes(None, Permits(deny=("WebFetch", "Bash(x)", "mcp__a__b")), ["Bash"])
    assert [(one.tool, one.permission) for one in found] == [("Bash", "not pre-approved"), ("WebFetch", "removed")]


def test_codex_has_no_permission_rules() -> None:
    permits = Permits(("Bash",), ("apply_patch",), runtime="codex")
    assert {route.permission for route in routes(None, permits)} == {"none"}


@pytest.mark.parametrize(
    ("tool", "permits", "handlers", "also_by"),
    [
        ("WebFetch", Permits(deny=("WebFetch",)), (), ("Bash",)),
        ("WebFetch", Permits(deny=("WebFetch", "Bash")), (), ()),
        ("WebFetch", Permits(deny=("WebFetch",), mode="dontAsk"), (), ()),  # where Bash is refused
        ("WebFetch", Permits(("Bash(curl *)",), ("WebFetch",), mode="dontAsk"), (), ("Bash",)),
        ("Read", Permits(deny=("Read(a/**)",), mode="dontAsk"), (), ("Bash",)),  # `cat` is not asked about
        ("Read", Permits(mode="dontAsk"), (Handler("m", ("Read",)),), ("Grep", "Bash")),
        ("Write", Permits(deny=("Edit(a/**)",), mode="dontAsk"), (), ()),
        ("WebFetch", Permits(), (), ()),  # which nothing guards
        ("WebSearch", Permits(deny=("WebSearch",)), (), ("WebFetch", "Bash")),
        ("Bash", Permits(), (BASH,), ("WebFetch",)),
        ("Bash", Permits(deny=("WebFetch",)), (BASH,), ()),
        ("Bash", Permits(), (Handler("m", ("Bash",), input_filters=("^rm",)),), ()),  # no request
        ("Write", Permits(deny=("Edit(a/**)",)), (), ("Bash",)),  # the rule is about all that write files
        ("Write", Permits(), (Handler("m", ("Write",)),), ("Edit", "Bash")),
        ("Read", Permits(), (Handler("m", ("Read",)),), ("Grep", "Bash")),
        ("apply_patch", CODEX, (Handler("m", ("Write",)),), ("Bash",)),
    ],
)
def test_open_routes_to_what_is_guarded_are_named(
    tool: str, permits: Permits, handlers: tuple[Handler, ...], also_by: tuple[str, ...]
) -> None:
    assert one(tool, permits, *handlers).also_by == also_by


@pytest.mark.parametrize(
    ("patterns", "also_by"),
    [
        (("mcp__shop__*",), ("Bash", "WebFetch")),
        (("mcp__shop__refund",), ("its other tools", "Bash", "WebFetch")),
        (("mcp__shop__*", "Bash"), ("Bash", "WebFetch")),  # which is not enforced without a filter
        (("mcp__other__*",), ()),
        (("*",), ()),
    ],
)
def test_a_guarded_service_has_other_doors(patterns: tuple[str, ...], also_by: tuple[str, ...]) -> None:
    shop = routes(rules(Handler("m", patterns)), Permits(), mcp_servers=["shop"])[-1]
    assert shop.also_by == also_by


def test_rules_for_some_tools_of_a_server() -> None:
    permits = Permits(("mcp__shop__list", "mcp__shop2"), ("mcp__shop__close",), mode="dontAsk")
    shop = routes(None, permits, [], ["shop"])[0]
    assert shop.said_of_permission == "refused: pre-approved mcp__shop__list, not mcp__shop__close"
    assert routes(None, Permits(("mcp__shop",)), [], ["shop"])[0].said_of_permission == "pre-approved: mcp__shop"


def test_the_rules_that_ask_are_those_of_the_settings() -> None:
    settings = {"permissions": {"ask": ["Bash(rm *)", 5]}}
    permits = permits_of(Runner(settings=settings, permission_mode="plan"), PermissionRules(("a",), ("b",)))
    assert permits == Permits(("a",), ("b",), ("Bash(rm *)",), "plan")
    assert one("Bash", permits).rules == ("asks for Bash(rm *)",)


def test_tools_of_which_all_is_the_same_share_a_row() -> None:
    table = routes_table(routes(None, Permits(deny=("WebFetch",))))
    rows = list(table.columns[0].cells)
    assert "WebFetch" in rows
    assert any("Glob, Grep, NotebookEdit, Read" in str(cell) for cell in rows)
    assert table.caption == (
        "only not pre-approved: no rule allows it, and in mode bypassPermissions it runs all the same"
    )


def test_no_handler_guards_what_codex_tells_no_hook_of_or_what_is_not_known_there() -> None:
    tools = ["Bash", "collaborationspawn_agent", "exec", "write_stdin", "web_search", "brand_new"]
    found = {route.tool: route for route in routes(rules(Handler("m", ("*",))), CODEX, tools)}
    states = {tool: route.state for tool, route in found.items()}
    assert states == dict.fromkeys(tools, "unguarded") | {"Bash": "guarded", "collaborationspawn_agent": "guarded"}
    assert "does nothing but call other tools" in found["exec"].reason
    assert found["brand_new"].reason == "not known here: nothing has shown that a hook sees it"
    assert routes(rules(Handler("m", ("*",))), Permits(), ["brand_new"])[0].state == "guarded"


def test_routes_of_codex_go_by_its_own_names_and_have_no_permission_rules() -> None:
    by_agent = rules(Handler("m", ("Agent",)))
    denied = Permits(deny=("Bash", "mcp__shop"), runtime="codex")
    assert {route.tool: route.state for route in routes(by_agent, denied, mcp_servers=["shop"])} == {
        "Bash": "unguarded", "apply_patch": "unguarded", "request_user_input": "unguarded", "spawn_agent": "guarded",
        "view_image": "unguarded", "mcp__shop__*": "unguarded",
    }  # fmt: skip


def test_the_page_about_agents_explains_every_word(repo_root: Path) -> None:
    page = (repo_root / "docs" / "agents.md").read_text(encoding="utf-8")
    words = set(get_args(Permission)) - {"none"}
    assert {word for word in words if f"*{word}*" in page or f"*only {word}*" in page} == words
