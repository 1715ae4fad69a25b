"""The author's templates: what they render to, and what is said when they cannot be rendered."""

from __future__ import annotations

import resource
import time
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


BOMBS = [
    "{{ 'x' * 10 ** 10 }}",
    "{{ [input.a] * 10 ** 10 }}",
    "{{ 'x' | center(10 ** 10) }}",
    "{{ 'x'.ljust(10000000000) }}",
    "{{ '%09999999999d' % 1 }}",
    "{{ '{:09999999999}'.format(1) }}",
    "{{ input.a | indent(10 ** 10) }}",
    "{{ 7 ** (7 ** 11) }}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{{ 'aaaa' | replace('a', 'a' * 9999) | replace('a', 'a' * 9999) | replace('a', 'a' * 9999) }}",
    "{% for x in range(99999) %}{% for y in range(99999) %}{% if x %}{% endif %}{% endfor %}{% endfor %}",
    "{{ 'x' * 5000000 }}",
    "{% for x in input.many %}{{ input.long }}{% endfor %}",
    "{long}{long}{long}{long}{long}",
    "{{ input.long | join(input.long) | length }}",
    "{{ input.long | join(d=input.long) | length }}",
    "{{ input.many | tojson(1000000000) }}",
    "{{ [input.many] | map('tojson', indent=1000000000) | join }}",
    "{{ 'a' | map('center', 10 ** 10) | list }}",
    "{{ input.long | list | replace('', input.long) }}",
    "{% set a = input.long ~ input.long %}" + "{% set a = a ~ a %}" * 30,
    "{{ input.long | join(**{'d': input.long}) }}",
]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_template_that_would_never_end_or_fill_the_memory_is_an_error_at_its_place(bomb: str) -> None:
    data = {"a": "b\nc", "many": ["x"] * 1000, "long": "x" * 1_000_000}
    began = time.monotonic()
    text, said = rendered(f"first\n{bomb}\nlast", data)
    assert time.monotonic() - began < 30
    assert text is None
    (one,) = said
    assert one.startswith("eval.yaml:7 (case c1): execution.prompt")
    assert "takes more than 2 s or 512 MiB" in one or "longer than 4 Mi characters" in one
    if not bomb.startswith("{long"):
        assert "line 2 of the template" in one


def test_a_bomb_costs_its_time_only_once(author: Author) -> None:
    author.eval(execution={"prompt": "{% for x in range(99999) %}{% for y in range(99998) %}{% endfor %}{% endfor %}"})
    for number in range(20):
        author.case(f"c{number}")
    began = time.monotonic()
    assert len(author.refused(jobs=1)) == 20
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ 'ab' * 3 }}", "ababab"),
        ("{% for x in input.l %}{% for y in input.l %}{{ x ~ y }} {% endfor %}{% endfor %}", "aa ab ba bb "),
        ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(input.l[0]) }}", "<a>"),
        ("{{ input.l | map('upper') | join('-') }}", "A-B"),
        ("{{ 'a,b'.split(',') | length }} {{ '%s!' % input.l[1] }}", "2 b!"),
        ("{% set x = input.l[0] %}{{ x | replace('a', 'bbbb') }}{{ input.l | join(', ') }}", "bbbba, b"),
    ],
)
def test_a_template_may_compute(template: str, text: str) -> None:
    assert rendered(template, {"l": ["a", "b"]}) == (text, [])


def test_an_ordinary_template_needs_no_process_of_its_own() -> None:
    template = (
        "{% set who = input.name or 'you' %}{% for x in input.l %}{{ loop.index }}. {{ x | trim | upper }}{% endfor %}"
        "{{ who }} {{ input.l | map('lower') | join(', ') }} {{ input.gone | default('none') }} {{ input | tojson }}"
        "{{ input.name.strip() ~ '!' }}{{ input.name | replace('\\n', ' ') }}"
    )
    data = {"name": "x", "l": ["a", "b"]}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert rendered(template, data)[1] == []
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_minflt, after.ru_utime) == (before.ru_minflt, before.ru_utime)


def test_what_is_wrong_is_said_as_well_of_a_template_that_computes() -> None:
    text, said = rendered("{{ 'a' * 2 }}\n{{ input.gone }}\n", {})
    assert text is None
    assert "execution.prompt, line 2 of the template: Missing required field 'gone' (input.gone)" in said[0]
