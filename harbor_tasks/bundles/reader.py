"""Checks a bundle from its first byte to its last, and hands out its files while it does.

Nothing of it is believed: the list is checked against the head, each content against the list, the whole against the
trailer, and each task against build.json. What is handed out was checked already, except for large contents, whose
check ends with their last byte.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from pydantic import ValidationError

from harbor_tasks.bundles.aside import Aside
from harbor_tasks.bundles.format import (
    DATASET,
    HEAD,
    INDEX,
    REGISTRY,
    SCHEMA,
    BundleInfo,
    Entry,
    Limits,
    PackedImage,
    canonical,
    content_name,
)
from harbor_tasks.bundles.harbor_set import dataset_toml, registry_json
from harbor_tasks.bundles.index import Index
from harbor_tasks.bundles.listing import SMALL, no_temporary_room
from harbor_tasks.bundles.stream import BrokenBundleError, Stream
from harbor_tasks.errors import AuthorError
from harbor_tasks.tasks.manifest import BuildManifest
from harbor_tasks.tasks.plan import BUILD_DIR

_BUILD_JSON = f"{BUILD_DIR}/build.json"


class Sink(Protocol):
    """What takes the files of a bundle."""

    def begin(self, members: dict[str, bytes], index: Index, index_file: IO[bytes]) -> None:
        """The head, the list and Harbor's files were checked."""

    def folder(self, entry: Entry) -> None:
        """An empty folder."""

    def small(self, entry: Entry, content: bytes) -> None:
        """A file whose content was checked."""

    def large(self, entry: Entry, chunks: Iterator[bytes]) -> None:
        """A file whose content is checked when the last chunk was taken."""

    def copy(self, entry: Entry, first: Entry) -> None:
        """A file with the content of an earlier one."""


class Nowhere:
    """Takes the files and does nothing with them."""

    def begin(self, members: dict[str, bytes], index: Index, index_file: IO[bytes]) -> None:
        """Nothing."""

    def folder(self, entry: Entry) -> None:
        """Nothing."""

    def small(self, entry: Entry, content: bytes) -> None:
        """Nothing."""

    def large(self, entry: Entry, chunks: Iterator[bytes]) -> None:  # noqa: ARG002
        """Only take it."""
        for _ in chunks:
            pass

    def copy(self, entry: Entry, first: Entry) -> None:
        """Nothing."""


def inspect(file: Path, *, expect: str | None = None, limits: Limits | None = None) -> BundleInfo:
    """Check a bundle and say what it holds; AuthorError naming what of it is broken."""
    return read_bundle(file, Nowhere(), expect=expect, limits=limits or Limits())


def read_bundle(file: Path, sink: Sink, *, expect: str | None, limits: Limits) -> BundleInfo:
    """Check a bundle while its files go to ``sink``; ``expect`` is the digest that it must have."""
    with Stream(file) as stream, tempfile.TemporaryFile(prefix="hp-") as index_file:
        if expect is not None and f"sha256:{stream.digest.hex()}" != expect:
            raise BrokenBundleError(file, "", f"its digest is sha256:{stream.digest.hex()}, not {expect}")
        head_bytes = stream.content(stream.begin(HEAD, limit=limits.head))
        if hashlib.sha256(head_bytes).digest() != stream.head_digest:
            raise stream.broken("is not what its digest in the trailer says")
        head = _head(head_bytes, stream)
        members = {HEAD: head_bytes, DATASET: b"".join(_member(stream, DATASET, head, limits.head))}
        try:
            for chunk in _member(stream, INDEX, head, limits.index):
                index_file.write(chunk)
            index_file.flush()
        except OSError as error:
            raise no_temporary_room(error) from error
        members[REGISTRY] = b"".join(_member(stream, REGISTRY, head, limits.head))
        index = Index(index_file)
        index.check(limits, lambda path, says: stream.broken(says, path))
        _check_counts(head, index, stream)
        build_size = next((entry.size for entry in index if entry.path == _BUILD_JSON), 0)  # among the first
        if build_size > limits.head:
            raise stream.broken(f"is larger than the limit of {limits.head} bytes", _BUILD_JSON)
        sink.begin(members, index, index_file)
        build = _contents(stream, index, sink)
        digest = stream.end()
        manifest = _check_build(build, head, index, members, stream)
        return BundleInfo(
            file, f"sha256:{digest}", stream.size, manifest.name, manifest.version, len(manifest.tasks), index.files,
            index.blobs, tuple(PackedImage(one["name"], one["digest"]) for one in head["images"]), head,
        )  # fmt: skip


