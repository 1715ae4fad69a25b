"""Answers that are added to answers.yaml: what the author has there stays, and what is added reads back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.answers_file import can_be_key, own_answers, quoted, with_answers
from harbor_tasks.evalspec.reader import parse_yaml

ANSWERS: dict[str, str | list[str]] = {
    "Which version?": "1.10", "Overwrite?": "yes", "Off?": "off", "Nothing?": "null", "Tilde?": "~", "Octal?": "0o17",
    "Time?": "1:30", "Date?": "2026-01-01", "Comma?": "Yes, now", "Colon: here?": "a: b", "Hash?": "a # b",
    "Lines?": "one\ntwo\n\n  three\n", "Quote?": '"q" and \'p\'', "Back?": "a\\nb", "Dash?": "- a", "Star?": "*a &b !c",
    "Braces?": "{a: b}", "Percent?": "%YAML 1.2", "Doc?": "---", "End?": "...", "Umlaut Größe?": "Ärger ß",
    "Emoji?": "\U0001f600 ok", "Separators?": "a\u2028b\u2029c\x85d", "Control?": "a\tb\x1b[0m\x7f", "BOM?": "\ufeffx",
    "Spaces?": "  a  ", "Empty?": "", "Many?": ["a", "b, c", "1.10", "yes"], "One of many?": ["Yes, now"],
    "? mark": "x", "- dash": "x", "<<": "merge", "*alias": "x", "key: with: colons": "x", "# hash": "x", "true": "x",
    "1": "x", "Line\nends?": "x", "  Spaces  ": "x", "Q" * 3000 + "?": "long", "ß" * 880: "near the limit",
    "Ends with a comma, ": "a,", "@at": "@at", "`tick`": "`t`",
}  # fmt: skip
FILES = {
    "none": "", "comments": "# only\n# comments\n",
    "a block": "# top\nA?: 1.10   # as typed\nB?: [x, 'y, z']\n\n# end\n",
    "no line end": "A?: x", "a comment without a line end": "A?: x # c", "CRLF": "A?: x\r\nB?: y\r\n",
    "BOM": "\ufeffA?: x\n", "a block scalar": "A?: |\n  one\n   two\n", "kept line ends": "A?: |+\n  one\n\n\n",
    "a folded scalar without a line end": "A?: >-\n  one\n  two", "a start mark": "---\nA?: x\n",
    "nested": "A?: x\ncase_overrides:\n  B?: y\n  C?: [p, q]\n",
    "numbers": "A?: 007\nB?: 1_000\nC?: 0x1F\nD?: 1e3\nE?: yes\n",
    "an anchor": "A?: &a one\nB?: *a\n", "empty values": "A?:\nB?: ''\nC?: ~\n",
    "tabs and spaces": "A?:    x\t\nB?:\ty\n",
    "indented": "  A?: x\n  B?: y\n", "an empty mapping": "{}\n",
    "an end mark": "A?: x\n...\n", "a flow mapping": "{A?: x, B?: 'y, z'}  # c\n",
    "JSON": '{"A?": "1.10", "B?": ["x", "y"]}\n', "no line end in a block scalar": "A?: |\n  one",
}  # fmt: skip


def read(content: bytes) -> Any:
    problems = Problems()
    document = parse_yaml(content, Path("answers.yaml"), problems, texts=True)
    assert document is not None
    assert not problems.errors
    return document.data or {}


ANEW = {"indented", "an empty mapping", "an end mark", "a flow mapping", "JSON", "no line end in a block scalar"}
"""Where nothing can be put at the end: the file is written anew, comments and form as they were as far as may be."""


@pytest.mark.parametrize("kind", FILES)
def test_all_kinds_of_answers_read_back_in_all_kinds_of_files(kind: str) -> None:
    text = FILES[kind]
    made = with_answers(text.encode(), ANSWERS, "by a\ntest: # x")
    assert made is not None
    assert read(made) == {**read(text.encode()), **ANSWERS}
    assert made.startswith(text.encode()) == (kind not in ANEW), "the author's part stays byte for byte"
    for word in ("only", "as typed", "top", "# end", "# c"):
        assert (word in made.decode()) == (word in text)
    assert ("\r\n" in made.decode()) == ("\r\n" in text)
    assert with_answers(made, {"New?": "x"}, "again") is not None


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_a_short_answer_can_be_read_by_a_person(text: str) -> None:
    made = with_answers(text.encode(), {"Overwrite the file?": "Yes, now"}, "frozen")
    assert made is not None
    assert '"Overwrite the file?": "Yes, now"' in made.decode()


def test_other_readers_of_yaml_read_texts_too() -> None:
    """The project's own reader takes `yes` as it is typed; those that do not must not be misled."""
    plain = {question: answer for question, answer in ANSWERS.items() if len(question) < 200}
    made = with_answers(b"", plain, "frozen")
    assert made is not None
    assert yaml.safe_load(made.decode()) == plain


@pytest.mark.parametrize("text", ["A?: \ud800\n".encode("utf-8", "surrogatepass"), b"A?: x\nA?: y\n", b"- a\n", b"x\n",
                                  b"A?: [x\n", b"A?: x\n---\nB?: y\n", b"\xff"])  # fmt: skip
def test_a_file_that_cannot_be_read_is_left_alone(text: bytes) -> None:
    assert with_answers(text, {"Q?": "a"}, "c") is None


@pytest.mark.parametrize("answers", [{"Q?": "\ud800"}, {"\udfff?": "a"}, {"Q?": ["a", "\ud83d"]}])
def test_what_is_no_text_is_not_written(answers: dict[str, Any]) -> None:
    assert with_answers(b"A?: x\n", answers, "c") is None


def test_which_questions_can_be_keys() -> None:
    assert [can_be_key(q) for q in ("Q?", "yes", "  ", "", "case_overrides", "\ud800", "Case_Overrides")] == [
        True, True, False, False, False, False, True,
    ]  # fmt: skip


def test_the_authors_own_answers_are_found_however_they_are_written() -> None:
    data = read(b"Which  ONE?: a\nnotes:\n  x: y\nempty:\ncase_overrides:\n  Two?: [a]\n  which one?: b\n")
    assert own_answers(data) == {"which one?": "b", "notes": {"x": "y"}, "empty": "", "two?": ["a"]}
    odd: tuple[object, ...] = (None, "", [], "x", {"case_overrides": "z"})
    assert list(map(own_answers, odd)) == [{}] * 5


def test_quoted_is_json_but_for_what_readers_of_yaml_refuse() -> None:
    assert quoted("a\u2028\ufeff\x7f\U0001f600") == '"a\\u2028\\ufeff\\u007f\U0001f600"'
    assert json.loads(quoted("a\u2028\x85")) == "a\u2028\x85"
