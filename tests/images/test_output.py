"""What an engine and a builder print, cut into pieces anywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.images.output import SHOWN_WIDTH, BuildFailedError, Lines, documents, plain, read_answer


def stream(*documents: object) -> bytes:
    """An answer as the engine sends it."""
    return b"".join(json.dumps(document, ensure_ascii=False).encode() + b"\r\n" for document in documents)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_piece_may_end_inside_a_character_or_a_document(size: int) -> None:
    said = [{"stream": "Größe ✓ 🎉\n"}, {"stream": "größer\n"}]
    assert list(documents(cut(stream(*said), size))) == said


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=20), max_size=2), max_size=5), st.data())
def test_every_cut_reads_the_same(said: list[dict[str, str]], data: st.DataObject) -> None:
    whole = stream(*said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert list(documents(pieces)) == said


def test_documents_without_anything_between_them_and_without_an_end_of_line_are_read() -> None:
    assert list(documents([b'{"stream":"a"}{"stream":"b"}\n{"stream"', b':"c"}'])) == [
        {"stream": "a"}, {"stream": "b"}, {"stream": "c"},
    ]  # fmt: skip


def test_bytes_that_are_no_utf8_and_lines_that_are_no_json_are_shown_and_stop_nothing() -> None:
    seen: list[str] = []
    answer = [b'{"stream":"caf\xff ok\\n"}\n', b"<html>bad gateway</html>\n", b'{"aux":{"ID":"sha256:1"}}\n']
    assert read_answer(answer, seen.append) == "sha256:1"
    assert seen == ["caf\ufffd ok", "<html>bad gateway</html>"]


def test_an_error_within_the_stream_is_an_error_with_the_lines_before_it() -> None:
    said = stream(
        {"stream": "Step 1/2 : FROM x\n"}, {"stream": " ---> 0123456789ab\n"}, {"stream": "no newline"},
        {"errorDetail": {"code": 7, "message": "it\nfailed"}, "error": "other"}, {"stream": "later\n"},
    )  # fmt: skip
    with pytest.raises(BuildFailedError) as failed:
        read_answer(cut(said, 5))
    assert failed.value.message == "it failed"
    assert failed.value.tail == ("Step 1/2 : FROM x", "no newline")
    assert failed.value.reached == "0123456789ab"


def test_an_error_without_detail_is_one_too() -> None:
    with pytest.raises(BuildFailedError, match="toomanyrequests"):
        read_answer([stream({"error": "toomanyrequests"})])


def test_a_line_that_never_ends_takes_no_more_memory_than_it_shows() -> None:
    lines = Lines()
    for _ in range(200):
        lines.feed_bytes(b"x" * (1 << 20))
    lines.close()
    assert [len(line) for line in lines.tail] == [SHOWN_WIDTH]


def test_progress_that_overwrites_itself_is_one_line() -> None:
    seen: list[str] = []
    lines = Lines(seen.append)
    for percent in range(101):
        lines.feed(f"\r\x1b[2K\x1b[32m{percent:3d}%\x1b[0m")
    lines.feed(" done\r\nnext\n")
    lines.close()
    assert seen == ["100% done", "next"]


def test_escape_sequences_and_control_characters_are_not_shown() -> None:
    assert plain("\x1b[91mred\x1b[0m \x1b]0;title\x07bell\x07") == "red bell\\x07"
    assert plain("\x1b(Bplain\x1b7") == "plain"


def test_progress_of_a_pull_is_not_shown_but_its_steps_are() -> None:
    seen: list[str] = []
    read_answer(
        [
            stream(
                {"status": "Pulling from x", "id": "latest"},
                {"status": "Downloading", "progressDetail": {"current": 1, "total": 2}, "id": "abc"},
                {"status": "Pull complete", "progressDetail": {}, "id": "abc"},
            )
        ],
        seen.append,
    )
    assert seen == ["latest: Pulling from x", "abc: Pull complete"]


def test_a_character_that_was_cut_off_at_the_end_is_replaced() -> None:
    lines = Lines()
    lines.feed_bytes("✓".encode()[:2])
    lines.close()
    assert list(lines.tail) == ["\ufffd"]
