"""Checks a bundle, or a folder of tasks against the bundle or the build that it came from."""

from __future__ import annotations

import json
from itertools import zip_longest
from pathlib import Path

from harbor_tasks.bundles.archive import Archive, feed, head_of
from harbor_tasks.bundles.format import DATASET, HEAD, INDEX, REGISTRY, BundleInfo, PackedImage
from harbor_tasks.bundles.harbor_set import dataset_toml, registry_json
from harbor_tasks.bundles.listing import Listing, listed
from harbor_tasks.bundles.reader import inspect
from harbor_tasks.errors import AuthorError, display_path
from harbor_tasks.tasks.manifest import BUILD_DIR, pulled_digest


def verify(source: Path, *, expect: str | None = None) -> BundleInfo:
    """Check every digest of a bundle, or of a folder that was unpacked or built; AuthorError naming what differs.

    ``expect`` is the digest that it must have. The digest of a folder is that of the bundle that it came from; of one
    that was built here, that of a bundle without images.
    """
    if not source.is_dir():
        return inspect(source, expect=expect)
    recorded = pulled_digest(source)
    with listed(source, as_built=recorded is None) as listing:
        if recorded is None:
            images: tuple[PackedImage, ...] = ()
            head = head_of(listing, images)
        else:
            _compare(listing)
            head = _read(source / BUILD_DIR / HEAD)
            images = recorded_images(source)
        with Archive(None) as archive:
            feed(archive, listing, head)
            archive.end(b"")
        digest = f"sha256:{archive.digest.hexdigest()}"
        if recorded is not None and digest != recorded:
            raise AuthorError(
                f"{display_path(source / BUILD_DIR / HEAD)}: is not that of the bundle {recorded} that was unpacked "
                "here; pull it again"
            )
        if expect is not None and digest != expect:
            raise AuthorError(f"{display_path(source)}: its digest is {digest}, not {expect}")
        manifest = listing.manifest
        return BundleInfo(
            source, digest, listing.counts["bytes"], manifest.name, manifest.version, len(manifest.tasks),
            listing.counts["files"], listing.counts["blobs"], images, json.loads(head),
        )  # fmt: skip


def recorded_images(tasks: Path) -> tuple[PackedImage, ...]:
    """The images that the bundle names which this folder was unpacked from."""
    path = tasks / BUILD_DIR / HEAD
    try:
        return tuple(PackedImage(one["name"], one["digest"]) for one in json.loads(_read(path))["images"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise AuthorError(f"{display_path(path)}: cannot be read; pull the bundle again") from None


def _compare(listing: Listing) -> None:
    """The files that are there with those that were unpacked; AuthorError names the first that differs."""
    tasks = listing.tasks
    listing.index.flush()
    listing.index.seek(0)
    try:
        with (tasks / BUILD_DIR / INDEX).open("rb") as unpacked:
            for was, found in zip_longest(unpacked, listing.index):
                if was != found:
                    raise AuthorError(f"{_difference(tasks, was, found)}; pull the bundle again")
    except OSError as error:
        raise AuthorError(f"{display_path(tasks / BUILD_DIR / INDEX)}: cannot be read ({error.strerror})") from error
    for name, made in ((DATASET, dataset_toml), (REGISTRY, registry_json)):
        if _read(tasks / name) != made(listing.manifest):
            raise AuthorError(f"{display_path(tasks / name)}: is not what was unpacked; pull the bundle again")


def _difference(tasks: Path, was: bytes | None, found: bytes | None) -> str:
    """What differs between the first lines that do."""
    paths = [None if line is None else _path(line) for line in (was, found)]
    if paths[0] == paths[1] and paths[0] is not None:
        return f"{display_path(tasks / paths[0])}: is not what was unpacked"
    if paths[0] is not None and paths[1] is not None and paths[0].startswith(f"{paths[1]}/"):
        return f"{display_path(tasks / paths[0])}: is gone"  # and its folder is empty now
    listed_first = [path for path in paths if path is not None]
    first = min(listed_first, key=lambda path: path.split("/")) if listed_first else INDEX
    says = "is gone" if first == paths[0] else "was not in the bundle"
    return f"{display_path(tasks / first)}: {says}"


def _path(line: bytes) -> str:
    try:
        return str(json.loads(line)["path"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{BUILD_DIR}/{INDEX}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AuthorError(f"{display_path(path)}: cannot be read ({error.strerror}); pull the bundle again") from error