def _head(content: bytes, stream: Stream) -> dict[str, Any]:
    """bundle.json, if it is one of this version."""
    try:
        head = json.loads(content)
        schema = head["schema"]
        if type(schema) is not int:
            raise ValueError("schema")  # noqa: TRY301
        if schema == SCHEMA:
            _shape(head)
            if canonical(head) != content:
                raise ValueError("is not written as it should be")  # noqa: TRY301
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise stream.broken(f"is no head of a bundle ({error})") from None
    if schema != SCHEMA:
        raise AuthorError(
            f"{stream.path}: is a bundle of version {schema}, and this harbor-pack reads version {SCHEMA}; "
            "use the one that wrote it"
        )
    return dict(head)


def _shape(head: dict[str, Any]) -> None:
    """ValueError, KeyError or TypeError when something is missing that is used."""
    for name in (DATASET, INDEX, REGISTRY):
        part = head["members"][name]
        if type(part["size"]) is not int or part["size"] < 0 or type(part["sha256"]) is not str:
            raise ValueError(f"members.{name}")
    for image in head["images"]:
        if type(image["name"]) is not str or type(image["digest"]) is not str:
            raise ValueError("images")
    for key in ("tasks", "files", "folders", "bytes", "blobs"):
        if type(head["counts"][key]) is not int:
            raise ValueError(f"counts.{key}")
    if not isinstance(head["eval"]["name"], str):
        raise TypeError("eval.name")


def _member(stream: Stream, name: str, head: dict[str, Any], limit: int) -> Iterator[bytes]:
    """The content of a member that the head has the digest of."""
    part = head["members"][name]
    size = stream.begin(name, part["size"], limit)
    found = hashlib.sha256()
    for chunk in stream.chunks(size):
        found.update(chunk)
        yield chunk
    if found.hexdigest() != part["sha256"]:
        raise stream.broken("is not what its digest in bundle.json says")


def _check_counts(head: dict[str, Any], index: Index, stream: Stream) -> None:
    found = {
        "tasks": len(index.digests), "files": index.files, "folders": index.folders, "bytes": index.total,
        "blobs": index.blobs,
    }  # fmt: skip
    for key, count in found.items():
        if head["counts"][key] != count:
            raise stream.broken(f"says {head['counts'][key]} {key}, and files.jsonl lists {count}", HEAD)


def _contents(stream: Stream, index: Index, sink: Sink) -> bytes:
    """Hand out all files; the content of build.json."""
    build, done = b"", 0
    for entry in index:
        if entry.is_folder:
            sink.folder(entry)
        elif entry.blob < done:
            sink.copy(entry, index.first(entry.blob))
        else:
            done += 1
            stream.begin(content_name(entry.blob, entry.sha256), entry.size)
            if entry.size <= SMALL or entry.path == _BUILD_JSON:
                content = stream.content(entry.size)
                if hashlib.sha256(content).hexdigest() != entry.sha256:
                    raise stream.broken("is not what its digest says", entry.path)
                if entry.path == _BUILD_JSON:
                    build = content
                sink.small(entry, content)
            else:
                sink.large(entry, _checked(stream, entry))
    return build


def _checked(stream: Stream, entry: Entry) -> Iterator[bytes]:
    found = hashlib.sha256()
    with Aside(found.update) as aside:
        for chunk in stream.chunks(entry.size):
            aside.add(chunk)
            yield chunk
    if found.hexdigest() != entry.sha256:
        raise stream.broken("is not what its digest says", entry.path)


def _check_build(
    build: bytes, head: dict[str, Any], index: Index, members: dict[str, bytes], stream: Stream
) -> BuildManifest:
    """The manifest of the build, which all else must agree with."""
    try:
        manifest = BuildManifest.model_validate_json(build)
    except ValidationError:
        raise stream.broken("is missing, or is no manifest of a build", _BUILD_JSON) from None
    named = {task.directory: task.digest for task in manifest.tasks}
    for directory in sorted(named.keys() | index.digests.keys()):
        if named.get(directory) != index.digests.get(directory):
            raise stream.broken("is not the task that build.json has the digest of", directory)
    if (manifest.name, manifest.version) != (head["eval"]["name"], head["eval"].get("version")):
        raise stream.broken("names another eval than build.json", HEAD)
    for name, made in ((REGISTRY, registry_json), (DATASET, dataset_toml)):
        if members[name] != made(manifest):
            raise stream.broken("does not fit build.json", name)
    return manifest
