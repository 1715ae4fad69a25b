"""The author's templates: what they render to, and what is said when they cannot be rendered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.tasks.templates import is_jinja, render_arguments, render_task_file

if TYPE_CHECKING:
    from tests.tasks.conftest import Author


def rendered(template: str, data: Any, **more: Any) -> tuple[str | None, list[str]]:
    problems = Problems()
    text = render_arguments(
        template, data, path=Path("eval.yaml"), line=7, case="c1", problems=problems, what="execution.prompt", **more
    )
    return text, list(map(str, problems))


@pytest.mark.parametrize(
    ("template", "data", "text"),
    [
        ("--level {{ input.level }}", {"level": "high"}, "--level high"),
        ('"{task}" {flag?}', {"task": "tidy up", "flag": "--dry"}, '"tidy up" --dry'),
        ('"{task}" {flag?}.', {"task": "tidy up"}, '"tidy up" .'),
        ("{task}", {"task": "  two  spaces \n"}, "  two  spaces \n"),
        ("{ticket} --repo {repo_path}", {"ticket": "T-1", "repo_path": "a b"}, "T-1 --repo a b"),
        ("", {"task": "x"}, ""),
        ("no fields at all", [1, 2], "no fields at all"),
        ('{"a": 1} {} {a b} {1}', {}, '{"a": 1} {} {a b} {1}'),
        ("#{# not closed", {}, "#{# not closed"),
        ("a{# note #}b", {}, "ab"),
        ("{größe}", {"größe": "XL"}, "XL"),
        ("line\n{{ input.a }}\n", {"a": "x"}, "line\nx\n"),
        ("{% for x in input.items %}<{{ x }}>{% endfor %}", {"items": [1, 2]}, "<1><2>"),
        ("{{ input.count }} {{ input.on }} {{ input.list }}", {"count": 3, "on": True, "list": ["ä"]}, '3 true ["ä"]'),
        ("{count} {on} {map}", {"count": 1.5, "on": False, "map": {"k": "v"}}, '1.5 false {"k": "v"}'),
        ("{{ input.gone | default('none') }}", {}, "none"),
        ("{{ input.empty or 'nothing' }}", {"empty": None}, "nothing"),
        ("{{ input['two words'] }}", {"two words": "yes"}, "yes"),
    ],
)  # fmt: skip
def test_a_template_renders_to(template: str, data: Any, text: str) -> None:
    assert rendered(template, data) == (text, [])


@pytest.mark.parametrize("value", ["{{ 7 * 7 }}", "{% raw %}", "{other}", "<b>&amp;</b>", "$(id) `id`", "\u2028|\\n"])
def test_a_value_is_put_in_as_it_is(value: str) -> None:
    data = {"value": value, "other": "wrong"}
    assert rendered("<{{ input.value }}>", data)[0] == f"<{value}>"
    assert rendered("<{value}>", data)[0] == f"<{value}>"


def test_fields_named_like_methods_of_a_mapping_are_fields() -> None:
    data = {"items": "a", "keys": "b", "values": "c", "get": "d", "update": "e"}
    template = "".join(f"{{{{ input.{name} }}}}" for name in data)
    assert rendered(template, data)[0] == "abcde"
    text, said = rendered("{{ input.items }}", {"other": 1})
    assert text is None
    assert "Missing required field" in said[0]


def test_results_of_earlier_steps_are_known_to_the_renderer_only() -> None:
    assert rendered("{{ steps.a.output }}", {}, steps={"a": {"output": "done"}}) == ("done", [])
    text, said = rendered("{{ steps.a.output }}", {})
    assert text is None
    assert "earlier steps are not known when a task is built" in said[0]


@pytest.mark.parametrize(
    ("template", "data", "parts"),
    [
        ("{{ input.promt }}", {"prompt": "x"}, ["Missing required field 'promt'", "input.promt"]),
        ("{{ input.a.b.c }}", {"a": {"x": 1}}, ["'b'", "input.a.b"]),
        ("{{ input['two words'] }}", {}, ["'two words'"]),
        ("{% if input.z %}x{% endif %}", {}, ["input.z"]),
        ("a\nb {{ input.x }}\n", {"x": None}, ["line 2 of the template", "input.x is empty"]),
        ("{{ prompt }}", {"prompt": "x"}, ["input.prompt"]),
        ("a\n{promt}\n", {}, ["Required field 'promt'", "input.promt", "line 2 of the template", "{promt?}"]),
        ("{prompt}", {"prompt": None}, ["Required field 'prompt'"]),
        ("{{ input.a", {}, ["template syntax"]),
        ("{% for %}", {}, ["template syntax"]),
        ("{{ input.a() }}", {"a": "text"}, ["cannot be rendered"]),
        ("{{ 1 / 0 }}", {}, ["division by zero"]),
        ("{{ input | nofilter }}", {}, ["nofilter"]),
        ("{p}", [1], ["input", "a list"]),
        ("{{ input.p }}", [1], ["input", "a list"]),
        ("{p}", None, ["input", "empty"]),
        ("{p}", "text", ["input", "a single value"]),
    ],
)  # fmt: skip
def test_a_fault_names_template_line_case_and_expression(template: str, data: Any, parts: list[str]) -> None:
    text, said = rendered(template, data)
    assert text is None
    assert len(said) == 1
    assert said[0].startswith("eval.yaml:7")
    for part in ["execution.prompt", *parts]:
        assert part in said[0]
    if "syntax" not in said[0] and "nofilter" not in said[0]:
        assert "(case c1)" in said[0]


def test_all_missing_fields_of_a_template_are_said() -> None:
    _text, said = rendered("{one} {two} {three?}", {})
    assert [name for name in ("one", "two", "three") if f"'{name}'" in "".join(said)] == ["one", "two"]


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ input.__init__.__globals__ }}",
        "{{ range.__self__ }}",
        "{% set x = input.update({'a': 1}) %}",
        "{{ lipsum() }}",
        "{{ [1, 2] | random }}",
        "{% include '/etc/passwd' %}",
        "{% for i in range(10000000) %}{{ i }}{% endfor %}",
    ],
)
def test_a_template_cannot_leave_its_sandbox_nor_differ_from_run_to_run(template: str) -> None:
    text, said = rendered(template, {"a": 1})
    assert text is None
    assert said


def test_only_marks_of_jinja_make_a_template_jinja() -> None:
    assert [is_jinja(t) for t in ("{{ x }}", "{% x %}", "{# x #}", "{x}", "{# x", "#}", '{"a": {"b": 1}}')] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


def test_an_undefined_field_of_one_case_stops_the_build_before_anything_is_written(author: Author) -> None:
    author.case("good")
    author.write("cases/bad/input.yaml", "other: 1\n")
    said = author.refused()
    assert len(said) == 1
    assert "(case bad)" in said[0]
    assert "input.prompt" in said[0]
    assert not author.out.exists()


def test_a_wrong_template_is_said_once_for_all_cases(author: Author) -> None:
    author.eval(execution={"prompt": "{{ input.prompt"})
    for name in ("a", "b", "c"):
        author.case(name)
    assert len(author.refused()) == 1


@pytest.mark.parametrize(
    ("skill", "text", "wanted"),
    [
        ("tidy", "", "/tidy\n"),
        ("tidy", "--all 'x'", "/tidy --all 'x'\n"),
        ("docs-tools:tidy", "", "/docs-tools:tidy\n"),
        (None, "  keep \n\n my space", "  keep \n\n my space"),
        (None, "{{ no }} <x>", "{{ no }} <x>"),
    ],
)
def test_the_instruction_is_the_prompt_or_the_skill_with_its_arguments(
    skill: str | None, text: str, wanted: str
) -> None:
    assert render_task_file("instruction.md", skill=skill, arguments=text, prompt=text) == wanted


@pytest.mark.parametrize(("skill", "wanted"), [("tidy", "$tidy all\n"), ("docs-tools:tidy", "$tidy all\n")])
def test_codex_is_told_of_a_skill_in_its_own_way(skill: str, wanted: str) -> None:
    """It knows the skills of a plugin by their own names."""
    told = render_task_file("instruction.md", skill=skill, arguments="all", prompt="all", runtime="codex")
    assert told == wanted
