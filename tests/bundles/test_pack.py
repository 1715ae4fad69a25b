"""`pack` and `unpack`: the same bytes anywhere, nothing lost, nothing packed that was not built."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest
import zstandard

from harbor_tasks.bundles import BundleInfo, inspect, pack, unpack
from harbor_tasks.bundles.archive import write
from harbor_tasks.bundles.format import TRAILER_SIZE, header
from harbor_tasks.bundles.listing import listed
from harbor_tasks.bundles.names import default_name
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

from .kit import FILES, IMAGE, Forge, members_of, snapshot, write_project

PACK = """
import os, sys, time
from pathlib import Path
os.umask(int(sys.argv[3], 8))
os.chdir(sys.argv[4])
time.tzset()
from harbor_tasks.bundles import PackedImage, pack
from harbor_tasks.tasks.build import build
root = Path(sys.argv[1])
build(root, root / "out")
print(pack(root / "out", Path(sys.argv[2]), images=[PackedImage(*sys.argv[5:7])], environ={}).digest)
"""


def packed_elsewhere(root: Path, file: Path, *, umask: str, cwd: Path, **environ: str) -> str:
    command: list[str | Path] = [sys.executable, "-c", PACK, root, file, umask, cwd, IMAGE.name, IMAGE.digest]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=True)
    return str(done.stdout).strip()


def test_the_same_eval_is_the_same_bundle_on_any_machine(tmp_path: Path, packed: BundleInfo) -> None:
    here = write_project(tmp_path / "here" / "deep")
    there = write_project(tmp_path / "there", backwards=True)
    for path in there.rglob("*"):
        os.utime(path, (1, 1))
    first = packed_elsewhere(
        here, tmp_path / "a.hpb", umask="022", cwd=tmp_path, TZ="UTC", PYTHONHASHSEED="1", LC_ALL="C.UTF-8"
    )
    second = packed_elsewhere(
        there, tmp_path / "b.hpb", umask="077", cwd=there, TZ="Asia/Tokyo", PYTHONHASHSEED="2", LC_ALL="C",
        HOME=str(tmp_path), USER="somebody",
    )  # fmt: skip
    assert first == second == packed.digest
    assert (tmp_path / "a.hpb").read_bytes() == (tmp_path / "b.hpb").read_bytes() == packed.file.read_bytes()


def test_the_archive_says_nothing_of_who_packed_it(packed: BundleInfo, built: Path) -> None:
    data = packed.file.read_bytes()[:-TRAILER_SIZE]
    plain = zstandard.ZstdDecompressor().stream_reader(BytesIO(data)).read()
    with tarfile.open(fileobj=BytesIO(plain)) as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == sorted((m.name for m in members), key=str.encode)
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime, m.mode, m.type) for m in members} == {
        (0, 0, "", "", 0, 0o644, tarfile.REGTYPE)
    }
    for text in (str(built.parent), os.uname().nodename, "state.json"):
        assert text.encode() not in plain


def test_headers_are_those_of_any_tar() -> None:
    for size in (0, 5, 511, 8 << 30, 1 << 40):
        block = header("sha256/00000001-" + "a" * 64, size)
        member = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        assert len(block) == 512
        assert (member.size, member.mode, member.isreg(), member.name[:6]) == (size, 0o644, True, "sha256")


def test_identical_content_is_in_it_once(packed: BundleInfo, built: Path) -> None:
    contents = Counter(content for name, content in members_of(packed.file) if name.startswith("sha256/"))
    assert set(contents.values()) == {1}
    assert packed.blobs == len(contents) < packed.files
    assert contents[b"same\n"] == 1
    assert contents[(built / "one/tests/verify.py").read_bytes()] == 1


def test_everything_comes_out_as_it_was_built(packed: BundleInfo, built: Path, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        assert unpack(packed.file, tmp_path / "in/to", expect=packed.digest) == packed
    finally:
        os.umask(old)
    was, found = snapshot(built), snapshot(tmp_path / "in/to")
    was.pop(".harbor-pack/state.json")
    for name in (".harbor-pack/bundle.json", ".harbor-pack/files.jsonl", ".harbor-pack/pulled.json", "dataset.toml",
                 "registry.json"):  # fmt: skip
        assert found.pop(name)[0] == 0o644
    assert found == was
    assert found["one/environment/files/bin/run"][0] == 0o755
    assert found["two/environment/files/nothing/here"] == (0o755, None)
    assert found["one/environment/files/deep/er/b.bin"][1] == FILES["one/files/deep/er/b.bin"]
    assert (tmp_path / "in/to").stat().st_mode & 0o777 == 0o755


def test_what_was_unpacked_is_packed_to_the_same_bundle(packed: BundleInfo, tmp_path: Path) -> None:
    unpack(packed.file, tmp_path / "t")
    assert pack(tmp_path / "t", tmp_path / "again.hpb", images=[IMAGE], environ={}).digest == packed.digest


def test_the_head_says_what_is_packed(packed: BundleInfo, built: Path) -> None:
    manifest, head = read_manifest(built), packed.manifest
    assert head["schema"] == 1
    assert head["eval"] == {"name": "shop", "version": "1.2", "description": "orders – and „refunds“"}
    assert head["images"] == [{"name": IMAGE.name, "digest": IMAGE.digest}]
    assert head["tools"]["built by"] == head["tools"]["packed by"] == manifest.tool
    assert [probe["name"] for probe in head["probes"]] == ["p"]
    assert head["counts"]["tasks"] == packed.tasks == 2
    lines = Forge(members_of(packed.file)).lines()
    assert [line["path"] for line in lines] == sorted((line["path"] for line in lines), key=lambda p: p.split("/"))
    assert head["counts"]["files"] == packed.files == sum("blob" in line for line in lines)
    assert head["counts"]["bytes"] == sum(line.get("size", 0) for line in lines)


def test_inspect_says_what_pack_said(packed: BundleInfo) -> None:
    assert inspect(packed.file) == packed
    assert packed.size == packed.file.stat().st_size
    assert json.loads(json.dumps(packed.as_json()))["digest"] == packed.digest


def test_another_image_is_another_bundle(built: Path, packed: BundleInfo, tmp_path: Path) -> None:
    assert pack(built, tmp_path / "x.hpb", environ={}).digest != packed.digest


def test_modes_of_a_copy_do_not_matter(tasks: Path, packed: BundleInfo, tmp_path: Path) -> None:
    for path in tasks.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
    assert pack(tasks, tmp_path / "x.hpb", images=[IMAGE], environ={}).digest == packed.digest


def test_what_was_changed_since_the_build_is_refused_by_task(tasks: Path, tmp_path: Path) -> None:
    with (tasks / "two/task.toml").open("a") as file:
        file.write("# more\n")
    with pytest.raises(AuthorError, match="tasks/two: its files are not those that were built"):
        pack(tasks, tmp_path / "x.hpb", environ={})
    assert not list(tmp_path.glob("*.hpb"))


@pytest.mark.parametrize("gone", ["two/task.toml", "two"])
def test_what_is_gone_since_the_build_is_refused(tasks: Path, tmp_path: Path, gone: str) -> None:
    shutil.rmtree(tasks / gone) if gone == "two" else (tasks / gone).unlink()
    with pytest.raises(AuthorError, match=r"two: (its files are not|is not there)"):
        pack(tasks, tmp_path / "x.hpb", environ={})


def test_a_changed_layer_is_refused(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p")
    (root / ".git").mkdir()
    (root / ".claude/skills/pay").mkdir(parents=True)
    (root / ".claude/skills/pay/SKILL.md").write_text("---\nname: pay\ndescription: pays\n---\n")
    tasks = build(root, root / "out").out
    pack(tasks, tmp_path / "x.hpb", environ={})
    skill = next((tasks / ".harbor-pack/layer").rglob("SKILL.md"))
    skill.write_text("changed")
    with pytest.raises(AuthorError, match="not those that the image is named after"):
        pack(tasks, tmp_path / "x.hpb", environ={})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda task: (task / "link").symlink_to("task.toml"), "one/link: is a link"),
        (lambda task: os.mkfifo(task / "pipe"), "one/pipe: is a pipe"),
        (lambda task: (task / "TASK.toml").touch(), "differs from one/TASK.toml by case"),
        (lambda task: (task / "a\\b").touch(), "backslash"),
        (lambda task: (task / "new\nline").touch(), "control character"),
        (lambda task: (task / "é").touch() or (task / "e\u0301").touch(), "by case or accents only"),
    ],
)
def test_names_and_kinds_that_pull_would_refuse_are_refused(tasks: Path, tmp_path: Path, make, says: str) -> None:  # type: ignore[no-untyped-def]
    make(tasks / "one")
    with pytest.raises(AuthorError, match=says):
        pack(tasks, tmp_path / "x.hpb", environ={})


def test_strangers_and_this_machines_own_files_are_left_out(tasks: Path, packed: BundleInfo, tmp_path: Path) -> None:
    (tasks / "notes").mkdir()
    (tasks / "notes/mine.txt").write_text("not part of the eval")
    (tasks / ".harbor-pack/new-1").mkdir()
    assert pack(tasks, tmp_path / "x.hpb", images=[IMAGE], environ={}).digest == packed.digest


def test_a_build_that_is_writing_is_waited_for_by_the_user(tasks: Path, tmp_path: Path) -> None:
    handle = os.open(tasks / ".harbor-pack", os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(AuthorError, match="a build is writing here"):
            pack(tasks, tmp_path / "x.hpb", environ={})
    finally:
        os.close(handle)


@pytest.mark.parametrize("path", ["one/task.toml", "two/environment/files/large.bin"])
def test_a_file_that_changes_while_it_is_packed_stops_it(tasks: Path, tmp_path: Path, path: str) -> None:
    out = tmp_path / "x.hpb"
    out.write_bytes(b"old")
    with listed(tasks) as listing:
        (tasks / path).write_bytes((tasks / path).read_bytes()[::-1])
        with pytest.raises(MachineError, match=f"{path}: was changed while it was packed"):
            write(listing, out)
    assert out.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tasks", "x.hpb"]


def test_a_place_that_cannot_be_written_is_the_authors(built: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path, tmp_path / "file/x.hpb"):
        with pytest.raises(AuthorError, match=r"is a folder|cannot be written"):
            pack(built, out, environ={})
    with pytest.raises(AuthorError, match="not a folder of built tasks"):
        pack(tmp_path, tmp_path / "x.hpb", environ={})


def test_the_files_name_is_the_evals(built: Path) -> None:
    assert str(default_name(built)) == "shop-1.2.hpb"
