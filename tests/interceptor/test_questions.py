"""Questions to the user: answered by overrides, then the model, then a guess that is said and logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Decide, Hook

Ask = Callable[..., dict[str, Any]]
HANDLER: dict[str, Any] = {"match": "Questions", "patterns": ["AskUserQuestion"], "prompt": "p"}
STRICT = {**HANDLER, "on_unanswered": "deny"}


@pytest.fixture
def answers(decide: Decide) -> Callable[..., Any]:
    """The answers that overrides give to questions; the reason of the deny when there is one."""

    def run(overrides: dict[str, Any], *questions: dict[str, Any], handler: dict[str, Any] = HANDLER) -> Any:
        result = decide([handler], "AskUserQuestion", {"questions": list(questions)}, overrides=overrides)
        return result["updated"]["answers"] if result["decision"] == "answer" else result["reason"]

    return run


def test_an_override_answers_with_the_label_as_the_tool_wrote_it(answers: Ask, question: Ask) -> None:
    q = question("  Which  PLAN? ", "Keep data", "Wipe\tDATA")
    for key in ("which plan?", "Which plan?", " WHICH\nPLAN? "):
        assert answers({key: "wipe data"}, q) == {"  Which  PLAN? ": "Wipe\tDATA"}
        assert answers({key: " KEEP   data"}, q) == {"  Which  PLAN? ": "Keep data"}
    assert answers({"Which plan": "Wipe data"}, q) == {"  Which  PLAN? ": "Keep data"}, (
        "nothing else is folded: a guess"
    )
    assert answers({"Which plan?": ["wipe data"]}, q) == {"  Which  PLAN? ": "Wipe\tDATA"}


def test_folding_covers_more_than_ascii(answers: Ask, question: Ask) -> None:
    assert answers({"STRASSE?": "ÄRGER"}, question("straße?", "Freude", "Ärger")) == {"straße?": "Ärger"}


def test_an_exact_label_wins_over_one_that_folds_to_it(answers: Ask, question: Ask) -> None:
    assert answers({"Q?": "yes"}, question("Q?", "YES", "yes")) == {"Q?": "yes"}


def test_an_override_that_is_no_option_goes_out_as_free_text_and_is_logged_so(decide: Decide, question: Ask) -> None:
    overrides = {"Name?": "1.10, or so", "Plan?": "Keep"}
    given = {
        "questions": [question("Name?", "A", "B"), question("Plan?", "Keep"), question("Open?")],
        "extra": {"k": 1},
    }
    result = decide([HANDLER], "AskUserQuestion", given, overrides=overrides)
    assert result["updated"] == {**given, "answers": {"Name?": "1.10, or so", "Plan?": "Keep", "Open?": "yes"}}
    assert [(a["tier"], a["free_text"]) for a in result["answers"]] == [
        ("override", True), ("override", False), ("guessed", True),
    ]  # fmt: skip
    assert result["tier"] == "guessed"


def test_several_labels_are_joined_or_a_list_when_one_has_a_comma(answers: Ask, question: Ask) -> None:
    plain = question("Checks?", "lint", "types", "unit tests", multiSelect=True)
    for value in (["LINT", "unit  tests"], "lint, unit tests", "Lint,Unit Tests", "lint,, unit tests,"):
        assert answers({"Checks?": value}, plain) == {"Checks?": "lint, unit tests"}
    assert answers({"Checks?": "types"}, plain) == {"Checks?": "types"}
    commas = question("Next?", "Yes, now", "Yes", "now", "Tell me", multiSelect=True)
    assert answers({"Next?": ["yes, now", "Tell me"]}, commas) == {"Next?": ["Yes, now", "Tell me"]}
    assert answers({"Next?": "Yes, now"}, commas) == {"Next?": ["Yes, now"]}, "the text is itself a label"
    assert answers({"Next?": "now, yes"}, commas) == {"Next?": "now, Yes"}
    assert answers({"Next?": ["Tell me"]}, commas) == {"Next?": "Tell me"}
    assert answers({"Next?": "Neither, really"}, commas) == {"Next?": "Neither, really"}
    assert answers({"Next?": ["Tell me", "later"]}, commas) == {"Next?": "Tell me, later"}


def test_one_choice_takes_one_answer(answers: Ask, question: Ask) -> None:
    assert "Plan?" in answers({"Plan?": ["a", "b"]}, question("Plan?", "a", "b"))
    assert answers({"Plan?": "a, b"}, question("Plan?", "a", "b")) == {"Plan?": "a, b"}, "a free text"


@pytest.mark.parametrize("value", ["", " ", [], [""]])
def test_a_blank_override_answers_nothing(value: Any, answers: Ask, question: Ask) -> None:
    assert answers({"Plan?": value}, question("Plan?", "a")) == {"Plan?": "a"}
    assert "'Plan?'" in answers({"Plan?": value}, question("Plan?", "a"), handler=STRICT)


def test_options_may_be_plain_texts_or_missing(answers: Ask) -> None:
    assert answers({"A?": "two"}, {"question": "A?", "options": ["One", "Two"]}) == {"A?": "Two"}
    shapes: list[dict[str, Any]] = [{}, {"options": []}, {"options": None}]
    for options in shapes:
        assert answers({}, {"question": "A?", **options}) == {"A?": "yes"}
        assert answers({"A?": "No"}, {"question": "A?", **options}) == {"A?": "No"}


def test_the_same_question_twice_gets_an_answer_that_is_an_option_of_both(answers: Ask, question: Ask) -> None:
    first, second = question("Same?", "a", "b"), question("Same?", "B", "c")
    assert answers({"Same?": "b"}, first, second) == {"Same?": "b"}
    assert answers({}, first, second) == {"Same?": "b"}
    for value in ("a", "c", "other"):
        assert "Same?" in answers({"Same?": value}, first, second)
    assert "Same?" in answers({"Same?": "x"}, question("Same?", "a"), question("Same?", "c"))
    assert "Same?" in answers({"Same?": "a"}, question("Same?", "a"), question("Same?"))
    assert answers({"Same?": "free"}, first, question("Same?", "B", "A")) == {"Same?": "free"}, "the same options"
    three = [question("Same?", *labels) for labels in ("abc", "bc", "cd")]
    assert answers({}, *three) == {"Same?": "c"}


def test_an_unanswered_question_is_guessed_and_said_or_denied_by_name(hook: Hook, question: Ask) -> None:
    hook.write(HANDLER)
    done = hook.ask(question("Overwrite?", "Cancel", "Overwrite"), question("Sure?"))
    assert done.answers == {"Overwrite?": "Cancel", "Sure?": "yes"}
    for said in ("fallback", "'Overwrite?'", "'Cancel'", "'Sure?'", "'yes'"):
        assert said in done.stderr
    [line] = done.log
    assert (line["decision"], line["tier"], line["answers"][0]["tier"]) == ("answer", "guessed", "guessed")
    denied = hook.write(STRICT, case_overrides={"Sure?": "no"}).ask(question("Sure?"), question("Overwrite?", "Cancel"))
    assert denied.decision == "deny"
    assert "Overwrite?" in denied.reason


def test_questions_go_back_unchanged_with_all_other_fields(hook: Hook, question: Ask) -> None:
    hook.write(HANDLER, case_overrides={"Größe?": "Hoch"})
    hook.env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    questions = [question("Größe?", "Tief", "Hoch", odd=[1, {"a": None}]), question("\u202e\U0001f600?", "a")]
    done = hook.call("AskUserQuestion", {"questions": questions, "metadata": {"source": "x"}, "answers": {"old": "y"}})
    assert done.updated == {
        "questions": questions, "metadata": {"source": "x"}, "answers": {"Größe?": "Hoch", "\u202e\U0001f600?": "a"},
    }  # fmt: skip


@pytest.mark.parametrize("patterns", [["*"], ["Ask*"], ["AskUserQuestio?"], ["*Question*", "Bash"]])
def test_a_mere_glob_denies_a_question(patterns: list[str], decide: Decide, question: Ask) -> None:
    given = {"questions": [question("A?", "a")]}
    for handler in ({"match": "m", "patterns": patterns}, {**HANDLER, "patterns": patterns, "on_pass": "allow"}):
        assert decide([handler], "AskUserQuestion", given, overrides={"A?": "a"})["decision"] == "deny"
    named = {**HANDLER, "patterns": ["AskUserQuestion", *patterns]}
    assert decide([named], "AskUserQuestion", given)["decision"] == "answer"


def test_without_a_handler_or_with_an_earlier_one_that_handler_decides(decide: Decide, question: Ask) -> None:
    given = {"questions": [question("A?", "a")]}
    assert decide([], "AskUserQuestion", given, overrides={"A?": "a"})["decision"] == "none"
    assert decide([{"match": "m", "patterns": ["*"]}, HANDLER], "AskUserQuestion", given)["decision"] == "deny"


def test_checks_of_a_handler_come_before_its_answers(decide: Decide, question: Ask) -> None:
    given = {"questions": [question("A?", "a")]}
    gated = {**HANDLER, "env_checks": {"MODE": {"equals": "x"}}}
    assert decide([gated], "AskUserQuestion", given)["decision"] == "deny"
    assert decide([gated], "AskUserQuestion", given, env={"MODE": "x"})["decision"] == "answer"
    counted = {**HANDLER, "input_checks": [{"field": "questions.1", "op": "exists", "value": False}]}
    assert decide([counted], "AskUserQuestion", given)["decision"] == "answer"
    assert decide([counted], "AskUserQuestion", {"questions": [*given["questions"]] * 2})["decision"] == "deny"


WRONG: list[Any] = [
    {}, {"questions": []}, {"questions": None}, {"questions": {}}, {"questions": "A?"}, {"questions": [None]},
    {"questions": ["A?"]}, {"questions": [{}]}, {"questions": [{"question": ""}]}, {"questions": [{"question": 5}]},
    {"questions": [{"question": "A?", "options": "ab"}]}, {"questions": [{"question": "A?", "options": {"a": 1}}]},
    {"questions": [{"question": "A?", "options": [5]}]},
    {"questions": [{"question": "A?", "options": [{"label": None}]}]},
    {"questions": [{"question": "A?", "options": [{}]}]}, {"questions": [{"question": "A?", "options": [" "]}]},
    {"questions": [{"question": "A?", "options": [["a"]]}]}, {"questions": [{"question": ["A?"]}]},
]  # fmt: skip


@pytest.mark.parametrize("given", WRONG)
def test_questions_of_another_shape_are_denied(given: Any, decide: Decide) -> None:
    assert decide([HANDLER], "AskUserQuestion", given, overrides={"A?": "a"})["decision"] == "deny"


def test_a_label_that_an_override_names_twice_is_picked_once(hook: Hook, question: Ask) -> None:
    hook.write(HANDLER, case_overrides={"Checks?": ["lint", "LINT", "types"]})
    asked = question("Checks?", "lint", "types", multiSelect=True)
    assert hook.ask(asked).answers == {"Checks?": "lint, types"}
