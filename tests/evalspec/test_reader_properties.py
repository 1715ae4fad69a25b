"""Properties of the reader: it reads back what was written, and no input whatever gives a traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import parse_yaml

FEW = settings(max_examples=120, deadline=None, derandomize=True)
FILE = Path("some.yaml")

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
plain_data = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)
# Pieces of YAML in any order: far likelier than random bytes to reach the odd corners of a parser.
pieces = st.lists(
    st.sampled_from(
        [
            "a",
            ": ",
            "- ",
            "\n",
            "  ",
            "{",
            "}",
            "[",
            "]",
            ",",
            "&x ",
            "*x",
            "<<: ",
            "!!int ",
            "? ",
            "|\n",
            ">\n",
            "'",
            '"',
            "#",
            "---\n",
            "...\n",
            "%",
            "\t",
            "é",
            "\u2028",
            "1",
            "true",
            "!t ",
            "@",
            "\\",
            "\r\n",
            "\x85",
        ]
    )
).map("".join)


@FEW
@given(plain_data, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_what_json_writes_is_read_back(data: Any, indent: int | str | None, ascii_only: bool) -> None:
    problems = Problems()
    document = parse_yaml(json.dumps(data, indent=indent, ensure_ascii=ascii_only), FILE, problems)
    assert document is not None, list(map(str, problems))
    assert repr(document.data) == repr(data)
    assert document.line("anything", 0) in (1, 2, None)


@FEW
@given(plain_data, st.booleans(), st.booleans())
def test_what_pyyaml_writes_is_read_back(data: Any, unicode: bool, flow: bool) -> None:
    # PyYAML takes 1e5 for a text, and breaks lines at characters that are no line breaks in YAML 1.2 and JSON.
    assume(not re.search("[0-9][eE]|[\x85\u2028\u2029\ufeff]", json.dumps(data, ensure_ascii=False)))
    text = yaml.safe_dump(data, allow_unicode=unicode, default_flow_style=flow, sort_keys=False)
    problems = Problems()
    document = parse_yaml(text, FILE, problems)
    assert document is not None, list(map(str, problems))
    assert repr(document.data) == repr(data)


@FEW
@given(st.binary() | st.text() | pieces, st.booleans())
def test_any_input_gives_a_document_or_a_problem(content: bytes | str, texts: bool) -> None:
    problems = Problems()
    document = parse_yaml(content, FILE, problems, texts=texts)
    assert document is not None or problems.errors
    assert all(str(problem).startswith("some.yaml") for problem in problems)
    if document is not None and texts:
        assert not _typed(document.data)


def _typed(node: Any) -> bool:
    if isinstance(node, dict):
        return any(map(_typed, node.values()))
    if isinstance(node, list):
        return any(map(_typed, node))
    return node is not None and not isinstance(node, str)
