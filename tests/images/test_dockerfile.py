"""What is read from an author's Dockerfile without building it."""

from __future__ import annotations

import pytest

from harbor_tasks.images.dockerfile import parse


def test_instructions_have_the_line_that_they_begin_on() -> None:
    read = parse("# about\n\nFROM debian:12\nRUN a && \\\n  # why\n\n  b\ncopy . /x\n")
    assert [(found.line, found.keyword, found.text) for found in read.instructions] == [
        (3, "FROM", "debian:12"), (4, "RUN", "a &&  b"), (8, "COPY", ". /x"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ("# syntax=docker/dockerfile:1\nFROM a\n", 1, "# syntax=docker/dockerfile:1"),
        ("FROM a\nRUN --mount=type=cache,target=/c make\n", 2, "RUN --mount"),
        ("FROM a\nUSER b\nCOPY --link --chmod=755 x /x\n", 3, "COPY --link"),
        ("FROM a\nADD --checksum=sha256:1 http://h/x /x\n", 2, "ADD --checksum"),
        ("FROM a\nRUN <<EOF\napt-get update\nEOF\n", 2, "RUN <<EOF"),
        ("FROM a\nCOPY <<-'END' /x\ntext\nEND\n", 2, "COPY <<END"),
        ("FROM a\nARG TARGETARCH\n", 2, "ARG TARGETARCH"),
    ],
)
def test_what_only_buildkit_understands_is_named_with_its_line(text: str, line: int, name: str) -> None:
    assert parse(text).buildkit[0] == (line, name)


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nRUN echo --mount <<<x\n",
        "FROM a\nRUN [\"sh\", \"-c\", \"cat <<X\"]\n",
        "FROM a\nRUN echo $((1<<N))\n",
        "FROM --platform=linux/amd64 a\nCOPY --chown=1:1 --from=b /x /x\n",
        "FROM a\n# syntax=later\nRUN true\n",
        "FROM a\nARG TARGET=x\n",
    ],
)  # fmt: skip
def test_what_the_engines_own_builder_understands_is_not(text: str) -> None:
    assert parse(text).buildkit == ()


def test_the_images_that_it_starts_from_are_found_and_its_own_stages_are_none() -> None:
    text = (
        "ARG VERSION=12\nARG UNSET\nFROM debian:${VERSION} AS Build\nFROM scratch\nFROM build\nFROM $UNSET\n"
        "COPY --from=build /a /a\nCOPY --from=0 /a /a\nCOPY --from=ghost:1 /b /b\nFROM ${OTHER:-alpine}\n"
    )
    assert parse(text).references() == [(3, "debian:12"), (9, "ghost:1"), (10, "alpine")]


def test_the_text_of_a_heredoc_is_no_instruction() -> None:
    read = parse("FROM a\nRUN <<ONE cat <<TWO\nFROM b\nONE\nCOPY --from=c x x\nTWO\nUSER d\n")
    assert [found.keyword for found in read.instructions] == ["FROM", "RUN", "USER"]
    assert read.references() == [(1, "a")]


def test_another_escape_character_continues_lines() -> None:
    assert [found.text for found in parse("# escape=`\nFROM a\nRUN b `\n c\\\n").instructions] == ["a", "b  c\\"]
