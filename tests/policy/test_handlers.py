from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval, load_eval
from harbor_tasks.policy.handlers import Handler, Handlers, handlers_of, read_handlers, task_handlers
from harbor_tasks.policy.lint import lint

Read = Callable[[str], "tuple[Handlers | None, Problems]"]
MakeEval = Callable[..., Eval]

FULL = """\
handlers:
- match: >
    Refunds above
    the ceiling
  patterns: [mcp__support__refund, Bash]
  input_filters: ['\\brefund\\b']
  env_checks:
    SUPPORT_URL: {must_contain: [localhost, "127.0.0.1"], host_in: ["*.test"]}
    MODE: {equals: "1.10", matches: '^\\d'}
  prompt: Only small refunds.
  reason: Call escalate_to_human.
  input_checks:
  - {field: amount, op: le, value: 500}
  - {field: order.currency, op: in, value: [USD, EUR]}
  - {field: note, op: exists}
  rewrite:
    path: {prefix: /sandbox/}
    note: {replace: ['(a)b', '\\1']}
    dry_run: true
  on_pass: allow
  on_fail: ask
  on_unanswered: deny
hook_model: some-model
case_overrides:
  Version?: 1.10
  Proceed?: yes
  Which checks?: [lint, 08]
"""


def entry(**fields: object) -> str:
    """A file with one handler, as JSON (which is YAML); line 1 holds it all."""
    return json.dumps({"handlers": [{"match": "m", "patterns": ["mcp__a__b"], **fields}]})


def test_all_fields_are_read_as_they_were_typed(read: Read) -> None:
    handlers, problems = read(FULL)
    assert not list(problems)
    assert handlers is not None
    assert handlers.hook_model == "some-model"
    assert handlers.case_overrides == {"Version?": "1.10", "Proceed?": "yes", "Which checks?": ["lint", "08"]}
    (handler,) = handlers.handlers
    assert handler.line == 2
    assert handler.patterns == ("mcp__support__refund", "Bash")
    assert handler.env_checks is not None
    assert handler.env_checks["MODE"] == {"equals": "1.10", "matches": r"^\d"}
    assert handler.input_checks is not None
    assert handler.input_checks[2] == {"field": "note", "op": "exists", "value": True}
    assert (handler.on_pass, handler.on_fail, handler.on_unanswered) == ("allow", "ask", "deny")


def test_the_mapping_of_a_task_is_plain_json_without_what_says_nothing(read: Read) -> None:
    handlers, _ = read(FULL)
    assert handlers is not None
    mapping = task_handlers(handlers, {})
    assert json.loads(json.dumps(mapping)) == mapping
    (handler,) = mapping["handlers"]
    assert handler["match"] == "Refunds above the ceiling"
    assert handler["on_fail"] == "ask"
    bare = task_handlers(Handlers((Handler("m", ("Bash",)),)), {})
    assert bare == {"handlers": [{"match": "m", "patterns": ["Bash"]}], "case_overrides": {}}


def test_an_empty_list_of_handlers_is_valid(read: Read) -> None:
    handlers, problems = read("handlers: []\n")
    assert not list(problems)
    assert handlers == Handlers((), source=handlers.source if handlers else None)


