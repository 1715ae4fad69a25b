"""Adds answers to a case's answers.yaml: what the author wrote there stays, comments and form included.

New entries are put at the end, as they are in a file that a person goes on with; only where the file's form does not
allow it (a mapping in braces, an end mark) it is written anew. Either way the result is read back before it is used.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.fields import folded
from harbor_tasks.evalspec.reader import parse_yaml

Answer = str | list[str]
Answers = Mapping[str, Answer]

_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON leaves as they are, but readers of YAML take for line ends or refuse."""
_LONGEST_KEY = 900
"""Characters of a key that stands on one line with its value; YAML allows 1024, escapes included."""
_NOT_A_QUESTION = "case_overrides"


def own_answers(data: object) -> dict[str, object]:
    """Question, white space and case folded -> what the author has for it: at the top level, or in `case_overrides`."""
    if not isinstance(data, dict):
        return {}
    own = data.get(_NOT_A_QUESTION)
    both = {
        **{key: value for key, value in data.items() if key != _NOT_A_QUESTION},
        **(own if isinstance(own, dict) else {}),
    }
    return {folded(question): answer for question, answer in both.items()}


def answer_key(answer: Answer) -> str | tuple[str, ...]:
    """Equal for answers that are one: white space and case folded, and labels joined by commas or as a list alike.

    Not where a label has a comma itself: then only a list says which labels they are, and their order says nothing.
    """
    labels = [answer] if isinstance(answer, str) else answer
    if len(labels) > 1 and any("," in label for label in labels):
        return tuple(sorted(map(folded, labels)))
    return ", ".join(map(folded, labels))


def is_answer(own: object, answer: Answer) -> bool:
    """Whether what the author has for a question is this answer: as text, or as a list of the labels in any order."""
    if isinstance(own, list) and all(isinstance(label, str) for label in own):
        mine: Answer = own
    elif isinstance(own, str):
        mine = own
    else:
        return False
    listed = isinstance(mine, list) or isinstance(answer, list)
    return answer_key(mine) == answer_key(answer) or (listed and _labels(mine) == _labels(answer))


def _labels(answer: Answer) -> list[str]:
    return sorted(map(folded, answer if isinstance(answer, list) else answer.split(",")))


def can_be_key(question: str) -> bool:
    """Whether a question can stand in answers.yaml: it has a text, is none of the file's own words, and is UTF-8."""
    return bool(question.strip()) and question != _NOT_A_QUESTION and _is_text(question)


def with_answers(content: bytes, answers: Answers, comment: str) -> bytes | None:
    """The content of the file with these answers, below a comment; None when it could not be read back as it must.

    The file is read as always: every scalar is its source text. ``answers`` are none that it has already.
    """
    old = _read(content)
    if old is None or not all(map(_is_text, _texts(answers))):
        return None
    wanted = {**old, **answers}
    for made in (_appended(content, answers, comment), _written_anew(content, answers, comment)):
        if made is not None and _read(made) == wanted and list(_read(made) or {}) == list(wanted):
            return made
    return None


def _appended(content: bytes, answers: Answers, comment: str) -> bytes:
    text = content.decode("utf-8")
    end = "\r\n" if "\r\n" in text else "\n"
    start = "" if not text or text.endswith("\n") else end
    lines = [f"# {' '.join(comment.split())}"]
    for question, answer in answers.items():
        key = quoted(question)
        lines += [f"{key}: {quoted(answer)}"] if len(key) < _LONGEST_KEY else [f"? {key}", f": {quoted(answer)}"]
    return (text + start + end.join(lines) + end).encode()


def _written_anew(content: bytes, answers: Answers, comment: str) -> bytes | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedSeq
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Quoted

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.allow_unicode = True
    yaml.width = 1 << 20  # nothing is folded anew
    try:
        data = yaml.load(content.decode("utf-8-sig"))
        for question, answer in answers.items():
            many = CommentedSeq(map(Quoted, answer)) if isinstance(answer, list) else None
            if many is not None:
                many.fa.set_flow_style()
            data[Quoted(question)] = Quoted(answer) if isinstance(answer, str) else many
        if not data.fa.flow_style():
            data.yaml_set_comment_before_after_key(next(iter(answers)), before=" ".join(comment.split()))
        out = io.StringIO()
        yaml.dump(data, out)
    except (YAMLError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    return out.getvalue().encode("utf-8", "surrogatepass")


def quoted(value: Answer) -> str:
    """A text in double quotes, or a list of such, on one line: any reader of YAML reads that text, and no number."""
    if isinstance(value, list):
        return f"[{', '.join(map(quoted, value))}]"
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _read(content: bytes) -> dict[str, object] | None:
    """The file as texts; None when it has a fault, or is not a mapping."""
    problems = Problems()
    document = parse_yaml(content, Path("answers.yaml"), problems, texts=True)
    if document is None or problems.errors:
        return None
    data = document.data
    if data in (None, ""):
        return {}
    return data if isinstance(data, dict) else None


def _texts(answers: Answers) -> list[str]:
    return [text for q, answer in answers.items() for text in (q, *([answer] if isinstance(answer, str) else answer))]


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
