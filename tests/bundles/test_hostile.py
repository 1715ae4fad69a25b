"""Bundles that nobody's `bundle` wrote: each is refused with what is wrong named, and nothing is left behind."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.bundles import BundleInfo, Limits, inspect, unpack, verify
from harbor_tasks.bundles.format import TRAILER_SIZE, canonical, header
from harbor_tasks.errors import AuthorError, MachineError

from .kit import Forge

LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}


def refused(file: Path, *, limits: Limits | None = None, expect: str | None = None) -> str:
    """Why a bundle is refused, by both ways in; nothing may be left where it was to go."""
    with pytest.raises(AuthorError) as seen:
        inspect(file, limits=limits, expect=expect)
    place = file.parent / "place"
    place.mkdir()
    with pytest.raises(AuthorError) as caught:
        unpack(file, place / "new/into", limits=limits, expect=expect)
    assert list(place.iterdir()) == []
    place.rmdir()
    assert str(caught.value) == str(seen.value)
    return str(caught.value)


def line_of(forge: Forge, end: str) -> int:
    return next(i for i, line in enumerate(forge.lines()) if line["path"].endswith(end))


def test_parts_put_together_again_are_the_bundle(forge: Forge, packed: BundleInfo, tmp_path: Path) -> None:
    forge.fit()
    assert inspect(forge.write(tmp_path / "x.hpb")).digest == packed.digest


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/etc/cron.d/x", "is an absolute path"),
        ("one/../../x", "leads out of its folder"),
        ("../x", "leads out of its folder"),
        ("one/./x", "has no name"),
        ("one//x", "has no name"),
        ("one/", "has no name"),
        ("", "has no name"),
        ("one\\..\\x", "backslash"),
        ("one/a\0b", "control character"),
        ("one/a\nb", "control character"),
        ("one/a\x1b[31m", "control character"),
        ("one/" + "n" * 256, "longer than 255 bytes"),
        ("one/" + "ä" * 128, "longer than 255 bytes"),
        ("one/" + "/".join(["n" * 250] * 5), "longer than 1024 bytes"),
        ("x", "where no build writes"),
        ("registry.json", "where no build writes"),
        (".harbor-pack/state.json", "where no build writes"),
        (".harbor-pack/bundle.json", "where no build writes"),
        (".harbor-pack/new-1/x", "where no build writes"),
    ],
)
def test_paths_that_lead_elsewhere_are_refused(forge: Forge, tmp_path: Path, path: str, says: str) -> None:
    lines = forge.lines()
    lines[-1]["path"] = path
    forge.set_lines(lines)
    said = refused(forge.write(tmp_path / "x.hpb"))
    assert says in said
    assert "\x1b" not in said.replace(path, "")


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ("two/zz/Same.txt", "two/zz/same.txt", "by case or accents only"),
        ("two/zz/A/x", "two/zz/a/y", "by case or accents only"),
        ("two/zz/e\u0301", "two/zz/\xe9", "by case or accents only"),
        ("two/zz/stra\xdfe", "two/zz/strasse", "by case or accents only"),
        ("two/zz/a", "two/zz/a", "there twice"),
        ("two/zz/b", "two/zz/a", "out of order"),
        ("two/zz/a", "two/zz/a/b", "which is no folder"),
        ("two/zz/a", "one/zz", "out of order"),
    ],
)
def test_two_files_for_one_place_are_refused(forge: Forge, tmp_path: Path, first: str, second: str, says: str) -> None:
    lines = forge.lines()
    copy = dict(lines[-1])
    names = (
        [first, second] if "order" in says or "twice" in says else sorted([first, second], key=lambda p: p.split("/"))
    )
    forge.set_lines([*lines, copy | {"path": names[0]}, copy | {"path": names[1]}])
    assert says in refused(forge.write(tmp_path / "x.hpb"))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"mode": "4755"}, "has the mode 4755"),
        ({"mode": "0777"}, "has the mode 777"),
        ({"mode": "0600"}, "has the mode 600"),
        ({"mode": "rwx"}, "of the list"),
        ({"mode": 493}, "of the list"),
        ({"size": -1}, "a number that cannot be"),
        ({"size": True}, "a number that cannot be"),
        ({"size": 1e9}, "a number that cannot be"),
        ({"size": 7}, "but not its digest"),
        ({"blob": 10**9}, "out of its order"),
        ({"blob": -5}, "a number that cannot be"),
        ({"sha256": "0" * 64}, "but not its digest"),
        ({"sha256": "Z" * 64}, "no SHA-256"),
        ({"sha256": None}, "of the list"),
        ({"path": ["one", "x"]}, "of the list"),
        ({"path": 5}, "of the list"),
        ({"link": "/etc/passwd"}, "not written as it should be"),
    ],
)
def test_lines_that_no_bundle_has_are_refused(forge: Forge, tmp_path: Path, keys: dict[str, Any], says: str) -> None:
    forge.change(line_of(forge, "again.txt"), **keys)  # a content that stands in the list before
    assert says in refused(forge.write(tmp_path / "x.hpb"))


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b"null", b"{}", b"\xff\xfe", b'{"path": "one/x"}', b"", b'"' + b"x" * 70_000]
)
def test_a_list_that_is_none_is_refused(forge: Forge, tmp_path: Path, line: bytes) -> None:
    forge.set_lines([line])
    assert "of the list" in refused(forge.write(tmp_path / "x.hpb"))


@pytest.mark.parametrize(
    ("member", "says"),
    [
        (LINK, "a link named"),
        ({"type": tarfile.LNKTYPE, "linkname": "bundle.json"}, "a hard link named"),
        ({"type": tarfile.CHRTYPE}, "a device named"),
        ({"type": tarfile.FIFOTYPE}, "a pipe named"),
        ({"type": tarfile.DIRTYPE}, "a folder named"),
        ({"type": tarfile.GNUTYPE_SPARSE}, "stands in its place"),
        ({"name": "../../x"}, "named '../../x'"),
        ({"name": "/etc/x"}, "named '/etc/x'"),
        ({"name": "sha256/00000002-" + "0" * 64}, "another member stands in its place"),
        ({"mode": 0o4755}, "another member stands in its place"),
        ({"uid": 1000}, "another member stands in its place"),
        ({"mtime": 1}, "another member stands in its place"),
        ({"size": 1 << 50}, "another member stands in its place"),
    ],
)
def test_members_of_another_kind_are_refused(
    forge: Forge, tmp_path: Path, member: dict[str, Any], says: str
) -> None:  # fmt: skip
    name, content = forge.members[6]
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in member.items():
        setattr(info, key, value)
    forge.raw[name] = info.tobuf(tarfile.GNU_FORMAT)
    said = refused(forge.write(tmp_path / "x.hpb"))
    assert says in said
    assert name in said


def test_a_pax_header_is_no_way_to_another_name(forge: Forge, tmp_path: Path) -> None:
    name, content = forge.members[6]
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.pax_headers = {"path": "/etc/x"}
    forge.raw[name] = info.tobuf(tarfile.PAX_FORMAT)
    assert "another member stands in its place" in refused(forge.write(tmp_path / "x.hpb"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m[:-1], "another member stands in its place: no tar header"),
        (lambda m: [*m, ("sha256/more", b"x")], "more members follow than its list names"),
        (lambda m: [*m, m[-1]], "more members follow than its list names"),
        (
            lambda m: [m[1], m[0], *m[2:]],
            "bundle.json: another member stands in its place: a file named 'dataset.toml'",
        ),
        (lambda m: [*m[:6], m[7], m[6], *m[8:]], "another member stands in its place"),
        (lambda m: m[1:], "bundle.json: another member stands in its place"),
        (lambda _m: [], "bundle.json: another member stands in its place"),
    ],
)
def test_members_that_are_missing_more_or_elsewhere_are_refused(
    forge: Forge, tmp_path: Path, change: Callable[[Any], Any], says: str
) -> None:
    members = forge.members
    forge.members = change(members)
    tar = forge.tar()
    forge.members = members
    assert says in refused(forge.write(tmp_path / "x.hpb", tar))


@pytest.mark.parametrize(
    ("end", "index"), [("environment/files/a.txt", 0), ("b.bin", 9000), ("large.bin", 1_300_000), ("build.json", 5)]
)
def test_another_content_is_refused_by_the_name_of_its_file(
    forge: Forge, tmp_path: Path, end: str, index: int
) -> None:  # fmt: skip
    line = forge.lines()[line_of(forge, end)]
    name = f"sha256/{line['blob']:08d}-{line['sha256']}"
    content = bytearray(forge.get(name))
    content[index] ^= 1
    forge.set(name, bytes(content))
    first = next(one["path"] for one in forge.lines() if one.get("blob") == line["blob"])
    said = refused(forge.write(tmp_path / "x.hpb"))
    assert f"{first}: is not what its digest says" in said


@pytest.mark.parametrize("name", ["dataset.toml", "files.jsonl", "registry.json"])
def test_another_list_is_refused_by_its_name(forge: Forge, tmp_path: Path, name: str) -> None:
    forge.set(name, forge.get(name).replace(b"one", b"two", 1))
    assert f"{name}: is not what its digest in bundle.json says" in refused(forge.write(tmp_path / "x.hpb"))


def test_parts_that_do_not_agree_are_refused(forge: Forge, tmp_path: Path) -> None:
    forge.set("registry.json", forge.get("registry.json").replace(b'"path": "one"', b'"path": "/etc"'))
    forge.fit()
    assert "registry.json: does not fit build.json" in refused(forge.write(tmp_path / "x.hpb"))


def test_a_task_that_is_not_what_build_json_says_is_refused(forge: Forge, tmp_path: Path) -> None:
    lines = forge.lines()
    forge.set_lines([line for line in lines if not line["path"].endswith("again.txt")])
    assert "two: is not the task that build.json has the digest of" in refused(forge.write(tmp_path / "x.hpb"))


def test_a_bundle_without_build_json_is_refused(forge: Forge, tmp_path: Path) -> None:
    gone = line_of(forge, "build.json")
    lines = forge.lines()
    number = lines[gone]["blob"]
    members = []
    for name, content in forge.members:
        if name.startswith("sha256/"):
            place, digest = name[7:].split("-")
            if int(place) == number:
                continue
            name = f"sha256/{int(place) - (int(place) > number):08d}-{digest}"
        members.append((name, content))
    forge.members = members
    kept = [line for line in lines if line.get("blob") != number]
    forge.set_lines(
        line | {"blob": line["blob"] - (line["blob"] > number)} if "blob" in line else line for line in kept
    )
    assert "build.json: is missing" in refused(forge.write(tmp_path / "x.hpb"))


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ({"schema": 2}, "is a bundle of version 2, and this harbor-pack reads version 1"),
        ({"schema": None}, "is no head of a bundle (schema)"),
        ({"schema": True}, "is no head of a bundle (schema)"),
        ({"schema": "2\n\nerror: another"}, "is no head of a bundle (schema)"),
        ({"images": 5}, "is no head of a bundle"),
        ({"images": [{"name": "x"}]}, "is no head of a bundle"),
        ({"members": {}}, "is no head of a bundle"),
        ({"counts": {}}, "is no head of a bundle"),
        ({"eval": None}, "is no head of a bundle"),
        ({"eval": {"name": "other", "version": "1.2"}}, "names another eval than build.json"),
    ],
)
def test_a_head_that_is_none_is_refused(forge: Forge, tmp_path: Path, head: dict[str, Any], says: str) -> None:
    forge.fit(**head)
    assert says in refused(forge.write(tmp_path / "x.hpb"))


@pytest.mark.parametrize("key", ["files", "folders", "bytes", "blobs", "tasks"])
def test_counts_that_are_wrong_are_refused(forge: Forge, tmp_path: Path, key: str) -> None:
    counts = json.loads(forge.get("bundle.json"))["counts"]
    forge.fit(counts=counts | {key: counts[key] + 1})
    assert f"bundle.json: says {counts[key] + 1} {key}" in refused(forge.write(tmp_path / "x.hpb"))


def test_limits_are_held_before_anything_is_written(forge: Forge, packed: BundleInfo, tmp_path: Path) -> None:
    file = forge.write(tmp_path / "x.hpb")
    assert "more than 5 files are listed" in refused(file, limits=Limits(files=5))
    assert "larger than 1000 bytes, which is the limit" in refused(file, limits=Limits(total=1000))
    assert "bundle.json: is larger than the limit of 100 bytes" in refused(file, limits=Limits(head=100))
    assert "is larger than the limit of 100 bytes" in refused(file, limits=Limits(index=100))
    head = len(forge.get("bundle.json"))
    assert "build.json: is larger than the limit" in refused(file, limits=Limits(head=head))
    total = packed.manifest["counts"]["bytes"]
    assert inspect(file, limits=Limits(total=total, files=packed.files + 1)).digest == packed.digest


def test_what_is_held_in_memory_is_bounded(forge: Forge, tmp_path: Path) -> None:
    build = next(line for line in forge.lines() if line["path"] == ".harbor-pack/build.json")
    forge.change(forge.lines().index(build), size=256 << 20)
    digest = build["sha256"]
    for index, (name, content) in enumerate(forge.members):
        if name.endswith(f"-{digest}"):
            forge.members[index:] = [(name, content)]
            forge.raw[name] = header(name, 256 << 20)
    assert "build.json: is larger than the limit of 67108864 bytes" in refused(forge.write(tmp_path / "x.hpb"))
    forge.fit()
    head = json.loads(forge.get("bundle.json"))
    head["members"]["registry.json"]["size"] = 256 << 20
    forge.set("bundle.json", canonical(head))
    forge.raw["registry.json"] = header("registry.json", 256 << 20)
    assert "registry.json: is larger than the limit of 67108864 bytes" in refused(forge.write(tmp_path / "x.hpb"))


def test_copies_count_for_the_limit(forge: Forge, tmp_path: Path) -> None:
    lines = forge.lines()
    large = next(line for line in lines if line["path"].endswith("large.bin"))
    forge.set_lines([*lines, *(large | {"path": f"two/z{i:04}"} for i in range(2000))])
    assert "larger than 1000000000 bytes" in refused(forge.write(tmp_path / "x.hpb"), limits=Limits(total=10**9))


BOMB = """
import sys
from pathlib import Path
from harbor_tasks.bundles import unpack
try:
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
except Exception as error:
    print(type(error).__name__, error)
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""


