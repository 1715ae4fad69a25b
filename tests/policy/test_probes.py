from __future__ import annotations

from collections.abc import Callable

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval
from harbor_tasks.policy.handlers import Handler, Handlers, handlers_of
from harbor_tasks.policy.lint import lint
from harbor_tasks.policy.probes import Probe, Route, probes_of, routes

MakeEval = Callable[..., Eval]


def rules(*handlers: Handler) -> Handlers:
    return Handlers(handlers)


def test_the_probes_of_an_eval_are_data(make_eval: MakeEval) -> None:
    ev = make_eval(
        "probes:\n"
        "- {name: no push, tool: Bash, input: {command: git push}, expect: deny, reason_has: push}\n"
        "- {name: answers, tool: AskUserQuestion, input: {questions: []}, expect: answer, answers: {Q?: A}}\n"
    )
    first, second = probes_of(ev, None)
    assert first == Probe("no push", "Bash", {"command": "git push"}, "deny", reason_has=("push",))
    assert second.answers == {"Q?": "A"}


def test_probes_of_the_handlers_file_come_after_those_of_the_eval(make_eval: MakeEval) -> None:
    ev = make_eval(
        "probes:\n- {name: own, tool: Read, expect: none}\n",
        handlers="handlers: []\nprobes:\n- {name: brought, tool: Bash, input: {n: 1.50}, env: {V: 08}, expect: deny}\n",
    )
    problems = Problems()
    found = probes_of(ev, handlers_of(ev, problems))
    assert not problems.errors
    assert found[1] == Probe("brought", "Bash", {"n": 1.5}, "deny", env={"V": "08"})
    assert [one.name for one in found] == ["own", "brought"]


@pytest.mark.parametrize(
    ("probes", "says", "line"),
    [
        ("- {name: a, tool: Bash, expect: dney}\n", "probes[0].expect must be one of", 3),
        ("- {name: a, tool: Bash, expect: deny}\n- {name: a, tool: Bash, expect: deny}\n", "probe name", 4),
        ("- {name: a, tool: Bash, expect: deny, inptu: {}}\n", "inptu", 3),
        ("- {name: a, tool: Bash, expect: answer}\n", "only for AskUserQuestion", 3),
        ("  {}\n", "probes must be a list", 2),
        ("- {name: own, tool: Bash, expect: deny}\n", "has a probe 'own', as eval.yaml has one", None),
    ],
)  # fmt: skip
def test_faulty_probes_of_the_handlers_file(make_eval: MakeEval, probes: str, says: str, line: int | None) -> None:
    own = "probes:\n- {name: own, tool: Read, expect: none}\n"
    ev = make_eval(own, handlers=f"handlers: []\nprobes:\n{probes}")
    problems = Problems()
    lint(handlers_of(ev, problems), ev, problems)
    found = [one for one in problems.errors if says in one.message]
    assert [one.where.line for one in found] == [line], [str(one) for one in problems]
    assert found[0].where.path == ev.handlers_file


def test_a_tool_that_no_handler_catches_is_unguarded() -> None:
    assert routes(rules(Handler("m", ("Read",))), ["Read", "Write"]) == (
        Route("Read", "guarded", "denied", 0),
        Route("Write", "unguarded", "no handler catches it"),
    )


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
    (route,) = routes(rules(handler), ["Bash"])
    assert route.state == state


def test_a_bash_handler_without_filters_leaves_bash_to_the_next() -> None:
    (route,) = routes(rules(Handler("m", ("Bash",)), Handler("n", ("*",))), ["Bash"])
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
    (route,) = routes(rules(handler), ["AskUserQuestion"])
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
    (route,) = routes(rules(Handler("m", patterns)), [], ["shop"])
    assert (route.tool, route.state, route.reason) == ("mcp__shop__*", state, reason)


def test_permission_rules_for_whole_tools_guard_too() -> None:
    found = routes(None, ["WebFetch", "Read"], ["shop", "docs"], deny=["WebFetch", "Read(secrets/**)", "mcp__shop"])
    assert [(route.tool, route.state) for route in found] == [
        ("WebFetch", "guarded"), ("Read", "unguarded"), ("mcp__shop__*", "guarded"), ("mcp__docs__*", "unguarded"),
    ]  # fmt: skip


def test_without_a_list_the_tools_that_reach_something_are_looked_at() -> None:
    assert {"Bash", "Write", "WebFetch", "Agent"} <= {route.tool for route in routes(None)}


def test_no_handler_guards_what_codex_tells_no_hook_of_or_what_is_not_known_there() -> None:
    tools = ["Bash", "collaborationspawn_agent", "exec", "write_stdin", "web_search", "brand_new"]
    found = {route.tool: route for route in routes(rules(Handler("m", ("*",))), tools, runtime="codex")}
    states = {tool: route.state for tool, route in found.items()}
    assert states == dict.fromkeys(tools, "unguarded") | {"Bash": "guarded", "collaborationspawn_agent": "guarded"}
    assert "does nothing but call other tools" in found["exec"].reason
    assert found["brand_new"].reason == "not known here: nothing has shown that a hook sees it"
    assert routes(rules(Handler("m", ("*",))), ["brand_new"])[0].state == "guarded"


def test_routes_of_codex_go_by_its_own_names_and_have_no_permission_rules() -> None:
    by_agent = rules(Handler("m", ("Agent",)))
    assert {route.tool: route.state for route in routes(by_agent, deny=["Bash", "mcp__shop"], mcp_servers=["shop"],
                                                        runtime="codex")} == {
        "Bash": "unguarded", "apply_patch": "unguarded", "request_user_input": "unguarded", "spawn_agent": "guarded",
        "view_image": "unguarded", "mcp__shop__*": "unguarded",
    }  # fmt: skip
