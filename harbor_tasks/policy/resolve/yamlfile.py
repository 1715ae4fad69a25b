"""The new text of tool_handlers.yaml: parts are changed in place, so that the author's comments and forms stay.

ruamel.yaml reads and writes it. Scalars are left alone: they stay the text that they are in the file, since the strict
reader (`evalspec.reader`) has rules of its own for them. What is new is written so that every reader of YAML reads it
alike. A comment that would go with what it stood beside is put back above the next part.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_tasks.errors import AuthorError, Problems
from harbor_tasks.evalspec import parse_yaml
from harbor_tasks.policy.handlers import HANDLER_TEXTS
from harbor_tasks.policy.resolve.merge import Current, Merged, Slot

if TYPE_CHECKING:
    from ruamel.yaml import YAML

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./(-][A-Za-z0-9_./,;()-]*)*", re.ASCII)
_NO_TEXT = re.compile(r"(?:true|false|null|yes|no|on|off|y|n|nan|inf)\Z", re.IGNORECASE)
_WIDE = 1 << 20
_LINE = 100


def new_text(path: Path, text: str, current: Current, merged: Merged) -> str:
    """The file's text without its head; ``text`` is the old one, empty for a new file.

    AuthorError when the file's form cannot be kept (YAML that only some readers know).
    """
    try:
        out = _changed(text, text, current, merged)
        if _is_meant(path, out, merged):
            return out
    except Exception:  # noqa: BLE001 - ruamel.yaml loses its way in some places of comments
        out = ""
    try:
        out = _changed(_without_comments(text), text, current, merged)
    except Exception:  # noqa: BLE001
        out = ""
    if not _is_meant(path, out, merged):
        raise AuthorError(
            f"{path.name} is written in a form of YAML that cannot be changed in place; write its rules as a plain "
            "list of mappings, or move it away and resolve again"
        )
    return out


def _changed(text: str, old: str, current: Current, merged: Merged) -> str:
    """The text with the parts changed; ``old`` is the one whose comments it must have."""
    yaml = _yaml(text)
    document = yaml.load(text)
    only_comments = not isinstance(document, dict)  # or a plain `null`
    document = _map() if only_comments else document
    document.fa.set_block_style()  # a file of JSON, too: new parts are read by people
    _list(document, "handlers", merged.handlers, [dict(one) for one in current.handlers])
    _overrides(document, merged.overrides, dict(current.overrides))
    if merged.probes:
        _list(document, "probes", merged.probes, [dict(one) for one in current.probes])
    elif current.probes:
        del document["probes"]
    out = _dumped(yaml, document)
    if only_comments:
        comments = [line for line in old.splitlines() if line.lstrip().startswith("#")]
        out = re.sub(r"(?<!^handlers:)\n(?=  - match: |case_overrides:|probes:)", "\n\n", out)
        return "\n".join([*comments, "", out] if comments else [out])
    return _with_comments(yaml, old, out)


def _yaml(text: str) -> YAML:
    from ruamel.yaml import YAML
    from ruamel.yaml.resolver import VersionedResolver

    class Texts(VersionedResolver):
        """Every plain scalar is the text that it is."""

        @property
        def versioned_resolver(self) -> Any:
            return {}

    yaml = YAML()
    yaml.Resolver = Texts
    yaml.preserve_quotes = True
    yaml.width = _WIDE
    yaml.allow_unicode = True
    first = re.search(r"^handlers:[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)- ", text, re.MULTILINE)
    offset = len(first[1]) if first else 2
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    return yaml


def _dumped(yaml: YAML, document: Any) -> str:
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _list(document: Any, key: str, slots: Sequence[Slot], old: Sequence[dict[str, Any]]) -> None:
    """Bring the list at this key to what the slots say."""
    if key not in document:
        document[key] = _seq([])
    found = document[key]
    if not isinstance(found, list):
        document[key] = found = _seq([])
    if slots:
        found.fa.set_block_style()
    stays = {slot.old for slot in slots}
    for index in reversed(range(len(found))):
        if index not in stays:
            del found[index]
    for place, slot in enumerate(slots):
        if slot.old is None:
            found.insert(place, _node(slot.data, key))
        elif slot.entry is not None:
            _update(found[place], old[slot.old], slot.data)


def _update(node: Any, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Change a mapping in place, as little as needed."""
    flow = node.fa.flow_style() is True
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        return
    for name in [name for name in node if name not in new]:
        del node[name]
    for place, (name, value) in enumerate(new.items()):
        if name not in node:
            node.insert(place, name, _node(value, name, flow=flow))
        elif json.dumps(old.get(name), sort_keys=True) != json.dumps(value, sort_keys=True):
            node[name] = _node(value, name, flow=flow)


def _overrides(document: Any, new: dict[str, Any], old: dict[str, Any]) -> None:
    if new == old:
        return
    if not new:
        del document["case_overrides"]
        return
    found = document.get("case_overrides")
    if not isinstance(found, dict):
        found = document["case_overrides"] = _map()
    if not found:
        found.fa.set_block_style()
    for question in [question for question in found if question not in new]:
        del found[question]
    for question, answer in new.items():
        if question not in old:
            found[_scalar(question)] = _node(answer, "")
        elif old[question] != answer:
            found[question] = _node(answer, "")


def _map() -> Any:
    from ruamel.yaml.comments import CommentedMap

    return CommentedMap()


def _seq(items: Sequence[Any], *, flow: bool = False) -> Any:
    from ruamel.yaml.comments import CommentedSeq

    found = CommentedSeq(items)
    if flow:
        found.fa.set_flow_style()
    return found


