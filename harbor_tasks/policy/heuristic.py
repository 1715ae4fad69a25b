"""Stage 1: from a `match` in plain words to tool patterns (DESIGN.md, From `match` to rules).

It looks for names, it does not understand: "all but Bash" names Bash. What it made of each text is shown by `check`.
"""

from __future__ import annotations

import re

from harbor_tasks.policy.tools import BUILT_IN, WORD_TOOLS

#: Names that are no words of English: found wherever they stand as whole words in their own case.
PLAIN_TOOLS = BUILT_IN - WORD_TOOLS

_MCP = re.compile(r"(?<![A-Za-z0-9_])(\**)(mcp__[A-Za-z0-9_*?-]*)")
_NAME = re.compile(r"(?<![\w-])(?<!\w\.)(?:" + "|".join(sorted(PLAIN_TOOLS | WORD_TOOLS)) + r")(?!\w|\.\w)", re.ASCII)
#: What makes a word of a name after all: "Read-only", "the Agent's answer".
_WORD_GOES_ON = re.compile(r"[-'\N{RIGHT SINGLE QUOTATION MARK}]\w")
_JOINT = re.compile(r"[`'\"*]*\s*(?:,|/|\||&|\band/or\b|\band\b|\bor\b|,\s*and\b|,\s*or\b)\s*[`'\"*]*")
_BEFORE_TOOL = re.compile(r"[`'\"*]*\s+tools?\b", re.IGNORECASE)
_ITEM = re.compile(r"\s*(?:[-*+\N{BULLET}]|\d+[.)])?[\s`'\"*]*")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|incl|esp|cf)\.\Z", re.IGNORECASE)
_SHELL_WORD = re.compile(r"(?<![A-Za-z0-9])(?:scripts?|apis?)(?![A-Za-z0-9])", re.IGNORECASE)


def patterns_of(match: str) -> tuple[str, ...]:
    """The tool patterns that a ``match`` text names, in order of appearance; ``("*",)`` when it names none."""
    found: dict[int, str] = {}
    for token in _MCP.finditer(match):
        found[token.start()] = _mcp_pattern(token[2], opening=len(token[1]))
    rest = _MCP.sub(lambda token: " " * len(token[0]), match)
    for group in _groups(rest):
        if _mean_tools(rest, group):
            found.update((name.start(), name[0]) for name in group)
    if found:
        return tuple(dict.fromkeys(found[at] for at in sorted(found)))
    return ("Bash",) if mentions_scripts(match) else ("*",)


def mentions_scripts(match: str) -> bool:
    """Whether the text speaks of scripts or an API, which an agent reaches through Bash."""
    return _SHELL_WORD.search(match) is not None


def _mcp_pattern(token: str, *, opening: int) -> str:
    """The pattern of one ``mcp__…`` token; ``opening`` is the number of asterisks (Markdown's) right before it."""
    if opening and token.endswith("*" * opening):
        token = token[: len(token) - opening]
    token = token.rstrip("-?")
    server, separator, tool = token.removeprefix("mcp__").partition("__")
    if not server:
        return "mcp__*"
    if not separator:
        return token if server.endswith("*") else f"{token}__*"
    return token if tool else f"{token}*"


def _groups(text: str) -> list[list[re.Match[str]]]:
    """The names in the text; those joined by commas, "and" or "or" stand together, since they are used alike."""
    groups: list[list[re.Match[str]]] = []
    for name in _NAME.finditer(text):
        if name[0] in WORD_TOOLS and _WORD_GOES_ON.match(text, name.end()):
            continue
        if groups and _JOINT.fullmatch(text, groups[-1][-1].end(), name.start()):
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def _mean_tools(text: str, group: list[re.Match[str]]) -> bool:
    """Whether the text shows that these names are meant as tools and not as words."""
    first, last = group[0], group[-1]
    if _BEFORE_TOOL.match(text, last.end()) or any(name[0] in PLAIN_TOOLS for name in group):
        return True
    line_start = text.rfind("\n", 0, first.start()) + 1
    if _ITEM.fullmatch(text, line_start, first.start()) and not text[last.end() :].split("\n", 1)[0].strip(" \t.`'\"*"):
        return True  # a text or an item of a list that is nothing but names
    return any(
        text.startswith("(", name.end()) or _in_backticks(text, name) or not _starts_sentence(text, name.start())
        for name in group
    )


def _starts_sentence(text: str, at: int) -> bool:
    """Whether a sentence starts here, so that the capital letter says nothing. A colon does not end a sentence."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    if line.strip() and _ITEM.fullmatch(line):
        return True
    body = text[:at].rstrip(" \t\r\n\"'(*_")
    gap = text[len(body) : at]
    ended = body.rstrip("\"')]").endswith((".", "!", "?", "\N{HORIZONTAL ELLIPSIS}"))
    return not body or gap.count("\n") > 1 or (ended and not _ABBREVIATION.search(body[-8:]))


def _in_backticks(text: str, name: re.Match[str]) -> bool:
    """Whether the name starts a word within backticks: `Read` or `Read(docs/**)`, not `Read me`."""
    line_start = text.rfind("\n", 0, name.start()) + 1
    if text.count("`", line_start, name.start()) % 2 == 0 or "`" not in text[name.end() :].split("\n", 1)[0]:
        return False
    return text[name.start() - 1] in "`,|/ " and text[name.end()] in "`,|/("
