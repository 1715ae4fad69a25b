"""The strict reader: what scalars mean, where things stand, and that every fault of a file is a problem with a line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import load_yaml

ROOT = Path(__file__).resolve().parents[2]
ReadText = Callable[..., Any]


def test_only_json_words_and_numbers_are_typed(read: ReadText) -> None:
    text = (
        "a: yes\nb: no\nc: On\nd: 08\ne: 1:30\nf: 2026-01-01\ng: 0x1F\nh: .5\ni: 1_000\nj: ~\nk: +1\nl: 1.\nm: True\n"
        "n: true\no: false\np: null\nq: 42\nr: -1.5e3\ns: 0\nt: 1.10\nu:\nv: '42'\nw: \"true\"\n"
    )
    assert read(text).data == {
        "a": "yes",
        "b": "no",
        "c": "On",
        "d": "08",
        "e": "1:30",
        "f": "2026-01-01",
        "g": "0x1F",
        "h": ".5",
        "i": "1_000",
        "j": "~",
        "k": "+1",
        "l": "1.",
        "m": "True",
        "n": True,
        "o": False,
        "p": None,
        "q": 42,
        "r": -1500.0,
        "s": 0,
        "t": 1.1,
        "u": None,
        "v": "42",
        "w": "true",
    }


def test_keys_are_always_texts(read: ReadText) -> None:
    assert read("1: a\n1.10: b\nno: c\nnull: d\n? \n: e\n").data == {
        "1": "a",
        "1.10": "b",
        "no": "c",
        "null": "d",
        "": "e",
    }


def test_texts_mode_keeps_what_was_written(read: ReadText) -> None:
    text = "Proceed?: No\nCountry?: NO\non: off\nVersion?: 1.10\nEmpty?:\nMany?: [1.0, true, null]\n"
    assert read(text, texts=True).data == {
        "Proceed?": "No",
        "Country?": "NO",
        "on": "off",
        "Version?": "1.10",
        "Empty?": "",
        "Many?": ["1.0", "true", "null"],
    }
    assert read('{"Version?": 1.10, "Sure?": true}', texts=True).data == {"Version?": "1.10", "Sure?": "true"}


def test_texts_below_named_keys_only(read: ReadText) -> None:
    paths = ("case_overrides", "steps.*.env.*", "note")
    text = "case_overrides: {q: 1.10}\nsteps:\n- {env: {A: 1.0, B: }, n: 1.0}\nnote: 2.0\nother: 2.0\n"
    wanted = {
        "case_overrides": {"q": "1.10"},
        "steps": [{"env": {"A": "1.0", "B": ""}, "n": 1.0}],
        "note": "2.0",
        "other": 2.0,
    }
    assert read(text, text_under=paths).data == wanted
    assert read("case_overrides:\nnote: null\n", text_under=paths).data == {"case_overrides": None, "note": None}
    as_json = (
        '{"case_overrides": {"q": 1.10}, "steps": [{"env": {"A": 1.0, "B": ""}, "n": 1.0}], "note": 2.0, "other": 2.0}'
    )
    assert read(as_json, text_under=paths).data == wanted


def test_an_alias_is_read_as_its_place_asks_for(read: ReadText) -> None:
    text = "shared: &s {A: 1.10, B: true}\nenv: *s\nmore:\n  env:\n    <<: *s\n    C: 2.0\n"
    data = read(text, text_under=("env.*", "more.env.*")).data
    assert data["shared"] == {"A": 1.1, "B": True}
    assert data["env"] == {"A": "1.10", "B": "true"}
    assert data["more"]["env"] == {"A": "1.10", "B": "true", "C": "2.0"}


def test_aliases_are_copies_and_scalars_too(read: ReadText) -> None:
    data = read("a: &a [1, 2]\nb: *a\nc: &c 1.10\nd: *c\n*c : key\n").data
    assert data == {"a": [1, 2], "b": [1, 2], "c": 1.1, "d": 1.1, "1.10": "key"}
    assert data["a"] is not data["b"]


def test_merge_keys_take_in_what_is_not_there(read: ReadText) -> None:
    text = "base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\none:\n  y: 0\n  <<: [*b, *o]\n"
    assert read(text).data["one"] == {"x": 1, "y": 0, "z": 4}
    assert "<< must name a mapping" in read("a: {<<: 5}\n").error


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_byte_order_mark_and_crlf_change_nothing(read: ReadText, mark: bytes, end: str) -> None:
    text = f"prompt: Größe{end}body: |{end}  one{end}  two{end}"
    assert read(mark + text.encode()).data == {"prompt": "Größe", "body": "one\ntwo\n"}


def test_lines_of_keys_items_and_block_texts(read: ReadText) -> None:
    text = (
        "name: x\nsteps:\n  - id: a\n    env: {A: 1,\n          B: 2}\n  - id: b\ncheck: |\n  one\n  two\nplain: one\n"
    )
    document = read(text).document
    assert document is not None
    assert document.line() == 1
    assert document.line("steps") == 2
    assert document.line("steps", 0) == 3
    assert document.line("steps", 0, "env", "B") == 5
    assert document.line("steps", 1, "id") == 6
    assert document.line("steps", 1, "nope") == 6  # the nearest above
    assert document.line("steps", 9, "id") == 2
    assert document.line_of_text(2, "check") == 9
    assert document.line_of_text(2, "plain") == 10


def test_lines_in_json_are_found_when_they_are_asked_for(read: ReadText) -> None:
    document = read('{\n "a": 1,\n "b": [\n  "\\ud83d\\ude00",\n  2\n ]\n}').document
    assert document is not None
    assert document.data == {"a": 1, "b": ["😀", 2]}
    assert document.line("b", 1) == 5


def test_unusual_line_separators_do_not_break_lines(read: ReadText) -> None:
    assert read("a: one\u2028two\nb: x\x85y\nc: z\x7f\n").data == {"a": "one\u2028two", "b": "x\x85y", "c": "z\x7f"}
    assert "is not valid YAML" in read("a: one\u2028two: three\n").error  # one line, not two keys


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("tools: 1\nmode: x\ntools: 2\n", 3, "duplicate key tools (line 3, first at line 1)"),
        ("a:\n  - {b: 1, b: 2}\n", 2, "duplicate key b (line 2, first at line 2)"),
        ('{"a": 1,\n "a": 2}', 2, "duplicate key a (line 2, first at line 1)"),
        ("a: 1\nb: *nope\n", 2, "alias *nope has no anchor"),
        ("me: &me [*me]\n", 1, "alias *me refers to itself"),
        ("a: !!python/object:os.system x\n", 1, "holds the tag !!python/object:os.system"),
        ("a: 1\nb: !mine 2\n", 2, "holds the tag !mine"),
        ("a: !!int 08\n", 1, "is not a value for the tag !!int"),
        ("a: 1\n---\nb: 2\n", 2, "holds several documents"),
        ("? [a]\n: 1\n", 1, "a key must be a text"),
        ("a: 1e999\n", 1, "out of range"),
        ("a: " + "9" * 5000 + "\n", 1, "more than 4000 digits"),
        ("a: x\nb: y\0\n", 2, "holds a NUL"),
        ("a: x\nb: y\x1b\n", 2, "control character 0x1b"),
        ("a: b: c\n", 1, "a ': ' stands inside an unquoted text"),
        ("a:\n\t- b\n", 2, "tabs indent a line"),
        ("a: [1, 2\n", 1, "a list in [ ] is not closed"),
        ('a: "x\n', 1, "a quoted text is not closed"),
        ("a:\n  b: 1\n c: 2\n", 3, "not indented as"),
        ("a: 1\nb\n", 2, "a key has no ':' after it"),
        ('a: "\\d"\n', 1, "starts no escape"),
        ('{"a": "\\ud800"}', 1, "names no character"),
    ],
)
def test_faults_are_one_problem_with_a_line(read: ReadText, text: str, line: int, says: str) -> None:
    error = read(text).error
    assert error.startswith(f"notes.yaml:{line}: ")
    assert says in error


@pytest.mark.parametrize("text", ["a: [", "a: [\n", '{"a": {', '{"a": {\n', "a: {b: [1,\n", '"a', "a: 'b\n", "? [\n"])
def test_no_line_is_named_that_the_file_does_not_have(read: ReadText, text: str) -> None:
    said = read(text).error
    assert said.startswith("notes.yaml:1: ")
    assert "line 2" not in said


def test_a_fault_that_ends_later_names_both_lines(read: ReadText) -> None:
    assert read("x: 1\na: [\n  1,\n").error.startswith("notes.yaml:3: ")
    assert "(it starts on line 2)" in read("x: 1\na: [1,\n  b: c: d\n]\n").error


def test_all_duplicates_are_reported_even_before_a_syntax_error(read: ReadText) -> None:
    said = read('a: 1\na: 2\nb: 1\nb: 2\nc: "\n').said
    assert [part for part in said if "duplicate key" in part] == [
        "notes.yaml:2: duplicate key a (line 2, first at line 1); keep one of them",
        "notes.yaml:4: duplicate key b (line 4, first at line 3); keep one of them",
    ]
    assert len(said) == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a: 1\n".encode("utf-16"), "UTF-16"),
        ("a: 1\n".encode("utf-16-le"), "UTF-16"),
        ("a: 1\n".encode("utf-32"), "UTF-16 or UTF-32"),
        ("x: 1\na: Größe\n".encode("latin-1"), "notes.yaml:2: is not encoded in UTF-8 (byte 0xf6)"),
    ],
)
def test_other_encodings_are_refused(read: ReadText, content: bytes, says: str) -> None:
    assert says in read(content).error


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\n\n"])
def test_an_empty_file_is_null(read: ReadText, text: str) -> None:
    assert read(text).data is None
    assert read(text, texts=True).data is None


def test_files_that_cannot_be_read_are_problems(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"a: " + b"x" * (17 * 1024 * 1024))
    problems = Problems()
    for name in ("folder.yaml", "pipe.yaml", "missing.yaml", "huge.yaml"):
        assert load_yaml(tmp_path / name, problems) is None
    assert [problem.code for problem in problems] == ["special-file", "special-file", "unreadable", "too-large"]


BOMBS = {
    "aliases": "\n".join(
        [f"l0: &l0 [{','.join('z' * 10)}]", *(f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))]
    ),
    "long aliases": 'a: &a "' + "y" * 1_000_000 + '"\nb: [' + "*a," * 1000 + "]",
    "merges": "a: &a {"
    + ",".join(f"k{n}: 1" for n in range(900))
    + "}\n"
    + "".join(f"m{n}: {{<<: *a}}\n" for n in range(999)),
    "lists in lists": "[" * 10_000,
    "lists in lists, closed": "a: " + "[" * 10_000 + "]" * 10_000,
    "mappings in mappings": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "block lists": "- " * 10_000 + "x",
    "many values": "[" + "[]," * 300_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_no_time(read: ReadText, name: str) -> None:
    start = time.process_time()
    result = read(BOMBS[name])
    assert time.process_time() - start < 3
    assert len(result.problems.errors) == 1
    words = ("too many alias expansions in notes.yaml", "nested deeper than 100 levels", "holds more than")
    assert any(part in result.error for part in words), result.error


def test_a_bomb_takes_little_memory(tmp_path: Path) -> None:
    (tmp_path / "bomb.yaml").write_text(BOMBS["aliases"])
    (tmp_path / "many.yaml").write_text(BOMBS["many values"])
    script = (
        "import sys; from pathlib import Path; from harbor_tasks.errors import Problems\n"
        "from harbor_tasks.evalspec.reader import load_yaml\n"
        "p = Problems(); [load_yaml(Path(name), p) for name in sys.argv[1:]]; assert len(p.errors) == 2\n"
        "lines = Path('/proc/self/status').read_text().splitlines()\n"  # ru_maxrss is not less than that of pytest here
        "print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith('VmHWM')))"
    )
    command: list[str | Path] = [sys.executable, "-c", script, tmp_path / "bomb.yaml", tmp_path / "many.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT)
    assert int(done.stdout) < 200


def test_a_hundred_levels_are_fine(read: ReadText) -> None:
    assert read("[" * 100 + "]" * 100).data
    assert read("a: " + "[" * 99 + "]" * 99).data
    assert "nested deeper" in read("[" * 101 + "]" * 101).error


def test_the_parser_in_python_reads_the_same(tmp_path: Path) -> None:
    """A PyYAML that was built without libyaml: the same data, lines and faults."""
    texts = {
        "plain.yaml": "a: yes\nb: [1, 1.10, '2']\nc: {d: &x 1.0, e: *x}\nf: |\n  one\n  two\ng: >-\n  three\n  four\n",
        "special.yaml": "a: one\u2028two\nb: x\x85y\n",
        "twice.yaml": "a: 1\na: 2\n",
        "tag.yaml": "a: !!python/name:os x\n",
        "open.yaml": "a: [1, 2\n",
        "indent.yaml": "a:\n  b: 1\n c: 2\n",
        "deep.yaml": "[" * 300,
        "bomb.yaml": BOMBS["aliases"],
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = (
        "import sys; from pathlib import Path\n"
        "if sys.argv[1] == 'python': sys.modules['yaml._yaml'] = None\n"
        "from harbor_tasks.errors import Problems; from harbor_tasks.evalspec import reader, compose\n"
        "assert (compose._EventParser is compose.PureParser) == (sys.argv[1] == 'python')\n"
        "for file in sorted(Path(sys.argv[2]).iterdir()):\n"
        "    p = Problems(); d = reader.load_yaml(file, p)\n"
        "    print(file.name, ascii(d and d.data), d and d.line('c'), [(x.code, x.where.line) for x in p])\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", script, parser, tmp_path],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            cwd=ROOT,
        ).stdout
        for parser in ("c", "python")
    ]
    deep = "deep.yaml None None [('yaml-syntax', 1)]"  # libyaml has a limit of its own, and other words for it
    assert said[0].replace(deep, deep.replace("yaml-syntax", "too-deep")) == said[1]