@pytest.mark.parametrize("place", ["head", "content"])
def test_a_bomb_is_neither_unpacked_nor_held_in_memory(forge: Forge, tmp_path: Path, place: str) -> None:
    zeros = 3 << 30
    prefix = b"" if place == "head" else forge.tar()[: -2 * 512]
    name = "bundle.json" if place == "head" else "sha256/bomb"
    import zstandard

    from harbor_tasks.bundles.format import checksum_of, trailer

    file = tmp_path / "x.hpb"
    compressor = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters.from_level(
            1, window_log=21, write_checksum=1, write_content_size=0
        )
    ).compressobj()
    data = compressor.compress(prefix + header(name, zeros))
    for _ in range(zeros >> 24):
        data += compressor.compress(bytes(1 << 24))
    data += compressor.flush()
    file.write_bytes(data + trailer(b"0" * 32, b"0" * 32, checksum_of(data)))
    done = subprocess.run(
        [sys.executable, "-c", BOMB, file, tmp_path / "into"], capture_output=True, text=True, check=True, timeout=60
    )
    said, peak = done.stdout.strip().splitlines()
    assert said.startswith("BrokenBundleError")
    assert int(peak) < 150
    assert len(data) < 2 << 20
    assert [p.name for p in tmp_path.iterdir()] == ["x.hpb"]


