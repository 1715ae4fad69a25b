"""From the events of PyYAML's parser to plain data with lines: without recursion, with caps, with no type guessed.

The parser in C is used where PyYAML has it. Only its events are taken: its own composer and constructor recurse, expand
aliases without a limit, drop the first of two equal keys, and read `no` as false.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from harbor_tasks.evalspec.scalars import TAG, Mode, ReadError, hide_special, tag_fault, tagged, typed_at
from harbor_tasks.evalspec.words import syntax_words

MAX_DEPTH = 100
MAX_NODES = 100_000
MAX_EXPANDED_NODES = 20_000
MAX_EXPANDED_BYTES = 4 * 1024 * 1024

_OPEN = object()


class PureParser(Reader, Scanner, Parser):
    """PyYAML's parser in Python, as far as events."""

    def __init__(self, stream: str) -> None:
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        Parser.__init__(self)


# PyYAML may have been built without libyaml: slower, the same events.
_EventParser: Any = yaml._yaml.CParser if yaml.__with_libyaml__ else PureParser


class _Scalar:
    """A scalar with an anchor: its source text, and its typed value."""

    __slots__ = ("text", "value")

    def __init__(self, text: str, value: Any) -> None:
        self.text, self.value = text, value


@dataclass(slots=True)
class _Anchor:
    """What an alias stands for, and how much of it there is."""

    node: Any
    nodes: int
    size: int
    height: int


class _Frame:
    """A mapping or list that is being read."""

    __slots__ = ("anchor", "container", "height", "key", "key_line", "line", "lines", "merge", "mode", "nodes", "size")

    def __init__(self, container: Any, mode: Mode, line: int = 0, anchor: str | None = None) -> None:
        self.container, self.mode, self.line, self.anchor = container, mode, line, anchor
        self.lines: Any = {} if container.__class__ is dict else []
        self.height = self.nodes = self.size = 0
        self.key: str | None = None
        self.key_line = 0
        self.merge: list[tuple[Any, int]] | None = None  # values of `<<`, with their line


