from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval, load_eval
from harbor_tasks.policy.permissions import PermissionRules, permission_rules, permissions_of

MakeEval = Callable[..., Eval]
Which = Literal["allow", "deny"]


@pytest.mark.parametrize(
    ("which", "entries", "rules"),
    [
        ("allow", None, []),
        ("allow", [], []),
        ("allow", [{"path": "notes.md", "tools": ["Read", "Edit"]}], ["Read(notes.md)", "Edit(notes.md)"]),
        ("deny", [{"path": "secrets/", "tools": ["Glob"]}], ["Glob(secrets/**)", "Read(secrets/**)"]),
        ("deny", [{"path": "secrets/", "tools": ["Write"]}], ["Write(secrets/**)", "Edit(secrets/**)"]),
        ("deny", ["NotebookEdit(/x/)"], ["NotebookEdit(//x/**)", "NotebookEdit(/x/**)", "Edit(//x/**)", "Edit(/x/**)"]),
        ("deny", ["Write", "Glob"], ["Write", "Glob"]),
        ("allow", ["Write(docs/**)"], ["Write(docs/**)"]),
        ("deny", [{"path": "a/b/*.key", "tools": ["Read"]}], ["Read(a/b/*.key)"]),
        ("allow", [{"path": "/srv/data/", "tools": ["Read"]}], ["Read(//srv/data/**)"]),
        ("allow", [{"path": "/srv/x.txt", "tools": ["Read"]}], ["Read(//srv/x.txt)"]),
        ("allow", [{"path": "//srv/x.txt", "tools": ["Read"]}], ["Read(//srv/x.txt)"]),
        ("allow", [{"path": "~/x/", "tools": ["Read"]}], ["Read(~/x/**)"]),
        ("deny", [{"path": "eval/", "tools": ["Grep", "Bash"]}], ["Grep(eval/**)", "Read(eval/**)", "Edit(eval/**)"]),
        ("deny", [{"path": "eval/", "tools": ["Bash", "Read"]}], ["Read(eval/**)", "Edit(eval/**)"]),
        ("deny", ["Bash(git push*)", "mcp__*", "WebFetch"], ["Bash(git push*)", "mcp__*", "WebFetch"]),
        ("allow", ["mcp__my-server__get", "Bash(rm -rf /tmp/x/*)"], ["mcp__my-server__get", "Bash(rm -rf /tmp/x/*)"]),
        ("allow", ["Bash(echo (a))", " Read "], ["Bash(echo (a))", "Read"]),
        ("allow", ["Edit(/tmp/x/**)", "Read(docs/)"], ["Edit(//tmp/x/**)", "Read(docs/**)"]),
        ("deny", ["Read(/srv/)"], ["Read(//srv/**)", "Read(/srv/**)"]),
        ("allow", ["Read", "Read"], ["Read"]),
        ("allow", ["Bash(cat ../x)", "Read(a..b/**)"], ["Bash(cat ../x)", "Read(a..b/**)"]),
        ("allow", ["Skill(docs:write)", "Agent(helper)", "WebFetch(domain:x.test)"],
         ["Skill(docs:write)", "Agent(helper)", "WebFetch(domain:x.test)"]),
    ],
    ids=str,
)  # fmt: skip
def test_entries_become_the_rules_that_the_program_reads(which: Which, entries: Any, rules: list[str]) -> None:
    problems = Problems()
    assert permission_rules(entries, which, problems) == rules
    assert not list(problems)