def test_keys_of_the_authors_own_may_hold_anchors(read: Read) -> None:
    handlers, problems = read(
        "x-shell: &shell [Bash]\nhandlers:\n- {match: m, patterns: *shell, input_filters: [rm]}\n"
    )
    assert handlers is not None, [str(p) for p in problems]
    assert handlers.handlers[0].patterns == ("Bash",)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", None, "must be a mapping with the key 'handlers', and is empty"),
        ("# nothing yet\n", None, "handlers: []"),
        ("- match: m\n", 1, "must be a mapping with the key 'handlers', and is a list"),
        ("handler: []\n", 1, "did you mean 'handlers'"),
        ("hook_model: m\n", 1, "has no key 'handlers'"),
        ("handlers:\n", 1, "handlers must be a list, and is empty"),
        ("handlers: {match: m}\n", 1, "handlers must be a list, and is a mapping"),
        ("handlers:\n- Bash\n", 2, "handlers[0] must be a mapping"),
        ("handlers: []\nnotes: x\n", 2, "notes is an unknown key"),
        ("handlers: []\nhook_model: 3\n", 2, "hook_model must be a text"),
        ("handlers: []\nhandlers: []\n", 2, "duplicate key"),
        ("handlers:\n- match: m\n  patterns: [Bash\n\tinput_filters: [x]\n", 4, "tab"),
        ("handlers: []\ncase_overrides: [a]\n", 2, "case_overrides must be a mapping of questions to answers"),
        ("handlers: []\ncase_overrides:\n  Q?: {a: b}\n", 3, "must be an answer or a list of answers"),
        ("handlers: []\ncase_overrides:\n  Q?: []\n", 3, "must be an answer or a list of answers"),
        (
            "handlers: []\ncase_overrides:\n  Go on?: a\n  go  ON?: b\n",
            4,
            "is the same question as 'Go on?' (line 3) with another answer",
        ),
    ],
)
def test_a_fault_of_the_file_is_an_error_with_its_line(read: Read, text: str, line: int | None, says: str) -> None:
    handlers, problems = read(text)
    assert handlers is None
    found = [p for p in problems.errors if says in str(p)]
    assert found, [str(p) for p in problems]
    assert line is None or found[0].where.line == line
    assert found[0].where.path is not None
    assert found[0].where.path.name == "tool_handlers.yaml"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"match": ""}, "handlers[0].match must not be empty"),
        ({"match": 3}, "handlers[0].match must be a text, and is a number"),
        ({"patterns": "Bash"}, "patterns must be a list of texts, and is a text; write [Bash]"),
        ({"patterns": []}, "patterns must not be an empty list"),
        ({"patterns": [""]}, "patterns[0] must not be empty"),
        ({"patterns": [7]}, "patterns[0] must be a text"),
        ({"patterns": ["Bash(git push*)"]}, "is a permission rule"),
        ({"patterns": ["Read|Write"]}, "is not the name of one tool"),
        ({"patterns": ["Read, Write"]}, "is not the name of one tool"),
        ({"input_filters": "rm"}, "input_filters must be a list of texts, and is a text"),
        ({"input_filters": [""]}, "input_filters[0] must not be empty"),
        ({"input_filters": ["jira("]}, "input_filters[0] is not valid: missing )"),
        ({"input_filters": ["x(?i)y"]}, "input_filters[0] is not valid"),
        ({"input_filters": ["[[:alpha:]]"]}, "is ambiguous"),
        ({"input_filters": ["a++b"]}, "only Python 3.11"),
        ({"input_filters": ["ok", "^(\\w+\\s?)*$"]}, "input_filters[1] takes too long to search"),
        ({"env_checks": {}}, "env_checks must be a mapping of variables to checks, and is empty"),
        ({"env_checks": None}, "env_checks must be a mapping of variables to checks, and is empty"),
        ({"env_checks": ["URL"]}, "env_checks must be a mapping"),
        ({"env_checks": {"URL": None}}, "env_checks.URL must hold one of must_contain, equals"),
        ({"env_checks": {"URL": {}}}, "env_checks.URL must hold one of"),
        ({"env_checks": {"URL": "localhost"}}, "env_checks.URL must hold one of"),
        ({"env_checks": {"URL": {"must_contain": "localhost"}}}, "must_contain must be a list of texts, and is a text"),
        ({"env_checks": {"URL": {"must_contain": []}}}, "must_contain must not be an empty list"),
        ({"env_checks": {"URL": {"must_contain": [""]}}}, "must_contain[0] must not be empty"),
        ({"env_checks": {"URL": {"must_equal": "x"}}}, "must_equal is an unknown key; did you mean 'equals'"),
        ({"env_checks": {"URL": {"equals": 1}}}, "equals must be a text, and is a number; put it in quotes"),
        ({"env_checks": {"URL": {"host_in": "localhost"}}}, "host_in must be a list of texts"),
        ({"env_checks": {"URL": {"host_in": ["http://localhost"]}}}, "must be a host alone"),
        ({"env_checks": {"URL": {"host_in": ["[::1]"]}}}, "must be a host alone"),
        ({"env_checks": {"URL": {"host_in": ["localhost:80"]}}}, "must be a host alone"),
        ({"env_checks": {"URL": {"matches": "("}}}, "matches is not valid"),
        ({"env_checks": {"MY-URL": {"equals": "x"}}}, "is not the name of an environment variable"),
        ({"input_checks": []}, "input_checks must be a list of {field, op, value}, and is empty"),
        ({"input_checks": {"field": "a"}}, "input_checks must be a list"),
        ({"input_checks": ["a < 3"]}, "input_checks[0] must be a mapping"),
        ({"input_checks": [{"op": "lt", "value": 3}]}, "input_checks[0] has no field"),
        ({"input_checks": [{"field": "a..b", "op": "lt", "value": 3}]}, "is not a dotted path"),
        ({"input_checks": [{"field": "a", "value": 3}]}, "input_checks[0] has no op"),
        ({"input_checks": [{"field": "a", "op": "lte", "value": 3}]}, "op is not known: 'lte'; did you mean 'lt"),
        ({"input_checks": [{"field": "a", "op": "lt"}]}, "has no value for 'lt'"),
        ({"input_checks": [{"field": "a", "op": "lt", "value": "$500"}]}, "value must be a number, and is a text"),
        ({"input_checks": [{"field": "a", "op": "lt", "value": 10**400}]}, "value must be a number, and is a number"),
        ({"input_checks": [{"field": "a", "op": "le", "value": True}]}, "value must be a number, and is true or false"),
        ({"input_checks": [{"field": "a", "op": "eq", "value": [1]}]}, "value must be a text, a number"),
        ({"input_checks": [{"field": "a", "op": "in", "value": "USD"}]}, "value must be a list, and is a text"),
        ({"input_checks": [{"field": "a", "op": "not_in", "value": []}]}, "value must be a list, and is empty"),
        ({"input_checks": [{"field": "a", "op": "in", "value": [{}]}]}, "value[0] must be a text, a number"),
        ({"input_checks": [{"field": "a", "op": "matches", "value": "["}]}, "value is not valid"),
        ({"input_checks": [{"field": "a", "op": "matches", "value": "(a*)*b"}]}, "value takes too long to search"),
        ({"input_checks": [{"field": "a", "op": "glob", "value": 4}]}, "value must be a text"),
        ({"input_checks": [{"field": "a", "op": "exists", "value": "no"}]}, "value must be true or false"),
        ({"input_checks": [{"field": "a", "op": "lt", "valeu": 2}]}, "valeu is an unknown key; did you mean 'value'"),
        ({"rewrite": {}}, "rewrite must be a mapping of fields to values, and is empty"),
        ({"rewrite": ["a"]}, "rewrite must be a mapping"),
        ({"rewrite": {"a": None}}, "rewrite.a has no value"),
        ({"rewrite": {"a..b": 1}}, "is not a dotted path: 'a..b'"),
        ({"patterns": ["AskUserQuestion"], "rewrite": {"a": 1}}, "that names AskUserQuestion, which is answered"),
        ({"rewrite": {"a": {"prefx": "x"}}}, "prefx is an unknown key; did you mean 'prefix'"),
        ({"rewrite": {"a": {"prefix": "x", "suffix": "y"}}}, "must hold exactly one of prefix, suffix, replace"),
        ({"rewrite": {"a": {"prefix": ""}}}, "prefix must not be empty"),
        ({"rewrite": {"a": {"suffix": 3}}}, "suffix must be a text"),
        ({"rewrite": {"a": {"replace": "x"}}}, "replace must be a list of a regex and a text"),
        ({"rewrite": {"a": {"replace": ["x"]}}}, "replace must be a list of a regex and a text"),
        ({"rewrite": {"a": {"replace": ["(", "x"]}}}, "replace[0] is not valid"),
        ({"rewrite": {"a": {"replace": ["x", "\\2"]}}}, "replace[1] does not fit the regex"),
        ({"rewrite": {"a": {"replace": ["x", 2]}}}, "replace[1] must be a text"),
        ({"on_pass": "deny"}, "on_pass must be 'none' or 'allow', and is 'deny'"),
        ({"on_fail": True}, "on_fail must be 'deny' or 'ask', and is True"),
        ({"on_unanswered": "ask"}, "on_unanswered must be 'first_option' or 'deny'"),
        ({"reason": ""}, "reason must not be empty"),
        ({"prompt": ["x"]}, "prompt must be a text, and is a list"),
        ({"prompt_file": "nope.md"}, "prompt_file does not exist"),
        ({"prompt_file": "../x.md"}, "prompt_file must not contain '..'"),
        ({"prompt_file": "/etc/passwd"}, "prompt_file must be a relative path"),
        ({"pattern": ["x"]}, "handlers[0].pattern is an unknown key; did you mean 'patterns'"),
        ({"filters": ["x"]}, "filters is an unknown key; did you mean 'input_filters'"),
        ({"requires": []}, "requires is not yet supported"),
        ({"max_calls": 1}, "max_calls is not yet supported"),
        ({"respond": {}}, "respond is not yet supported"),
        ({"after": []}, "after is not yet supported"),
    ],
    ids=str,
)  # fmt: skip
def test_a_fault_of_a_handler_is_an_error_that_names_the_entry(
    read: Read, fields: dict[str, object], says: str
) -> None:
    handlers, problems = read(entry(**fields))
    assert handlers is None
    assert any(says in str(p) and p.where.line == 1 for p in problems.errors), [str(p) for p in problems]


