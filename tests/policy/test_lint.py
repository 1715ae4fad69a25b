from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from harbor_tasks.errors import Problem, Problems
from harbor_tasks.evalspec import Eval
from harbor_tasks.policy.handlers import handlers_of
from harbor_tasks.policy.lint import digest_line, lint

MakeEval = Callable[..., Eval]


def found(ev: Eval, code: str) -> list[Problem]:
    """The warnings and notes with this code."""
    problems = Problems()
    lint(handlers_of(ev, problems), ev, problems)
    assert not problems.errors, [str(p) for p in problems.errors]
    return [problem for problem in problems if problem.code == code]


def file_of(*handlers: Mapping[str, object]) -> str:
    """A tool_handlers.yaml with one handler a line, from line 2."""
    return "handlers:\n" + "".join(f"- {json.dumps({'match': 'm', **handler})}\n" for handler in handlers)


WIDE = {"patterns": ["mcp__a__*"]}


def test_a_hidden_handler_is_named_with_the_one_that_hides_it(make_eval: MakeEval) -> None:
    ev = make_eval(handlers=file_of(WIDE, {"match": "never delete", "patterns": ["mcp__a__delete"]}))
    (problem,) = found(ev, "hidden-handler")
    assert problem.where.line == 3
    assert problem.where.path == ev.handlers_file
    assert "handlers[1] ('never delete') never decides: handlers[0] ('m') catches its calls first" in str(problem)


def test_a_handler_that_loses_some_of_its_tools_is_told_which(make_eval: MakeEval) -> None:
    ev = make_eval(handlers=file_of(WIDE, {"patterns": ["mcp__a__delete", "Read"]}))
    assert not found(ev, "hidden-handler")
    assert "does not decide about mcp__a__delete" in str(found(ev, "partly-hidden")[0])


def test_handlers_apart_are_not_warned_about(make_eval: MakeEval) -> None:
    ev = make_eval(handlers=file_of(WIDE, {"patterns": ["Read"]}))
    problems = Problems()
    lint(handlers_of(ev, problems), ev, problems)
    assert not list(problems)


@pytest.mark.parametrize("stage", [1, 2])
def test_bash_without_filters_is_not_enforced_in_either_stage(make_eval: MakeEval, stage: int) -> None:
    if stage == 1:
        ev = make_eval("inputs: {tools: [{match: 'what was already credited, in Bash'}]}\n")
        name = "inputs.tools[0] ('what was already credited, in Bash')"
    else:
        ev = make_eval(handlers=file_of({"match": "no shell", "patterns": ["Bash", "Read"]}))
        name = "handlers[0] ('no shell')"
    (problem,) = found(ev, "unfiltered-bash")
    assert f"{name} names Bash without input_filters" in str(problem)


def test_a_glob_that_catches_bash_needs_no_filters(make_eval: MakeEval) -> None:
    assert not found(make_eval(handlers=file_of({"patterns": ["B*"]})), "unfiltered-bash")


def test_filters_of_bash_come_with_what_text_cannot_show_once_a_handler(make_eval: MakeEval) -> None:
    filters = {"patterns": ["Bash"], "input_filters": ["rm", "mv"]}
    ev = make_eval(handlers=file_of(filters, {"patterns": ["Read"]}))
    (problem,) = found(ev, "text-filter")
    assert "sandbox.network" in str(problem)
    assert "credentials" in str(problem)
    assert problem.level == "note"


@pytest.mark.parametrize("regex", ["rm|", "(x)?"])
def test_a_filter_that_matches_nothing_at_all_hits_every_command(make_eval: MakeEval, regex: str) -> None:
    ev = make_eval(handlers=file_of({"patterns": ["Bash"], "input_filters": [regex, "mv"]}))
    assert repr(regex) in str(found(ev, "filter-hits-all")[0])