def test_bash_has_no_paths_to_allow_so_the_rule_is_left_out_with_a_warning() -> None:
    problems = Problems()
    assert permission_rules([{"path": "docs/", "tools": ["Bash", "Read"]}], "allow", problems) == ["Read(docs/**)"]
    assert [p.level for p in problems] == ["warning"]
    assert "permissions.allow[0] gives Bash for 'docs/'" in str(problems.warnings[0])


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"path": "eval/", "tools": ["Raed"]}, "names an unknown tool: 'Raed'; did you mean 'Read'?"),
        ({"path": "eval/", "tools": ["bash"]}, "names an unknown tool: 'bash'; did you mean 'Bash'?"),
        ({"path": "eval/", "tools": ["WebFetch"]}, "names a tool without paths: 'WebFetch'"),
        ({"path": "eval/", "tools": ["mcp__a__b"]}, "names an unknown tool: 'mcp__a__b'; tools with paths are Read"),
        ({"tools": ["Read"]}, "has no path"),
        ({"path": " ", "tools": ["Read"]}, "has no path"),
        ({"path": "eval/"}, "has no tools"),
        ({"path": "eval/", "tools": []}, "has no tools"),
        ({"path": "a(b)", "tools": ["Read"]}, "has a path that a rule cannot hold"),
        ({"path": "../x", "tools": ["Read"]}, "has a path with '..', which matches nothing: '../x'"),
        ({"path": "a/../../x/", "tools": ["Bash"]}, "has a path with '..'"),
        ({"path": "a/..", "tools": ["Read", "Edit"]}, "has a path with '..'"),
        ("Edit(../x/**)", "has a path with '..', which matches nothing: '../x/**'"),
        ("Read(/a/../x)", "has a path with '..'"),
        ("Raed(eval/**)", "names an unknown tool: 'Raed'; did you mean 'Read'?"),
        ("bash(git push)", "names an unknown tool: 'bash'; did you mean 'Bash'?"),
        ("Bash(git push", "is not a rule"),
        ("Bash git push", "is not a rule"),
        ("Bash()", "is not a rule: 'Bash()' says nothing between the brackets; write 'Bash'"),
        ("(x)", "is not a rule"),
    ],
    ids=str,
)
def test_an_entry_that_would_not_hold_is_an_error(entry: Any, says: str) -> None:
    problems = Problems()
    assert permission_rules([entry], "deny", problems) == []
    assert f"permissions.deny[0] {says}" in str(problems.errors[0])


def test_a_tool_that_is_not_known_here_but_like_no_other_is_a_warning() -> None:
    problems = Problems()
    assert permission_rules(["Quux"], "allow", problems) == ["Quux"]
    assert "a tool that is not known here: 'Quux'" in str(problems.warnings[0])


def test_an_evals_rules_carry_the_line_of_their_entry(make_eval: MakeEval) -> None:
    ev = make_eval("permissions:\n  deny:\n  - WebFetch\n  - Raed(x)\n  - {path: a/, tools: [Edti]}\n")
    problems = Problems()
    assert permissions_of(ev, problems) == PermissionRules((), ("WebFetch",))
    assert [(p.where.line, p.where.path) for p in problems.errors] == [(6, ev.file), (7, ev.file)]


def test_rules_of_runner_settings_count_too(make_eval: MakeEval) -> None:
    ev = make_eval(
        "permissions: {allow: [Read]}\nrunner: {settings: {permissions: {allow: [Glob, Read], deny: ['Edit(/x/)']}}}\n"
    )
    rules = permissions_of(ev, Problems())
    assert rules == PermissionRules(("Read", "Glob"), ("Edit(//x/**)", "Edit(/x/**)"))


def test_the_index_is_that_of_the_file_although_other_entries_are_faulty(tmp_path: Path) -> None:
    (tmp_path / "eval.yaml").write_text(
        "name: e\ndataset: {path: cases}\nexecution: {prompt: p}\n"
        "permissions:\n  deny:\n  - {path: x}\n  - {path: x, tools: Read}\n  - Raed(x)\n"
    )
    problems = Problems()
    ev = load_eval(tmp_path, problems)
    assert ev is not None
    assert permissions_of(ev, problems) == PermissionRules()
    found = [str(problem).partition("eval.yaml:")[2] for problem in problems.errors]
    assert [text.partition(" ")[0] + text.split(" ")[1] for text in found] == [
        "6:permissions.deny[0].tools", "7:permissions.deny[1].tools", "8:permissions.deny[2]",
    ]  # fmt: skip
