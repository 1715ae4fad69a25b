from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harbor_tasks.policy.regexes import regex_fault, slow_texts

FINE = [
    r"\bgit\s+push\b", r"^git\s+push\b", r"curl.*jira.*create", r"[a++]", r"a\++", r"(?i)jira", r"(?#a++)b",
    r"(?<!\w)rm\s", r"\\z", r"(?P<tool>jira|JIRA_SERVER)", r"(?:[A-Z_]+=\S*\s+)?git",
    r"(?:\w+\s+){5}push", r"(\w+,){12}", r"curl.*jira.*create.*issue.*draft", r"(\d{1,3}\.){3}\d{1,3}",
]  # fmt: skip


@pytest.mark.parametrize("regex", FINE)
def test_an_ordinary_filter_has_no_fault_and_ends(regex: str) -> None:
    assert regex_fault(regex, re.IGNORECASE) is None
    assert slow_texts([(regex, re.IGNORECASE)]) == [None]


@pytest.mark.parametrize(
    ("regex", "says"),
    [
        ("jira(", "is not valid: missing )"),
        ("a(?i)b", "is not valid: global flags not at the start"),
        ("[z-a]", "is not valid: bad character range"),
        ("(?<=a+)b", "is not valid: look-behind requires fixed-width"),
        ("[[:alpha:]]", "is ambiguous: possible nested set"),
        ("[a--b]", "is ambiguous: possible set difference"),
        ("a{99999999999}", "is too large"),
        ("a++", "only Python 3.11"),
        ("(ab){2}+", "only Python 3.11"),
        ("(?>ab)c", "only Python 3.11"),
    ],
)
def test_what_some_supported_python_refuses_or_reads_otherwise_is_a_fault(regex: str, says: str) -> None:
    fault = regex_fault(regex)
    assert fault is not None
    assert says in fault


@pytest.mark.pythons
def test_every_python_here_compiles_what_has_no_fault(pythons: tuple[Path, ...]) -> None:
    for python in pythons:
        code = f"import re, warnings; warnings.simplefilter('error'); [re.compile(r) for r in {FINE!r}]"
        subprocess.run([python, "-I", "-S", "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "regex",
    [
        "(a+)+$",
        r"^(\w+\s?)*$",
        "(x|x)*y",
        r"([^/]+/?)+\.py$",
        "(?:a?){30}a{30}",
        "(?:(?=a)a*)*b",
        r"(?:[A-Z_]+=.*\s+)*git",
        "(.*a){20}",
        "(.*?a){20}",
        "(a.*b){20}",
        r"(?:.*[ab]){22}",
        "(.*foo){20}",
        "((.*a){5}){5}",
        ".*a" * 20,
    ],
)
def test_a_search_that_explodes_is_found_with_a_text_that_shows_it(regex: str) -> None:
    (text,) = slow_texts([(regex, re.IGNORECASE)])
    assert text is not None
    assert len(text) < 5000


def test_each_regex_gets_its_own_answer() -> None:
    answers = slow_texts([("jira", 0), ("(a*)*b", 0), (r"(\s*foo\s*)+", 0), ("(a*)*b", 0)])
    assert [answer is None for answer in answers] == [True, False, True, False]


@pytest.mark.parametrize("start", ["(", "(?:", "(?=", "(?P<x{}>"])
def test_groups_may_nest_fifty_deep(start: str) -> None:
    def nested(depth: int) -> str:
        return "".join(start.format(at) for at in range(depth)) + "(a|b)+[(]" + ")" * depth

    assert regex_fault(nested(49)) is None
    assert slow_texts([(nested(49), 0)]) == [None]
    assert regex_fault(nested(50)) == "nests more than 50 groups"
    assert regex_fault("(a)" * 99) is None


def test_no_regex_takes_no_time() -> None:
    assert slow_texts([]) == []