def test_a_handler_without_match_or_patterns_is_an_error(read: Read) -> None:
    _, problems = read("handlers:\n- match: m\n- patterns: [Bash]\n")
    said = [str(p) for p in problems.errors]
    assert any(":2: handlers[0] has no key 'patterns'" in text for text in said)
    assert any(":3: handlers[1] has no key 'match'" in text for text in said)


def test_all_faults_are_reported_at_once_each_with_its_own_line(read: Read) -> None:
    _, problems = read(
        "handlers:\n"
        "- match: one\n"
        "  patterns: Bash\n"
        "- match: two\n"
        "  patterns: [Bash]\n"
        "  input_filters:\n"
        "  - fine\n"
        "  - '('\n"
        "  env_checks:\n"
        "    URL:\n"
        "      must_contain: localhost\n"
        "  max_calls: 3\n"
        "hook_model: []\n"
    )
    assert sorted(p.where.line or 0 for p in problems.errors) == [3, 8, 11, 12, 13]


@pytest.mark.parametrize("fields", [{"prompt": None}, {"reason": None}, {"prompt_file": None}], ids=str)
def test_a_text_that_is_left_empty_counts_as_not_given(read: Read, fields: dict[str, object]) -> None:
    handlers, problems = read(entry(**fields))
    assert handlers is not None, [str(p) for p in problems]