def test_a_window_that_would_take_much_memory_is_refused(forge: Forge, tmp_path: Path) -> None:
    assert "not that of a bundle" in refused(forge.write(tmp_path / "x.hpb", window_log=27))


@pytest.mark.parametrize(
    "after", [b"x", b"\x28\xb5\x2f\xfd", bytes(1000), b"\x28\xb5\x2f\xfd\x24\x01\x09\x00\x00x\x00\x00\x00\x00"]
)
def test_bytes_after_the_archive_are_refused(forge: Forge, tmp_path: Path, after: bytes) -> None:
    assert "bytes follow the end of the archive" in refused(forge.write(tmp_path / "x.hpb", after=after))


def test_a_second_archive_after_the_first_is_refused(forge: Forge, tmp_path: Path) -> None:
    second = forge.write(tmp_path / "second").read_bytes()[:-TRAILER_SIZE]
    assert "bytes follow the end of the archive" in refused(forge.write(tmp_path / "x.hpb", after=second))


def test_padding_that_is_not_empty_is_refused(forge: Forge, tmp_path: Path) -> None:
    tar = bytearray(forge.tar())
    tar[512 + len(forge.get("bundle.json"))] = 1
    assert "bundle.json: bytes follow its end" in refused(forge.write(tmp_path / "x.hpb", bytes(tar)))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_part_of_a_bundle_is_refused(packed: BundleInfo, tmp_path: Path, share: float) -> None:
    file = tmp_path / "x.hpb"
    file.write_bytes(packed.file.read_bytes()[: int(packed.size * share)])
    assert "its end is missing or broken" in refused(file)


