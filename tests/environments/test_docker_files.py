"""Archives into and out of a container, and the line to its first process: bytes that come cut anywhere."""

from __future__ import annotations

import io
import os
import stat
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.environments.base import SandboxError
from harbor_tasks.environments.docker_files import Outgoing, unpack
from harbor_tasks.environments.docker_line import Demultiplexer, File, LineClosedError
from harbor_tasks.resources import resource, script_module


def packed(folder: Path) -> bytes:
    with Outgoing() as archive:
        archive.tree(folder, "/workspace")
        return archive.finish().read()


def test_the_same_files_give_the_same_bytes_whatever_their_times_and_the_umask(tmp_path: Path) -> None:
    folders = []
    for name, umask in (("a", 0o022), ("b", 0o077)):
        before = os.umask(umask)
        try:
            root = tmp_path / name
            (root / "empty").mkdir(parents=True)
            (root / ".hidden").write_text("x")
            (root / "run me.sh").write_text("y")
            (root / "run me.sh").chmod(0o755 & ~umask)
            os.utime(root / ".hidden", (1, umask))
        finally:
            os.umask(before)
        folders.append(packed(root))
    assert folders[0] == folders[1]


def test_what_goes_in_is_roots_with_plain_modes_dotfiles_and_empty_folders(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / ".env.sample").write_text("A=1\n")
    (tmp_path / "a b.txt").write_text("hello")
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o700)
    with Outgoing() as archive:
        told = archive.tree(tmp_path, "/workspace")
        with tarfile.open(fileobj=archive.finish()) as tar:
            entries = {entry.name: entry for entry in tar}
    assert {name: entry.mode for name, entry in entries.items()} == {
        "workspace/.env.sample": 0o644, "workspace/a b.txt": 0o644, "workspace/empty": 0o755, "workspace/tool": 0o755,
    }  # fmt: skip
    assert {(entry.uid, entry.gid) for entry in entries.values()} == {(0, 0)}
    assert told["a b.txt"] == (stat.S_IFREG | 0o644, 5)
    assert stat.S_ISDIR(told["empty"][0])


def test_a_special_file_is_refused_by_name_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe"):
        packed(tmp_path)