@pytest.mark.parametrize("empty", [None, []], ids=str)
def test_no_filter_at_all_is_not_enforced_for_bash_and_not_written(read: Read, empty: object) -> None:
    handlers, problems = read(entry(patterns=["Bash"], input_filters=empty))
    assert handlers is not None, [str(p) for p in problems]
    assert not handlers.handlers[0].enforced
    assert "input_filters" not in task_handlers(handlers, {})["handlers"][0]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("mcp__jira", "catches nothing; write mcp__jira__*"),
        ("bash", "is no tool that is known here: 'bash'; did you mean 'Bash'?"),
        ("AskUserQuestions", "did you mean 'AskUserQuestion'?"),
        ("mcp__jira__.*", "is read as a name with * and ?, not as a regex"),
        ("mcp__a[1]__x", "is read as a name with * and ?, not as a regex"),
    ],
)
def test_a_pattern_that_probably_means_something_else_is_a_warning(read: Read, pattern: str, says: str) -> None:
    handlers, problems = read(entry(patterns=[pattern]))
    assert handlers is not None
    assert says in str(problems.warnings[0])
    assert problems.warnings[0].code == "odd-pattern"


@pytest.mark.parametrize("pattern", ["Bash", "mcp__bash__x", "Web*", "apply_patch", "LookUp"])
def test_a_tool_that_may_exist_is_not_warned_about(read: Read, pattern: str) -> None:
    handlers, problems = read(entry(patterns=[pattern]))
    assert handlers is not None
    assert not list(problems)


def test_a_suffix_of_white_space_is_something_to_add(read: Read) -> None:
    handlers, problems = read(entry(rewrite={"text": {"suffix": "\n"}}))
    assert handlers is not None, [str(p) for p in problems]


def test_the_text_of_a_prompt_file_follows_the_prompt(
    make_eval: MakeEval,
) -> None:
    ev = make_eval(
        handlers="handlers:\n"
        "- {match: m, patterns: [AskUserQuestion], prompt: Be brief., prompt_file: how.md}\n"
        "hook_model: mine\n"
    )
    (ev.root / "how.md").write_bytes(b"\xef\xbb\xbfTake the\r\nfirst.\n")
    handlers = handlers_of(ev, Problems())
    assert handlers is not None
    (handler,) = task_handlers(handlers, {})["handlers"]
    assert handler["prompt"] == "Be brief.\n\nTake the\nfirst."
    assert "prompt_file" not in handler
    assert handlers.hook_model == "mine"