def test_a_trailer_of_another_bundle_is_refused(packed: BundleInfo, forge: Forge, tmp_path: Path) -> None:
    data = packed.file.read_bytes()
    forge.fit(images=[])
    other = forge.write(tmp_path / "o.hpb").read_bytes()
    (tmp_path / "x.hpb").write_bytes(data[:-TRAILER_SIZE] + other[-TRAILER_SIZE:])
    assert "bundle.json: is not what its digest in the trailer says" in refused(tmp_path / "x.hpb")


def test_another_digest_than_the_one_asked_for_is_refused(packed: BundleInfo, tmp_path: Path) -> None:
    file = tmp_path / "x.hpb"
    file.write_bytes(packed.file.read_bytes())
    assert f"its digest is {packed.digest}, not sha256:0" in refused(file, expect="sha256:" + "0" * 64)


@pytest.mark.parametrize(
    "make", [lambda p: p.mkdir(), lambda p: os.mkfifo(p), lambda p: p.write_bytes(b"x" * 500), lambda p: None]
)
def test_what_is_no_bundle_is_refused(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    make(tmp_path / "x.hpb")
    said = refused(tmp_path / "x.hpb")
    assert any(says in said for says in ("is a folder", "is no bundle", "cannot be read", "is no file"))


def test_a_place_that_is_taken_is_refused(packed: BundleInfo, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("full", "full/x", "link"):
        with pytest.raises(AuthorError, match="is there already"):
            unpack(packed.file, tmp_path / name)
    (tmp_path / "empty").mkdir()
    assert unpack(packed.file, tmp_path / "empty").tasks == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "full", "link"]


def test_a_disk_without_room_is_said_before_it_is_full(
    packed: BundleInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: shutil._ntuple_diskusage(10**6, 10**6 - 10, 10))
    with pytest.raises(MachineError, match="and 10 are free"):
        unpack(packed.file, tmp_path / "into")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_leaves_nothing(packed: BundleInfo, tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from pathlib import Path; from harbor_tasks.bundles import unpack\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
        "unpack(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, packed.file, tmp_path / "into"], capture_output=True, text=True, check=False
    )
    assert "MachineError" in done.stderr
    assert "cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 500_000


def test_temporary_files_without_room_are_said_by_their_place(
    packed: BundleInfo, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_keys: open("/dev/full", "r+b", buffering=0))  # noqa: PTH123, SIM115
    works: list[Callable[[], BundleInfo]] = [
        lambda: inspect(packed.file), lambda: unpack(packed.file, tmp_path / "into"), lambda: verify(built),
    ]  # fmt: skip
    for work in works:
        with pytest.raises(MachineError, match=f"{tempfile.gettempdir()}: cannot be written .No space left"):
            work()
    assert list(tmp_path.iterdir()) == []