def hostile() -> io.BytesIO:
    """An archive that tries to write outside of where it is unpacked."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:

        def add(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> None:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = kind, link, mode
            entry.size = 3 if kind == tarfile.REGTYPE else 0
            tar.addfile(entry, io.BytesIO(b"bad"))

        add("fine", mode=0o4755)
        add("closed", tarfile.DIRTYPE, mode=0o000)
        add("closed/in", mode=0o000)
        add("../outside")
        add("/tmp/absolute")
        add("link", tarfile.SYMTYPE, "/etc")
        add("link/passwd")
        add("fine")
        add("hard", tarfile.LNKTYPE, "fine")
        add("pipe", tarfile.FIFOTYPE)
        add("sub/deep")
    target.seek(0)
    return target


def test_what_comes_out_stays_below_its_folder(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    left_out = unpack(hostile(), target)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "target", "target/closed", "target/closed/in", "target/fine", "target/link",
    ]  # fmt: skip
    assert left_out == ["../outside", "/tmp/absolute", "link/passwd", "fine", "hard", "pipe", "sub/deep"]
    assert stat.S_IMODE((target / "fine").stat().st_mode) == 0o755
    assert (target / "closed" / "in").read_text() == "bad"  # the owner here can read what is kept
    assert (target / "link").readlink() == Path("/etc")


def test_an_archive_that_breaks_off_gives_what_it_held(tmp_path: Path) -> None:
    whole = packed_example(tmp_path / "source")
    (tmp_path / "target").mkdir()
    left_out = unpack(io.BytesIO(whole[:2000]), tmp_path / "target")
    assert (tmp_path / "target" / "first").read_bytes() == b"1"
    assert left_out


def packed_example(folder: Path) -> bytes:
    folder.mkdir()
    (folder / "first").write_bytes(b"1")
    (folder / "second").write_bytes(b"2" * 4000)
    with Outgoing() as archive:
        for name in ("first", "second"):
            archive.tree(folder / name, name)
        return archive.finish().read()


def engine_piece(stream: int, content: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(content)) + content


def frame(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">cI", kind, len(content)) + content


@given(
    st.lists(st.tuples(st.sampled_from([b"o", b"e", b"d"]), st.binary(max_size=40)), max_size=8),
    st.lists(st.integers(1, 12), min_size=1, max_size=30), st.lists(st.integers(1, 12), min_size=1, max_size=30),
)  # fmt: skip
def test_frames_survive_however_the_engine_and_the_network_cut_them(
    frames: list[tuple[bytes, bytes]], engine_cuts: list[int], network_cuts: list[int]
) -> None:
    inner = b"".join(frame(kind, content) for kind, content in frames)
    outer = b"".join(engine_piece(1, part) for part in pieces(inner, engine_cuts))
    stream = Demultiplexer()
    assert [found for part in pieces(outer, network_cuts) for found in stream.feed(part)] == frames


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(found) % len(sizes)]
        found.append(data[at : at + size])
        at += size
    return found


def test_what_the_conductor_itself_complains_of_is_kept_apart() -> None:
    stream = Demultiplexer()
    found = stream.feed(engine_piece(2, b"Traceback: \xff") + engine_piece(1, frame(b"o", b"caf\xc3")))
    assert found == [(b"o", b"caf\xc3")]
    assert bytes(stream.complaints) == b"Traceback: \xff"


def test_what_the_conductor_does_not_pack_is_named_with_its_reason(tmp_path: Path) -> None:
    conductor = script_module("conductor")
    line, workspace = conductor.Line(), tmp_path / "workspace"
    sent = bytearray()
    line.send = lambda _kind, content: sent.extend(content)
    (workspace / ("d/" * 120)).mkdir(parents=True)
    (workspace / ("d/" * 99) / "deepest").touch()
    os.mkfifo(workspace / "fifo")
    for name, size in (("huge", 1 << 42), ("large", 101), ("whole", 100), ("more", 1)):
        (workspace / name).touch()
        os.truncate(workspace / name, size)
    reply = conductor.pack(line, {"path": str(workspace), "limit": 101})
    assert sorted(reply["left_out"]) == [
        f"{'d/' * 99}d (more than 99 folders deep)", "fifo (a FIFO)",
        "huge (4398046511104 bytes; no more than 101 bytes are kept)",
        "more (1 bytes; no more than 101 bytes are kept)", "whole (100 bytes; no more than 101 bytes are kept)",
    ]  # fmt: skip
    (tmp_path / "target").mkdir()
    assert unpack(io.BytesIO(bytes(sent)), tmp_path / "target") == []
    assert {p.name for p in (tmp_path / "target").rglob("*") if p.is_file()} == {"large", "deepest"}


def test_the_conductor_removes_a_tree_of_any_depth_and_no_file_behind_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    (doomed / "link").symlink_to(outside)
    at = str(doomed)
    for _ in range(1500):
        at += "/d"
        os.mkdir(at)  # noqa: PTH102
    script_module("conductor").remove(str(doomed))
    assert not doomed.exists()
    script_module("conductor").remove(str(doomed))
    assert (outside / "sub").is_dir()


@pytest.mark.pythons
def test_the_conductor_does_nothing_but_as_the_first_process_of_a_container(pythons: tuple[Path, ...]) -> None:
    for python in pythons:  # it ends all other processes: never those of a machine
        done = subprocess.run(
            [python, "-I", "-S", resource("interceptor", "conductor.py")],
            input='{"do": "run", "argv": ["true"], "timeout": 1, "limit": 1}\n',
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1, python
        assert (done.stdout, done.stderr) == (
            "", "conductor: only the first process of a container may run this, as root\n",
        )  # fmt: skip


def test_a_length_that_would_fill_the_memory_ends_the_line() -> None:
    stream = Demultiplexer()
    with pytest.raises(LineClosedError):
        stream.feed(engine_piece(1, struct.pack(">cI", b"r", 1 << 31)))


def test_more_than_was_asked_for_is_an_error_and_not_kept(tmp_path: Path) -> None:
    with File(tmp_path / "log", 4) as sink:
        sink(b"abcd")
        with pytest.raises(SandboxError):
            sink(b"e")
    assert (tmp_path / "log").read_bytes() == b"abcd"
