"""Times regexes against texts that make backtracking run wild. Run as a script of its own: a regex cannot be stopped
from another thread, but a process can.

stdin: JSON, a list of ``[regex, flags]`` that compile. stdout: one JSON line per regex, in order: null, or the text
(at most `LONGEST` characters) on which a search took longer than `LIMIT_SECONDS`. A regex without a line hung.

The texts are built from the regex's own parse tree: for each repeat in it, a way to it, many rounds of what it repeats,
and an end that cannot match; and texts that match but for their last character, with filling wherever a repeat may take
some. On so few characters only exponential searches, or powers above the third, are slow.
"""

from __future__ import annotations

import importlib
import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

LIMIT_SECONDS = 0.5  # both in CPU time, so that a busy machine judges as an idle one does
BUDGET_SECONDS = 1.5
LONGEST = 300
LONGEST_NEAR_MISS = 2000
_ROUNDS = (12, 30, LONGEST)
_ENDS = ("", "!", "\n", "\x01")
_MANY = 4  # a repeat of fewer rounds cannot explode by itself
_MAX_PUMPS = 24
_GAP = ""
"""In the pieces of a near miss: where filling goes."""
_FILLERS = ("b", "0", " ", "-", "/")


class _TooSlowError(Exception):
    pass


def slow_text(regex: str, flags: int) -> str | None:
    """A text on which this regex searches longer than the limit, or None; only in a process's main thread."""
    compiled = re.compile(regex, flags)
    deadline = time.process_time() + BUDGET_SECONDS
    for text in attack_texts(regex, flags):
        if time.process_time() > deadline:
            break
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_SECONDS)
        try:
            compiled.search(text)
        except _TooSlowError:
            return text
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


def attack_texts(regex: str, flags: int) -> Iterator[str]:
    """Texts that are likely to make a search with this regex slow, short ones first."""
    tree = importlib.import_module("re._parser").parse(regex, flags)
    literals = "".join(dict.fromkeys(_literals(tree)))[:8]
    places = [("", 0, []), *_repeats(tree, "")]
    yield from _near_misses(tree)
    for before, least, body in places:
        if least > _MANY:
            for pump in _examples(body):
                yield from (before[:LONGEST] + (pump * (least - 1))[:LONGEST] + end for end in _ENDS)
    for rounds in _ROUNDS:
        for before, _least, body in places:
            pumps = dict.fromkeys([*_examples(body), *literals, "a", "0", " "])
            for pump in list(pumps)[:_MAX_PUMPS]:
                if pump:
                    for end in _ENDS:
                        yield before[:LONGEST] + (pump * rounds)[:LONGEST] + end