class Composer:
    """Reads one text; `compose` gives the data, ``lines`` and ``blocks`` say where it stands."""

    def __init__(self, text: str, name: str, mode: Mode) -> None:
        self.lines: dict[int, Any] = {}  # by the id of each container: the line of each key or item
        self.blocks: set[tuple[int, Any]] = set()  # where texts stand that begin on the line after their `|`
        self.duplicates: list[ReadError] = []
        self._name, self._mode = name, mode
        self._text, self._restore = hide_special(text)
        self._anchors: dict[str, _Anchor | object] = {}
        self._track = "&" in text  # the source of typed scalars is only kept where an alias may need it
        self._sources: dict[tuple[int, Any], _Scalar] = {}
        self._keep: list[Any] = []  # containers whose id stands in _sources must live
        self._nodes = self._size = self._expanded_nodes = self._expanded_bytes = 0
        root: list[Any] = []
        self._root = root
        self._stack = [_Frame(root, mode if mode is Mode.TYPED else Mode(mode.texts, {"*": mode}))]

    def compose(self) -> Any:
        """The data of the one document of the text, None for an empty text; raises ReadError."""
        try:
            self._read_events()
        except yaml.MarkedYAMLError as error:
            form = "JSON" if self._name.endswith(".json") else "YAML"
            lines = self._text.count("\n") + (not self._text.endswith("\n"))
            raise ReadError(*syntax_words(error, form, lines), "yaml-syntax") from None
        except yaml.YAMLError as error:
            raise ReadError(f"is not valid YAML: {str(error).splitlines()[0]}", None, "", "yaml-syntax") from None
        data = self._root[0] if self._root else None
        return None if data == "" and self._mode.texts else data

    def _read_events(self) -> None:
        parser = _EventParser(self._text)
        documents = 0
        while True:
            event = parser.get_event()
            kind = event.__class__
            if kind is ScalarEvent:
                self._scalar(event)
            elif kind is MappingStartEvent:
                self._open(event, {})
            elif kind is SequenceStartEvent:
                self._open(event, [])
            elif kind is AliasEvent:
                self._alias(event)
            elif kind is StreamEndEvent:
                return
            elif kind is DocumentStartEvent:
                documents += 1
                if documents > 1:
                    line = event.start_mark.line + 1
                    raise ReadError("holds several documents", line, "remove the --- between them", "several-documents")
            elif len(self._stack) > 1:
                self._close()

    def _scalar(self, event: Any) -> None:
        text = event.value if self._restore is None else self._restore(event.value)
        line = event.start_mark.line + 1
        self._count(1, len(text), line)
        frame = self._stack[-1]
        plain = not event.style
        value = tagged(event.tag, text, line) if event.tag else typed_at(text, line) if plain else text
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(_Scalar(text, value), 1, len(text), 0)
        if frame.key is None and frame.container.__class__ is dict:
            self._key(text, line, merge=plain and text == "<<")
        else:
            if self._track and value is not text:
                slot = frame.key if frame.key is not None else len(frame.container)
                self._sources[id(frame.container), slot] = _Scalar(text, value)
            if event.style == "|":
                self.blocks.add((id(frame.container), frame.key if frame.key is not None else len(frame.container)))
            mode = frame.mode.below(frame.key if frame.key is not None else "*")
            self._put(mode.read(text, value), line)

    def _key(self, text: str, line: int, *, merge: bool) -> None:
        frame = self._stack[-1]
        first = frame.lines.get(text)
        if first is not None:
            message = f"duplicate key {text} (line {line}, first at line {first})"
            self.duplicates.append(ReadError(message, line, "keep one of them", "duplicate-key"))
        frame.key, frame.key_line = text, line
        frame.lines[text] = line
        if merge:
            frame.merge = frame.merge or []

    def _put(self, value: Any, line: int, height: int = 0) -> None:
        """Put a finished value where it belongs: item of a list, value of a key, or what a mapping takes in by `<<`."""
        frame = self._stack[-1]
        frame.height = max(frame.height, height + 1)
        if frame.container.__class__ is list:
            frame.container.append(value)
            frame.lines.append(line)
            return
        if frame.key == "<<" and frame.merge is not None:
            frame.merge.append((value, frame.key_line))
        else:
            frame.container[frame.key] = value
        frame.key = None

    def _open(self, event: Any, container: Any) -> None:
        line = event.start_mark.line + 1
        self._count(1, 0, line)
        is_list = container.__class__ is list
        if event.tag not in (None, "!", TAG + ("seq" if is_list else "map")):
            raise tag_fault(event.tag, line)
        above = self._stack[-1]
        if above.key is None and above.container.__class__ is dict:
            raise ReadError("a key must be a text, not a list or mapping", line, "quote the key", "yaml-key")
        if len(self._stack) > MAX_DEPTH:
            raise ReadError(f"is nested deeper than {MAX_DEPTH} levels", line, "", "too-deep")
        if event.anchor is not None:
            self._anchors[event.anchor] = _OPEN
        frame = _Frame(container, self._mode_of_value(above, is_list=is_list), line, event.anchor)
        frame.nodes, frame.size = self._nodes - 1, self._size
        self.lines[id(container)] = frame.lines
        if self._track:
            self._keep.append(container)
        self._stack.append(frame)

    @staticmethod
    def _mode_of_value(frame: _Frame, *, is_list: bool) -> Mode:
        if frame.key == "<<" and frame.merge is not None:  # what is merged is read as the mapping that takes it in
            return Mode(frame.mode.texts, {"*": frame.mode}) if is_list else frame.mode
        return frame.mode.below(frame.key if frame.key is not None else "*")

    def _close(self) -> None:
        frame = self._stack.pop()
        if frame.merge:
            self._merge(frame)
        if frame.anchor is not None:
            counts = self._nodes - frame.nodes, self._size - frame.size
            self._anchors[frame.anchor] = _Anchor(frame.container, *counts, frame.height)
        self._put(frame.container, frame.line, frame.height)

    def _alias(self, event: Any) -> None:
        line = event.start_mark.line + 1
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            hint = "quote a text that starts with *"
            raise ReadError(f"alias *{event.anchor} has no anchor &{event.anchor}", line, hint, "alias")
        if not isinstance(anchor, _Anchor):
            raise ReadError(f"alias *{event.anchor} refers to itself", line, "", "alias-cycle")
        self._expanded_nodes += anchor.nodes
        self._expanded_bytes += anchor.size
        if self._expanded_nodes > MAX_EXPANDED_NODES or self._expanded_bytes > MAX_EXPANDED_BYTES:
            raise ReadError(f"too many alias expansions in {self._name}", line, "write the values out", "alias-bomb")
        self._count(anchor.nodes, anchor.size, line)
        frame = self._stack[-1]
        if len(self._stack) + anchor.height > MAX_DEPTH + 1:
            raise ReadError(f"is nested deeper than {MAX_DEPTH} levels", line, "", "too-deep")
        if frame.key is None and frame.container.__class__ is dict:
            if not isinstance(anchor.node, _Scalar):
                raise ReadError("a key must be a text, not a list or mapping", line, "quote the key", "yaml-key")
            self._key(anchor.node.text, line, merge=False)
            return
        mode = self._mode_of_value(frame, is_list=isinstance(anchor.node, list))
        if isinstance(anchor.node, _Scalar) and anchor.node.value is not anchor.node.text:
            slot = frame.key if frame.key is not None else len(frame.container)
            self._sources[id(frame.container), slot] = anchor.node
        self._put(self._copy(anchor.node, mode), line, anchor.height)

    def _copy(self, node: Any, mode: Mode) -> Any:
        """What an alias stands for, as data of its own, read as its place asks for. Depth is capped before."""
        if isinstance(node, _Scalar):
            return mode.read(node.text, node.value)
        if not isinstance(node, (dict, list)):
            return node
        copy: Any
        items: Any
        if isinstance(node, dict):
            copy, items = {}, node.items()
        else:
            copy, items = [None] * len(node), enumerate(node)
        self.lines[id(copy)] = self.lines[id(node)]
        for key, value in items:
            source = self._sources.get((id(node), key))
            if source is not None:
                self._sources[id(copy), key] = source
            below = mode.below(key if isinstance(key, str) else "*")
            copy[key] = self._copy(value if source is None else source, below)
        self._keep.append(copy)
        return copy

    def _merge(self, frame: _Frame) -> None:
        """Take in what `<<` names: keys of the mapping itself win, then those of the first one named."""
        for value, line in frame.merge or ():
            for part in value if isinstance(value, list) else [value]:
                if not isinstance(part, dict):
                    raise ReadError("<< must name a mapping or a list of mappings", line, "", "yaml-merge")
                for key in part:
                    if key not in frame.container:
                        frame.container[key] = part[key]
                        frame.lines[key] = self.lines[id(part)][key]
                        source = self._sources.get((id(part), key))
                        if source is not None:
                            self._sources[id(frame.container), key] = source

    def _count(self, nodes: int, size: int, line: int) -> None:
        self._nodes += nodes
        self._size += size
        if self._nodes > MAX_NODES:
            raise ReadError(f"holds more than {MAX_NODES} values", line, "put large data into files/", "too-large")