def _node(value: Any, key: str, *, flow: bool = False) -> Any:
    """A value as it is written: short lists and the small mappings of checks on one line, as all within ``flow``."""
    if isinstance(value, dict):
        found = _map()
        for name, item in value.items():
            found[_scalar(str(name))] = _node(item, str(name))
        one_line = key in ("input", "env") or set(value) == {"field", "op", "value"}
        if not value or (one_line and _short(value)):
            found.fa.set_flow_style()
        return found
    if isinstance(value, list):
        return _seq([_node(item, "") for item in value], flow=not value or (key != "handlers" and _short(value)))
    if isinstance(value, str):
        return _prose(value) if key in ("match", "reason") and not flow else _scalar(value)
    return _plain(json.dumps(value))


def _short(value: Any) -> bool:
    text = json.dumps(value)
    return len(text) <= 70 and "\\n" not in text and not re.search(r"\\u|\{.*\{", text)


def _plain(text: str) -> Any:
    from ruamel.yaml.scalarstring import PlainScalarString

    return PlainScalarString(text)


def _scalar(text: str) -> Any:
    """A text as every reader reads it: plain only when it is made of words."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, SingleQuotedScalarString

    if _WORD.fullmatch(text) and not _NO_TEXT.fullmatch(text):
        return _plain(text)
    return SingleQuotedScalarString(text) if text.isprintable() and text else DoubleQuotedScalarString(text)


def _prose(text: str) -> Any:
    """A text of some length, folded where it has single spaces."""
    from ruamel.yaml.scalarstring import FoldedScalarString

    if len(text) <= _LINE or not text.isprintable() or "  " in text or text != text.strip() or text[0] == "#":
        return _scalar(text)
    found = FoldedScalarString(text)
    folds, start = [], 0
    for space in re.finditer(" ", text):
        end = text.find(" ", space.end())
        if (len(text) if end < 0 else end) - start > _LINE:
            folds.append(space.start())
            start = space.end()
    found.fold_pos = folds
    return found


# Comments.


def _with_comments(yaml: YAML, old: str, new: str) -> str:
    """The new text with the comments that it lost: each above the part that follows it, as far as that is there."""
    kept = [text for _line, text in _comments(yaml.load(new))]
    lost: list[tuple[int, str]] = []
    for line, text in _comments(yaml.load(old)):
        if text in kept:
            kept.remove(text)
        else:
            lost.append((line, text))
    if not lost:
        return new
    lines = new.splitlines(keepends=True)
    starts = _starts(yaml.load(new))
    was = _starts(yaml.load(old))
    for line, text in sorted(lost, reverse=True):
        # the part that it was in, or that begins right below it
        path = next((path for path, at in sorted(was.items(), key=lambda one: -one[1]) if at <= line), None)
        target = 0 if path is None else starts.get(path)
        if target is None:  # that part is gone: above the last of its list, or of all
            target = max((at for (key, _), at in starts.items() if key == path[0]), default=0)  # type: ignore[index]
        indent = re.match(r" *", lines[target])[0] if target < len(lines) else ""  # type: ignore[index]
        lines.insert(target, f"{indent}{text}\n")
    return "".join(lines)


def _starts(document: Any) -> dict[tuple[str, str], int]:
    """(list, name of the part) -> the line (from 0) on which it begins."""
    found = {}
    for key, name in (("handlers", "match"), ("probes", "name")):
        for part in document.get(key) or ():
            if isinstance(part, dict):
                position: Any = part
                found[key, " ".join(str(part.get(name)).split())] = position.lc.line
    return found


def _comments(node: Any) -> Iterator[tuple[int, str]]:
    """(line, text) of every comment in a document that was just read."""
    seen: set[int] = set()

    def tokens(value: Any) -> Iterator[Any]:
        if isinstance(value, (list, tuple)):
            for item in value:
                yield from tokens(item)
        elif isinstance(value, dict):
            for item in value.values():
                yield from tokens(item)
        elif hasattr(value, "start_mark") and isinstance(getattr(value, "value", None), str):
            yield value

    def walk(part: Any) -> Iterator[tuple[int, str]]:
        if id(part) in seen:
            return
        seen.add(id(part))
        own = getattr(part, "ca", None)
        if own is not None:
            for token in tokens([own.comment, own.items, own.end]):
                if id(token) not in seen:
                    seen.add(id(token))
                    for at, line in enumerate(token.value.splitlines()):
                        if line.strip():
                            yield token.start_mark.line + at, line.strip()
        items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, item in items:
            comment = getattr(item, "comment", None)  # behind the sign of a block scalar
            if isinstance(comment, str) and comment.strip():
                yield part.lc.data[key][-2], comment.strip()
            yield from walk(key)
            yield from walk(item)

    yield from walk(node)


def _without_comments(text: str) -> str:
    """The text without its comments; each takes its line with it when it stands alone."""
    lines = text.split("\n")
    for line, comment in _comments(_yaml(text).load(text)):
        lines[line] = lines[line][: lines[line].rindex(comment)].rstrip()
    return "\n".join(lines)


def _is_meant(path: Path, text: str, merged: Merged) -> bool:
    """Whether the strict reader reads from the new text what was meant."""
    problems = Problems()
    document = parse_yaml(text, path, problems, text_under=HANDLER_TEXTS)
    if document is None or problems.errors or not isinstance(document.data, dict):
        return False
    meant = [[slot.data for slot in merged.handlers], [slot.data for slot in merged.probes], merged.overrides]
    got = [document.data.get("handlers") or [], document.data.get("probes") or [],
           document.data.get("case_overrides") or {}]  # fmt: skip
    return json.dumps(meant, sort_keys=True) == json.dumps(got, sort_keys=True)