def _near_misses(tree: Any) -> Iterator[str]:
    """Texts that match but for their last character, filled up wherever a repeat could take what fills it.

    `(.*a){20}` on nineteen `a` far from each other tries each share of them among the repeats.
    """
    pieces = _pieces(tree)
    last = max((at for at, piece in enumerate(pieces) if piece != _GAP), default=None)
    gaps = pieces.count(_GAP)
    if last is None or gaps < _MANY:
        return
    del pieces[last]
    room = max(1, (LONGEST_NEAR_MISS - sum(map(len, pieces))) // gaps)
    for filler in _FILLERS:
        yield "".join(filler * room if piece == _GAP else piece for piece in pieces)[: 2 * LONGEST_NEAR_MISS]


def _pieces(items: Any) -> list[str]:
    """The shortest text that these items match, in pieces, with a gap for each repeat that may take more."""
    found: list[str] = []
    for op, value in items:
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, body = value
            inner = _pieces(body)
            found += inner * min(least, LONGEST) if len(inner) * least <= LONGEST_NEAR_MISS else inner
            if most > LONGEST and len(inner) == 1:
                found.append(_GAP)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            found += _pieces(_bodies(name, value)[0])
        elif name == "BRANCH":
            found += sorted((_pieces(branch) for branch in value[1]), key=len)[0]
        else:
            found += [text for text in _examples_of(name, value)[:1] if text]
        if len(found) > LONGEST_NEAR_MISS:
            break
    return found


def example_texts(regex: str, flags: int = 0) -> list[str]:
    """A few texts in which the regex is found, as far as they can be told from its parse tree."""
    tree = importlib.import_module("re._parser").parse(regex, flags)
    return [text for text in _examples(tree) if re.search(regex, text, flags)]


def branch_texts(regex: str, flags: int = 0) -> list[str]:
    """For each alternative in the regex, wherever it stands, the shortest text that is found by it."""
    tree = importlib.import_module("re._parser").parse(regex, flags)
    found = dict.fromkeys(text for variant in _variants(list(tree)) for text in _examples(variant)[:2])
    return [text for text in found if re.search(regex, text, flags)]


def _variants(items: list[Any]) -> Iterator[list[Any]]:
    """The items as they are, and with each alternative alone."""
    yield items
    for at, (op, value) in enumerate(items):
        name = str(op)
        if name == "BRANCH":
            inner = [variant for branch in value[1] for variant in _variants(list(branch))]
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            inner = list(_variants(list(_bodies(name, value)[0])))[1:]
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            inner = list(_variants(list(value[2])))[1:]
        else:
            continue
        yield from ([*items[:at], *variant, *items[at + 1 :]] for variant in inner)


def _repeats(items: Any, before: str) -> Iterator[tuple[str, int, Any]]:
    """Every repeat of many rounds in the tree: an example of what stands before it, its least rounds, and its body."""
    for op, value in items:
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            if value[1] >= _MANY:
                yield before, value[0], value[2]
            yield from _repeats(value[2], before)
        elif name == "BRANCH":
            for branch in value[1]:
                yield from _repeats(branch, before)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT", "GROUPREF_EXISTS"):
            for body in _bodies(name, value):
                yield from _repeats(body, before)
        before += next(iter(_examples([(op, value)])), "")


def _bodies(name: str, value: Any) -> list[Any]:
    """The parts within a group."""
    if name == "SUBPATTERN":
        return [value[3]]
    if name == "GROUPREF_EXISTS":
        return [part for part in value[1:] if part is not None]
    return [value] if name == "ATOMIC_GROUP" else [value[1]]


def _examples(items: Any) -> list[str]:
    """A few texts that these items match, taking alternatives and characters of classes in turn."""
    texts = [""]
    for op, value in items:
        more = _examples_of(str(op), value)
        texts = [(text + one)[:LONGEST] for text in texts for one in more][:8]
    return list(dict.fromkeys(texts))


def _examples_of(name: str, value: Any) -> list[str]:
    """A few texts that one item matches; an empty one for what matches a place (`^`, a look ahead)."""
    found = [""]
    if name == "LITERAL":
        found = [chr(value)]
    elif name in ("NOT_LITERAL", "ANY"):
        found = ["b" if value == ord("a") else "a"]
    elif name == "IN":
        found = _class_members(value)
    elif name == "BRANCH":
        found = [text for branch in value[1] for text in _examples(branch)[:2]][:8]
    elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        found = [text * max(1, min(value[0], 8)) for text in _examples(value[2])]
    elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
        found = _examples(_bodies(name, value)[0])
    return found


def _class_members(value: Any) -> list[str]:
    """Some members of a character class; of a negated one, some that it leaves in."""
    words = {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}
    found: list[str] = []
    for op, item in value:
        if str(op) == "LITERAL":
            found.append(chr(item))
        elif str(op) == "RANGE":
            found.append(chr(item[0]))
        elif str(op) == "CATEGORY":
            found.append(words.get(str(item), "-"))
    if value and str(value[0][0]) == "NEGATE":
        return [ch for ch in "a0 -" if ch not in found][:2] or ["~"]
    return found[:4] or ["a"]


def _literals(items: Any) -> Iterator[str]:
    """The single characters that the regex names anywhere."""
    for op, value in items:
        name = str(op)
        if name == "LITERAL":
            yield chr(value)
        elif name == "IN":
            yield from (chr(item) for kind, item in value if str(kind) == "LITERAL")
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield from _literals(value[2])
        elif name == "BRANCH":
            for branch in value[1]:
                yield from _literals(branch)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT", "GROUPREF_EXISTS"):
            for body in _bodies(name, value):
                yield from _literals(body)


def _stop(_signal: int, _frame: object) -> None:
    raise _TooSlowError


def main() -> None:
    """Read the regexes from stdin, print a line for each."""
    signal.signal(signal.SIGVTALRM, _stop)
    for regex, flags in json.load(sys.stdin):
        print(json.dumps(slow_text(regex, flags)), flush=True)


if __name__ == "__main__":
    main()
