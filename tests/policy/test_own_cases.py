"""Calls that are made from handlers: what they are about, and that the interceptor takes them for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from harbor_tasks.errors import Problems
from harbor_tasks.policy.handlers import Handlers, read_handlers
from harbor_tasks.policy.own_cases import own_cases
from harbor_tasks.policy.probes import Probe


def handlers(tmp_path: Path, *rules: dict[str, Any], **more: Any) -> Handlers:
    """The author's file with these rules, read."""
    path = tmp_path / "tool_handlers.yaml"
    path.write_text(yaml.safe_dump({"handlers": [{"match": "a rule", **rule} for rule in rules], **more}))
    problems = Problems()
    found = read_handlers(path, problems)
    assert found is not None, list(problems)
    return found


def by_name(cases: tuple[Probe, ...]) -> dict[str, Probe]:
    return {case.name.partition(": ")[2]: case for case in cases}


def test_a_bash_rule_gets_a_command_for_each_filter_and_one_for_none(tmp_path: Path) -> None:
    rule = {"patterns": ["Bash"], "input_filters": [r"\bgit\s+push\b", "(?:curl|wget) .*jira"]}
    cases = by_name(own_cases(handlers(tmp_path, rule)))
    commands = {name: case.input["command"] for name, case in cases.items()}
    assert commands["any command"] == "true"
    assert commands["filter 0"].startswith("git")
    assert commands["filter 0"].endswith("push")
    assert "jira" in commands["filter 1"]


def test_checks_get_an_input_that_passes_and_one_without_anything(tmp_path: Path) -> None:
    checks = [
        {"field": "amount", "op": "lt", "value": 50}, {"field": "order.to", "op": "in", "value": ["desk", "shop"]},
        {"field": "id", "op": "matches", "value": "^A-[0-9]+$"}, {"field": "note", "op": "exists"},
    ]  # fmt: skip
    cases = by_name(own_cases(handlers(tmp_path, {"patterns": ["mcp__desk__*"], "input_checks": checks})))
    assert cases["no input"].input == {}
    given = cases["input that passes"].input
    assert given == {"amount": 49, "order": {"to": "desk"}, "id": "A-0", "note": "x"}
    assert {case.tool for case in cases.values()} == {"mcp__desk__x"}


def test_variables_are_tried_as_they_are_and_as_they_must_be(tmp_path: Path) -> None:
    checks = {"A": {"equals": "1"}, "B": {"host_in": ["*.test"]}, "C": {"must_contain": ["dev"]}}
    cases = by_name(own_cases(handlers(tmp_path, {"patterns": ["mcp__t__file"], "env_checks": checks})))
    assert cases["no input"].env == {}
    assert cases["no input, variables that pass"].env == {"A": "1", "B": "http://x.test/", "C": "dev"}


def test_a_rewrite_gets_the_fields_that_it_changes(tmp_path: Path) -> None:
    rule = {"patterns": ["mcp__t__note"], "rewrite": {"body": {"prefix": "> "}, "meta.by": "bot"}}
    cases = by_name(own_cases(handlers(tmp_path, rule)))
    assert cases["input that passes"].input == {"body": "x", "meta": {"by": "x"}}


def test_questions_are_those_of_the_overrides_and_one_that_nobody_foresaw(tmp_path: Path) -> None:
    cases = own_cases(handlers(tmp_path, {"patterns": ["AskUserQuestion"]}, case_overrides={"Which?": "Both"}))
    asked = [case.input["questions"][0] for case in cases]
    assert [one["question"] for one in asked] == ["Which of the two?", "Which?"]
    assert "Both" in [option["label"] for option in asked[1]["options"]]


def test_a_catch_all_is_asked_about_a_tool_that_nobody_has(tmp_path: Path) -> None:
    assert [case.tool for case in own_cases(handlers(tmp_path, {"patterns": ["*"]}))] == ["SomeTool"]


def test_no_handlers_have_no_cases_and_many_have_no_end(tmp_path: Path) -> None:
    assert own_cases(None) == ()
    many = [{"patterns": [f"mcp__t__tool{n}"]} for n in range(200)]
    assert len(own_cases(handlers(tmp_path, *many))) == 60