def test_a_match_that_names_no_tool_denies_everything_and_is_said_loudly(make_eval: MakeEval) -> None:
    ev = make_eval("inputs: {tools: [{match: any HTTP requests to the tracker}]}\n")
    (problem,) = found(ev, "catch-all")
    assert "inputs.tools[0]" in str(problem)
    assert "denies every call of every tool" in str(problem)
    assert problem.where.path == ev.file


def test_a_star_with_a_check_does_not_deny_everything(make_eval: MakeEval) -> None:
    checks = [{"field": "a", "op": "exists"}]
    assert not found(make_eval(handlers=file_of({"patterns": ["*"], "input_checks": checks})), "catch-all")


@pytest.mark.parametrize(
    ("handlers", "warned"),
    [
        ([{"patterns": ["Ask*"]}], True),
        ([{"patterns": ["*"]}, {"patterns": ["AskUserQuestion"]}], True),
        ([{"patterns": ["AskUserQuestion"]}, {"patterns": ["*"]}], False),
        ([{"patterns": ["Read"]}], False),
    ],
    ids=str,
)
def test_questions_caught_by_a_glob_alone_are_denied(
    make_eval: MakeEval, handlers: list[dict[str, object]], warned: bool
) -> None:
    assert bool(found(make_eval(handlers=file_of(*handlers)), "ask-by-glob")) == warned


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ({"patterns": ["Read"], "input_filters": ["x"]}, "input_filters are searched in Bash commands only"),
        ({"patterns": ["Read"], "on_unanswered": "deny"}, "on_unanswered is about questions"),
        ({"patterns": ["Read"], "on_pass": "allow"}, "on_pass needs a check"),
    ],
    ids=str,
)
def test_a_field_without_effect_is_said(make_eval: MakeEval, handler: dict[str, object], says: str) -> None:
    assert says in str(found(make_eval(handlers=file_of(handler)), "no-effect")[0])


@pytest.mark.parametrize(
    ("reason", "warned"), [("The evaluation forbids it.", True), ("Medieval texts are read-only.", False), (None, True)]
)
def test_a_reason_that_speaks_of_the_evaluation_is_said(make_eval: MakeEval, reason: str | None, warned: bool) -> None:
    ev = make_eval(handlers=file_of({"match": "no tracker in this eval", "patterns": ["Read"], "reason": reason}))
    assert bool(found(ev, "telltale-reason")) == warned


CHECK = {"patterns": ["mcp__j__*"], "env_checks": {"URL": {"must_contain": ["localhost"]}}}


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ("", "env-check-unset"),
        ("execution: {prompt: p, env: {URL: 'http://localhost:8080'}}\n", None),
        ("execution: {prompt: p, env: {URL: $URL}}\n", None),
        ("execution: {steps: [{id: a, prompt: p, env: {URL: 'http://acme.test'}}]}\n", None),
        ("execution: {prompt: p, env: {URL: 'https://acme.test/?q=localhost'}}\n", "env-check-fails"),
    ],
    ids=str,
)
def test_a_check_that_nothing_in_the_eval_satisfies_is_said(make_eval: MakeEval, env: str, code: str | None) -> None:
    ev = make_eval(env, handlers=file_of(CHECK))
    codes = {"env-check-unset", "env-check-fails"}
    assert {c for c in codes if found(ev, c)} == ({code} if code else set())


def test_what_stage_one_cannot_read_is_said(make_eval: MakeEval) -> None:
    ev = make_eval("inputs: {tools: [{match: 'mcp__a__* except reads, and scripts/submit.py'}]}\n")
    assert "speaks of an exception" in str(found(ev, "exception")[0])
    assert "speaks of scripts or an API" in str(found(ev, "scripts-not-covered")[0])


def test_a_resolved_file_that_was_made_from_other_matches_is_outdated(make_eval: MakeEval) -> None:
    body = file_of({"patterns": ["Read"]})
    ev = make_eval("inputs: {tools: [{match: WebFetch}]}\n", handlers=body)
    head = digest_line(ev)
    assert not found(make_eval("inputs: {tools: [{match: WebFetch}]}\n", handlers=head + body), "outdated-handlers")
    ev = make_eval("inputs: {tools: [{match: WebSearch}]}\n", handlers=head + body)
    assert "was made from other inputs.tools" in str(found(ev, "outdated-handlers")[0])
    assert not found(make_eval("inputs: {tools: [{match: WebSearch}]}\n", handlers=body), "outdated-handlers")


