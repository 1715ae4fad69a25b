"""Reads an author's Dockerfile: its instructions with their lines, the images it starts from, what needs BuildKit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"#\s*(syntax|escape|check)\s*=\s*(\S+)\s*", re.IGNORECASE)
_HEREDOC = re.compile(r"(?<!<)<<-?\s*([\"']?)([A-Za-z_]\w*)\1")
_FLAGS = {
    "RUN": ("--mount", "--network", "--security", "--device"),
    "COPY": ("--link", "--chmod", "--parents", "--exclude"),
    "ADD": ("--link", "--chmod", "--checksum", "--keep-git-dir", "--exclude", "--unpack"),
}
_BUILDKIT_ARG = re.compile(r"(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)(?:=|\Z)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its keyword in capitals, the rest with continued lines joined, the line that it begins on."""

    keyword: str
    text: str
    line: int

    @property
    def flags(self) -> list[str]:
        """The options before its arguments, as ``--from=x``."""
        found = []
        for word in self.text.split():
            if not word.startswith("--"):
                break
            found.append(word)
        return found


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """The instructions of a Dockerfile, and what in it only BuildKit understands: a line and a name each."""

    instructions: tuple[Instruction, ...]
    buildkit: tuple[tuple[int, str], ...]

    def references(self) -> list[tuple[int, str]]:
        """The images that it takes something from, each with its line; those that depend on an unset argument not."""
        stages: set[str] = set()
        arguments: dict[str, str] = {}
        found: dict[str, int] = {}
        for instruction in self.instructions:
            words = [word for word in instruction.text.split() if not word.startswith("--")]
            if instruction.keyword == "ARG" and not stages and not found and words:
                name, equals, value = words[0].partition("=")
                if equals:
                    arguments[name] = value.strip("\"'")
            elif instruction.keyword == "FROM" and words:
                _add(found, _expanded(words[0], arguments), stages, instruction.line)
                stages.add(words[2].lower() if len(words) > 2 and words[1].upper() == "AS" else "")
            elif instruction.keyword == "COPY":
                for flag in instruction.flags:
                    source = flag.removeprefix("--from=")
                    if source != flag and not source.isdigit():
                        _add(found, _expanded(source, arguments), stages, instruction.line)
        return [(line, reference) for reference, line in found.items()]


def _add(found: dict[str, int], reference: str | None, stages: set[str], line: int) -> None:
    if reference and reference.lower() not in stages and reference.lower() != "scratch":
        found.setdefault(reference, line)


def _expanded(text: str, arguments: dict[str, str]) -> str | None:
    """The text with the defaults of arguments put in; None when one has none."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        found = arguments.get(match[1] or match[2]) or match[3]
        missing = missing or not found
        return found or ""

    expanded = _VARIABLE.sub(value, text)
    return None if missing else expanded


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile. What is wrong with it is for the builder to say."""
    text = text.removeprefix("\ufeff")
    lines = text.splitlines()
    escape, buildkit = "\\", []
    for number, line in enumerate(lines, 1):
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is None:
            break
        if directive[1].lower() == "escape":
            escape = directive[2]
        elif directive[1].lower() == "syntax":
            buildkit.append((number, f"# syntax={directive[2]}"))
    instructions = tuple(_instructions(lines, escape))
    for instruction in instructions:
        buildkit += [(instruction.line, name) for name in _needs_buildkit(instruction, lines)]
    return Dockerfile(instructions, tuple(buildkit))


def _instructions(lines: list[str], escape: str) -> Iterator[Instruction]:
    number = 0
    while number < len(lines):
        begin = number
        parts: list[str] = []
        while number < len(lines):
            line = lines[number].strip()
            number += 1
            if line and not line.startswith("#"):
                parts.append(line.removesuffix(escape))
            elif not parts:
                begin = number
            # Comments and empty lines do not end what is continued.
            if parts and line and not line.startswith("#") and not line.endswith(escape):
                break
        if parts:
            keyword, _, text = " ".join(parts).partition(" ")
            yield Instruction(keyword.upper(), text.strip(), begin + 1)
            number = _after_heredocs(keyword.upper(), text, lines, number)


def _after_heredocs(keyword: str, text: str, lines: list[str], number: int) -> int:
    """The line after the texts that an instruction brings with it; they hold no instructions."""
    for word in _heredocs(keyword, text):
        end = next((at for at in range(number, len(lines)) if lines[at].strip() == word), None)
        if end is not None:
            number = end + 1
    return number


def _heredocs(keyword: str, text: str) -> list[str]:
    if keyword not in ("RUN", "COPY", "ADD") or text.lstrip().startswith("["):
        return []
    return [match[2] for match in _HEREDOC.finditer(text)]


def _needs_buildkit(instruction: Instruction, lines: list[str]) -> Iterator[str]:
    keyword = instruction.keyword
    for flag in instruction.flags:
        name = flag.partition("=")[0]
        if name in _FLAGS.get(keyword, ()):
            yield f"{keyword} {name}"
    for word in _heredocs(keyword, instruction.text):
        if any(line.strip() == word for line in lines[instruction.line :]):
            yield f"{keyword} <<{word}"
    if keyword == "ARG" and _BUILDKIT_ARG.match(instruction.text):
        yield f"ARG {instruction.text.partition('=')[0]}"
