"""What PyYAML's syntax errors mean, in an author's words."""

from __future__ import annotations

import yaml

UNCLOSED = "a quoted text is not closed"
NO_COLON = "a key has no ':' after it"
AT_START = (UNCLOSED, NO_COLON)  # found out far below: the start is the place to look
QUOTE = "quote the text"
INDENT = "check the indentation"
ESCAPE = "use single quotes, or write \\\\"

# What the parser says → what is wrong, what to do. C and Python parser word some of them differently.
_WORDS: tuple[tuple[str, str, str], ...] = (
    ("mapping values are not allowed", "a ': ' stands inside an unquoted text, or a key is indented too far", QUOTE),
    ("could not find expected ':'", NO_COLON, "write 'key: value', or indent the line"),
    ("cannot start any token", "a text starts with '@', '`' or '%', or tabs indent a line", "quote it; use spaces"),
    ("found unexpected end of stream", UNCLOSED, "add the closing quote"),
    ("found unexpected document indicator", UNCLOSED, "add the closing quote"),
    ("found unknown escape character", "a text in double quotes holds a \\ that starts no escape", ESCAPE),
    ("invalid unicode character escape", "an escape in double quotes names no character", ESCAPE),
    ("invalid unicode escape", "an escape in double quotes names no character", ESCAPE),
    ("did not find expected hexdecimal number", "an escape in double quotes names no character", ESCAPE),
    ("expected ',' or ']'", "a list in [ ] is not closed, or a comma is missing", "add ',' or ']'"),
    ("expected ',' or '}'", "a mapping in { } is not closed, or a comma is missing", "add ',' or '}'"),
    ("expected '-' indicator", "a list item is expected here, or the line is not indented as the list is", INDENT),
    ("expected <block end>", "the line is not indented as the lines above it are", INDENT),
    ("expected key", "the line is not indented as the keys above it are", INDENT),
    ("expected <document start>", "something stands after the end of the data", "remove it"),
    ("block sequence entries are not allowed", "a list cannot start on this line", "put '- ' on the next line"),
    ("expected alphabetic or numeric", "an unquoted text starts with '*' or '&'", QUOTE),
    ("found a tab", "a tab is used for indentation", "indent with spaces"),
    ("expected a comment or a line break", "text stands after '|' or '>'", "put it on the next line"),
    ("block scalar", "the text after '|' or '>' is not indented evenly", INDENT),
    ("expected node content", "a value is missing or not closed here", ""),
    ("found unexpected ':'", "a ':' stands in an unquoted text", QUOTE),
    ("maximum nesting depth", "it is nested deeper than 100 levels", ""),
    ("incompatible yaml document", "the %YAML version is not known", "remove the %YAML line"),
)  # fmt: skip


def syntax_words(error: yaml.MarkedYAMLError, form: str, lines: int) -> tuple[str, int | None, str]:
    """The message, the line and the hint for a syntax error in a text of this form, with so many lines.

    Where the parser's words are not known they are passed on.
    """
    line, context = (_line(mark, lines) for mark in (error.problem_mark or error.context_mark, error.context_mark))
    said = " ".join(part for part in (error.context, error.problem) if part)
    folded = (error.problem or said).lower()
    for words, message, hint in _WORDS:
        if words in folded or (words == "block scalar" and words in said.lower()):
            start = line if context is None else context
            if message in AT_START:
                return f"is not valid {form}: {message}", start, hint
            where = f" (it starts on line {start})" if start != line else ""
            return f"is not valid {form}: {message}{where}", line, hint
    return f"is not valid {form}: {said or 'it cannot be read'}", line, ""


def _line(mark: yaml.Mark | None, lines: int) -> int | None:
    """The line of a mark, counted from 1; one past the last is where the text ends, which is on the last."""
    return None if mark is None else min(mark.line + 1, max(lines, 1))