def test_dont_ask_names_what_the_allow_list_forgot(make_eval: MakeEval) -> None:
    ev = make_eval(
        "runner: {permission_mode: dontAsk}\n"
        "permissions: {allow: [Read, mcp__a]}\n"
        "outputs: [{path: out}]\n"
        "mcp_servers: [{name: a, command: x}, {name: b, command: x}]\n",
        handlers=file_of({**CHECK, "match": "gate"}),
    )
    said = " ".join(map(str, found(ev, "incomplete-allow")))
    assert "does not name Write, which outputs needs" in said
    assert "does not name mcp__b__*, which mcp_servers needs" in said
    assert "does not name mcp__j__*, which handlers[0] ('gate') needs" in said
    assert "mcp__a__*" not in said
    assert len(found(ev, "incomplete-allow")) == 3


def test_another_permission_mode_needs_no_allow_list(make_eval: MakeEval) -> None:
    assert not found(make_eval("outputs: [{path: out}]\n", handlers=file_of(WIDE)), "incomplete-allow")


@pytest.mark.parametrize(
    ("more", "handler", "code"),
    [
        ("permissions: {deny: [WebFetch]}\n", {"patterns": ["Bash"]}, "codex-permissions"),
        ("permissions: {allow: ['Bash(ls *)']}\n", {"patterns": ["Bash"]}, "codex-permissions"),
        ("execution: {prompt: x, max_budget_usd: 1}\n", {"patterns": ["Bash"]}, "codex-without"),
        ("models: {subagent: x}\n", {"patterns": ["Bash"]}, "codex-without"),
        ("", {"patterns": ["Read"]}, "codex-tool"),
        ("", {"patterns": ["exec"]}, "codex-tool"),
        ("", {"patterns": ["write_stdin", "Bash"]}, "codex-tool"),
        ("", {"patterns": ["exec_command"]}, "codex-tool"),
        ("", {"patterns": ["mcp__a__b"], "on_fail": "ask"}, "codex-ask"),
        ("", {"patterns": ["Write"], "input_checks": [{"field": "file_path", "op": "exists"}]}, "codex-fields"),
    ],
    ids=str,
)
def test_what_codex_cannot_do_is_said_for_codex_only(
    make_eval: MakeEval, more: str, handler: dict[str, object], code: str
) -> None:
    assert found(make_eval(more + "runner: {type: codex}\n", handlers=file_of(handler)), code)
    assert not found(make_eval(more, handlers=file_of(handler)), code)


def test_each_permission_rule_that_codex_does_not_have_is_named(make_eval: MakeEval) -> None:
    rules = "permissions: {deny: ['Read(a.txt)', WebSearch], allow: ['Bash(ls *)']}\nrunner: {type: codex}\n"
    said = found(make_eval(rules, handlers=file_of({"patterns": ["Bash"]})), "codex-permissions")
    assert [str(one).partition(" has no effect")[0].rpartition("permissions.")[2] for one in said] == [
        "allow: Bash(ls *)", "deny: Read(a.txt)"
    ]  # fmt: skip


def test_faults_of_permissions_and_settings_are_errors_even_without_handlers(make_eval: MakeEval) -> None:
    ev = make_eval("permissions: {deny: [Raed]}\nrunner: {settings: {permissions: {allow: Read}, env: {A: $B}}}\n")
    problems = Problems()
    lint(None, ev, problems)
    said = " ".join(map(str, problems.errors))
    assert "did you mean 'Read'" in said
    assert "runner.settings.permissions.allow must be a list of rule texts" in said
    assert "runner.settings.env.A is a reference" in said
