"""Permission rules of eval.yaml in the form that the agent program reads (facts/claude-code.md, Settings)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.load import Eval
from harbor_tasks.policy.tools import BUILT_IN, misspelt

Which = Literal["allow", "deny"]

DEFAULT_MODE = "bypassPermissions"
"""The permission mode of an eval that names none, as Harbor starts the program."""

#: Tools whose rules may hold a path.
PATH_TOOLS = ("Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Glob", "Grep", "LS")
#: What a path rule with Bash also denies: the tools that read and write what a command was kept from.
_IN_PLACE_OF_BASH = ("Read", "Edit")
#: Claude Code asks the rules of two tools alone about paths: Edit's for all that write files, Read's for all that read
#: them. A path rule of another tool it passes over, so a deny needs theirs.
RULES_OF = {"Write": "Edit", "MultiEdit": "Edit", "NotebookEdit": "Edit", "Glob": "Read", "Grep": "Read", "LS": "Read"}

_FROM_TOP = "write it from the workspace, or as an absolute path"
_RULE = re.compile(r"(?P<tool>[^()\s]+)(?P<spec>\(.*\))?", re.DOTALL)
_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|mcp__[A-Za-z0-9_.*?-]*|\*", re.ASCII)


@dataclass(frozen=True)
class PermissionRules:
    """Rule texts (``Tool`` or ``Tool(spec)``) as they stand in settings.json."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Entry:
    """One item of a list, and where its problems are reported."""

    which: Which
    index: int
    problems: Problems
    path: Path | None
    line: int | None

    def error(self, message: str, hint: str = "") -> None:
        place = f"permissions.{self.which}[{self.index}]"
        self.problems.error(f"{place} {message}", self.path, self.line, hint=hint, code="bad-permission")

    def warn(self, message: str, hint: str = "") -> None:
        place = f"permissions.{self.which}[{self.index}]"
        self.problems.warn(f"{place} {message}", self.path, self.line, hint=hint, code="permission")


def permissions_of(ev: Eval, problems: Problems) -> PermissionRules:
    """Both lists of an eval: its `permissions`, then those of `runner.settings`."""
    return PermissionRules(_list_of(ev, "allow", problems), _list_of(ev, "deny", problems))


def _list_of(ev: Eval, which: Which, problems: Problems) -> tuple[str, ...]:
    found: dict[str, None] = {}
    more = (ev.spec.runner.settings or {}).get("permissions")
    lists = {
        ("permissions", which): getattr(ev.spec.permissions, which),
        ("runner", "settings", "permissions", which): more.get(which) if isinstance(more, dict) else None,
    }
    for keys, entries in lists.items():
        if isinstance(entries, list):

            def place(index: int, keys: tuple[str, ...] = keys) -> tuple[int, int | None]:
                return int(ev.where(*keys, index)[-1]), ev.line(*keys, index)

            found.update(dict.fromkeys(permission_rules(entries, which, problems, path=ev.file, place=place)))
    return tuple(found)


def permission_rules(
    entries: Sequence[Any] | None, which: Which, problems: Problems,
    *, path: Path | None = None, place: Callable[[int], tuple[int, int | None]] = lambda index: (index, None),
) -> list[str]:  # fmt: skip
    """The rule texts of one list; an entry is a rule text, or has ``path`` and ``tools``.

    ``place`` gives the index and the line that an entry has in the file at ``path``.
    """
    rules: dict[str, None] = {}
    for index, item in enumerate(entries or ()):
        entry = _Entry(which, place(index)[0], problems, path, place(index)[1])
        found = _rule_text(item, entry) if isinstance(item, str) else _path_rule(item, entry)
        rules.update(dict.fromkeys(found))
        rules.update(dict.fromkeys(_in_force(found) if which == "deny" else ()))
    return list(rules)


def _in_force(rules: Sequence[str]) -> Iterator[str]:
    """The rules by which the agent program denies what these path rules say."""
    for rule in rules:
        tool, bracket, path = rule.partition("(")
        if bracket and tool in RULES_OF:
            yield f"{RULES_OF[tool]}({path}"


