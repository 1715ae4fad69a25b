"""An eval with all that a bundle must keep, the members of its bundle, and how to put broken ones together."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

from harbor_tasks.bundles import PackedImage
from harbor_tasks.bundles.format import END, TRAILER_SIZE, checksum_of, header, padding, trailer

IMAGE = PackedImage("harbor-pack/shop:0123456789abcdef", "sha256:" + "5" * 64)
EVAL = {
    "name": "shop", "version": "1.2", "description": "orders – and „refunds“", "dataset": {"path": "cases"},
    "execution": {"prompt": "{{ input.prompt }}", "env": {"SHOP_TOKEN": "$SHOP_TOKEN"}},
    "probes": [{"name": "p", "tool": "Read", "expect": "none"}],
}  # fmt: skip
FILES: dict[str, bytes] = {
    "one/files/a.txt": b"same\n", "one/files/deep/er/b.bin": bytes(range(256)) * 40, "one/files/Ünïcode ä.txt": b"3",
    "one/files/empty.txt": b"", "one/answers.yaml": b"Which?: that\n", "one/reference.md": b"# right\n",
    "two/files/again.txt": b"same\n", "two/files/large.bin": b"0123456789abcdef" * 90_000, "two/files/A.txt": b"2",
    "two/solution/solve.sh": b"#!/bin/sh\necho done > out.txt\n",
}  # fmt: skip
SCRIPTS = {"one/files/bin/run": b"#!/bin/sh\ntrue\n"}


def write_project(root: Path, *, backwards: bool = False, **keys: Any) -> Path:
    """An eval with two cases: scripts, empty files and folders, names beyond ASCII, the same content twice."""
    files = {**{f"{case}/input.yaml": f"prompt: do {case}\n".encode() for case in ("one", "two")}, **FILES, **SCRIPTS}
    for path in sorted(files, reverse=backwards):
        file = root / "cases" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(files[path])
        file.chmod(0o755 if path in SCRIPTS else 0o644)
    (root / "cases/two/files/nothing/here").mkdir(parents=True)
    (root / "eval.yaml").write_text(json.dumps({**EVAL, **keys}, ensure_ascii=False), encoding="utf-8")
    return root


@dataclass
class Forge:
    """Members of a bundle, to be changed and put together again with digests that fit, unless they are not to."""

    members: list[tuple[str, bytes]]
    raw: dict[str, bytes] = field(default_factory=dict)
    """Headers in place of the right ones, by member."""

    def get(self, name: str) -> bytes:
        """A member's content."""
        return next(content for member, content in self.members if member == name)

    def set(self, name: str, content: bytes) -> None:
        """Another content for a member."""
        self.members = [(member, content if member == name else old) for member, old in self.members]

    def lines(self) -> list[dict[str, Any]]:
        """files.jsonl as data."""
        return [json.loads(line) for line in self.get("files.jsonl").splitlines()]

    def set_lines(self, lines: Iterable[dict[str, Any] | bytes]) -> None:
        """Another files.jsonl, and a head that fits it."""
        encoded = (
            line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()
            for line in lines
        )  # fmt: skip
        self.set("files.jsonl", b"".join(line + b"\n" for line in encoded))
        self.fit()

    def change(self, index: int, **keys: Any) -> None:
        """Other values in a line of files.jsonl, in the order that the keys have there."""
        lines = self.lines()
        lines[index] |= keys
        self.set_lines(lines)

    def fit(self, **head: Any) -> None:
        """A head whose digests and counts fit the members; ``head`` are other keys of it."""
        data = json.loads(self.get("bundle.json"))
        for name in data["members"]:
            content = self.get(name)
            data["members"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        try:
            lines = self.lines()
            files = [line for line in lines if "blob" in line]
            data["counts"] |= {
                "files": len(files), "folders": len(lines) - len(files), "bytes": int(sum(f["size"] for f in files)),
                "blobs": max(f["blob"] for f in files) + 1,
                "tasks": len({line["path"].split("/")[0] for line in lines} - {".harbor-pack"}),
            }  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # lines that are not what they should be
        data |= head
        self.set("bundle.json", (json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode())

    def tar(self) -> bytes:
        """The archive."""
        parts = []
        for name, content in self.members:
            parts += [self.raw.get(name, header(name, len(content))), content, padding(len(content))]
        return b"".join(parts) + END

    def write(self, path: Path, tar: bytes | None = None, *, after: bytes = b"", window_log: int = 21) -> Path:
        """The bundle with a trailer that fits."""
        tar = self.tar() if tar is None else tar
        parameters = zstandard.ZstdCompressionParameters.from_level(
            1, window_log=window_log, write_checksum=1, write_content_size=0
        )
        compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        data = compressor.compress(tar) + compressor.flush() + after
        head = hashlib.sha256(self.get("bundle.json")).digest()
        path.write_bytes(data + trailer(hashlib.sha256(tar).digest(), head, checksum_of(data)))
        return path


def members_of(file: Path) -> list[tuple[str, bytes]]:
    """The members of a bundle, read by other means than the product's."""
    data = file.read_bytes()[:-TRAILER_SIZE]
    plain = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as tar:
        return [(member.name, (tar.extractfile(member) or io.BytesIO()).read()) for member in tar.getmembers()]


Snapshot = dict[str, tuple[int, bytes | None]]


def snapshot(root: Path) -> Snapshot:
    """All paths below a folder: mode, and content of files."""
    found: Snapshot = {}
    for path in sorted(root.rglob("*")):
        content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (path.stat().st_mode & 0o7777, content)
    return found