def test_a_prompt_file_in_another_encoding_is_an_error(read: Read, tmp_path: Path) -> None:
    (tmp_path / "p.md").write_bytes("Größe".encode("latin-1"))
    handlers, problems = read(entry(prompt_file="p.md"))
    assert handlers is None
    assert "prompt_file is not encoded in UTF-8" in str(problems.errors[0])


def test_a_prompt_file_that_leads_out_of_the_project_is_an_error(read: Read, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.md"
    outside.write_text("secret")
    (tmp_path / "p.md").symlink_to(outside)
    handlers, problems = read(entry(prompt_file="p.md"))
    assert handlers is None
    assert "leads out of the project" in str(problems.errors[0])


def test_the_resolved_file_is_used_as_it_is(make_eval: MakeEval) -> None:
    ev = make_eval("inputs: {tools: [{match: WebFetch}]}\n", handlers="handlers: [{match: m, patterns: [Bash]}]\n")
    handlers = handlers_of(ev, Problems())
    assert handlers is not None
    assert handlers.source == ev.handlers_file
    assert [h.patterns for h in handlers.handlers] == [("Bash",)]


def test_without_a_resolved_file_stage_one_makes_a_handler_of_each_match(make_eval: MakeEval) -> None:
    ev = make_eval(
        "models: {hook: some-model}\n"
        "inputs:\n"
        "  tools:\n"
        "  - match: Questions by AskUserQuestion\n"
        "    prompt: From the case.\n"
        "    prompt_file: how\n"
        "  - match: anything through mcp__jira\n",
        how="More.\n",
    )
    handlers = handlers_of(ev, Problems())
    assert handlers is not None
    assert handlers.source is None
    assert handlers.hook_model == "some-model"
    assert [(h.patterns, h.line) for h in handlers.handlers] == [(("AskUserQuestion",), 6), (("mcp__jira__*",), 9)]
    assert task_handlers(handlers, {})["handlers"][0]["prompt"] == "From the case.\n\nMore."


def test_an_eval_that_says_nothing_about_tools_has_no_handlers(make_eval: MakeEval) -> None:
    assert handlers_of(make_eval(), Problems()) is None


def test_the_hook_model_of_the_eval_is_the_default(make_eval: MakeEval) -> None:
    ev = make_eval("models: {hook: of-the-eval}\n", handlers="handlers: []\n")
    assert ev.handlers_file is not None
    handlers = read_handlers(ev.handlers_file, Problems(), ev=ev)
    assert handlers is not None
    assert handlers.hook_model == "of-the-eval"


def test_a_cases_own_overrides_beat_the_evals_whatever_their_case_and_white_space() -> None:
    handlers = Handlers((), case_overrides={"Which  PLAN?": "eval", "Other?": "eval"})
    merged = task_handlers(handlers, {"which plan?": "case", "New?": ["a", "b"]})["case_overrides"]
    assert merged == {"New?": ["a", "b"], "Other?": "eval", "which plan?": "case"}
    assert list(merged) == sorted(merged)


def test_faulty_entries_are_one_error_each_and_shift_no_index(tmp_path: Path) -> None:
    (tmp_path / "eval.yaml").write_text(
        "name: e\ndataset: {path: cases}\nexecution: {prompt: p}\ninputs:\n  tools:\n"
        "  - {}\n  - x\n  - {match: WebFetch, prompt_file: gone.md}\n  - {match: WebFetch, prompt_file: cases}\n"
        "  - {match: WebFetch, prompt_file: big.md}\n  - {match: Bash}\n"
    )
    (tmp_path / "cases").mkdir()
    (tmp_path / "big.md").write_text("x" * 300_000)
    problems = Problems()
    ev = load_eval(tmp_path, problems)
    assert ev is not None
    lint(handlers_of(ev, problems), ev, problems)
    said = [str(problem).partition("eval.yaml:")[2] for problem in problems.errors]
    assert [text.partition(" ")[0] + " " + text.split(" ")[1] for text in said] == [
        "6: inputs.tools[0].match", "7: inputs.tools[1]", "8: inputs.tools[2].prompt_file",
        "9: inputs.tools[3].prompt_file", "10: inputs.tools[4].prompt_file",
    ]  # fmt: skip
    (unfiltered,) = [str(problem) for problem in problems.warnings if problem.code == "unfiltered-bash"]
    assert "eval.yaml:11: inputs.tools[5] ('Bash')" in unfiltered