def _rule_text(text: str, entry: _Entry) -> list[str]:
    """One rule as it was typed; for tools of files ``dir/`` and absolute paths are written out."""
    rule = _RULE.fullmatch(text.strip())
    if rule is None or not _TOOL_NAME.fullmatch(rule["tool"]):
        entry.error(f"is not a rule: {text!r}", "write 'Tool' or 'Tool(what)', as 'Bash(git push*)'")
        return []
    tool, spec = rule["tool"], rule["spec"]
    if tool not in BUILT_IN and not tool.startswith("mcp__") and tool != "*":
        near = misspelt(tool)
        if near:
            entry.error(f"names an unknown tool: {tool!r}", f"did you mean {near!r}?")
            return []
        entry.warn(f"names a tool that is not known here: {tool!r}")
    if spec is None:
        return [tool]
    inside = spec[1:-1].strip()
    if not inside:
        entry.error(f"is not a rule: {text!r} says nothing between the brackets", f"write {tool!r} for every call")
        return []
    if tool not in PATH_TOOLS:
        return [f"{tool}({inside})"]
    return _path_texts(tool, inside, entry)


def _path_texts(tool: str, path: str, entry: _Entry) -> list[str]:
    """The rule texts for a path that was typed in the rule of a tool of files."""
    if _climbs(path):
        entry.error(f"has a path with '..', which matches nothing: {path!r}", _FROM_TOP)
        return []
    rules = [f"{tool}({rule_path(path)})"]
    if entry.which == "deny" and _is_absolute(path):
        # One slash also means the project's root to Claude Code: what was typed stays denied in either sense.
        rules.append(f"{tool}({_whole_tree(path)})")
    return rules


def _path_rule(item: Any, entry: _Entry) -> list[str]:
    """The rules of ``{path, tools}``: one per tool; Bash, which knows no paths, is denied by Read and Edit."""
    values = item if isinstance(item, Mapping) else vars(item)
    path, tools = values.get("path"), values.get("tools")
    if not isinstance(path, str) or not path.strip():
        entry.error("has no path", "write {path: docs/, tools: [Read]}")
        return []
    if any(ch in path for ch in "()\n\r\0"):
        entry.error(f"has a path that a rule cannot hold: {path!r}")
        return []
    if _climbs(path):
        entry.error(f"has a path with '..', which matches nothing: {path!r}", _FROM_TOP)
        return []
    if not isinstance(tools, Sequence) or isinstance(tools, str) or not tools:
        entry.error("has no tools", f"write {{path: {path}, tools: [Read]}}")
        return []
    rules = []
    for tool in tools:
        if tool == "Bash" and entry.which == "allow":
            hint = "write a rule like 'Bash(ls *)'"
            entry.warn(f"gives Bash for {path!r}, which no rule can say: it is left out", hint)
        elif tool == "Bash":
            rules += [f"{other}({rule_path(path)})" for other in _IN_PLACE_OF_BASH]
        elif tool in PATH_TOOLS:
            rules.append(f"{tool}({rule_path(path)})")
        else:
            near = misspelt(str(tool))
            hint = f"did you mean {near!r}?" if near else f"tools with paths are {', '.join(PATH_TOOLS)}, Bash"
            known = "a tool without paths" if tool in BUILT_IN else "an unknown tool"
            entry.error(f"names {known}: {tool!r}", hint)
    return rules


def rule_path(path: str) -> str:
    """The path as rules write it: ``dir/`` covers the tree, an absolute path begins with two slashes."""
    return f"/{_whole_tree(path)}" if _is_absolute(path) else _whole_tree(path)


def _climbs(path: str) -> bool:
    return ".." in re.split(r"[\\/]", path)


def _is_absolute(path: str) -> bool:
    return path.startswith("/") and not path.startswith("//")


def _whole_tree(path: str) -> str:
    return f"{path}**" if path.endswith("/") else path
