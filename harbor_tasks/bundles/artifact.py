"""A bundle as an OCI artifact: a manifest with one configuration and one layer, the same bytes for the same bundle.

::

    manifest   application/vnd.oci.image.manifest.v1+json; annotations without times
      config   application/vnd.harbor-pack.bundle.v1+json: the bundle's identity and its images, by digest
      layer    application/vnd.harbor-pack.bundle.layer.v1.tar+zstd: the bundle's file as it is

The images lie in the same repository, so that whoever copies it has them too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_tasks.bundles.reference import DIGEST
from harbor_tasks.bundles.session import digest_of
from harbor_tasks.errors import MachineError
from harbor_tasks.tasks.names import slug

if TYPE_CHECKING:
    from harbor_tasks.bundles import BundleInfo
    from harbor_tasks.bundles.transport import Transport

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.harbor-pack.bundle.v1+json"
LAYER_TYPE = "application/vnd.harbor-pack.bundle.layer.v1.tar+zstd"
IDENTITY = "harbor-pack.bundle"
"""The annotation with the digest of the uncompressed archive, which is the bundle's identity."""
MAX_CONFIG = 1 << 20


@dataclass(frozen=True)
class StoredImage:
    """An image beside a bundle: its content name, the id that the bundle knows it by, its manifest's digest."""

    name: str
    id: str
    manifest: str


@dataclass(frozen=True)
class Artifact:
    """What a repository has under a tag or digest; ``digest`` is the manifest's, ``bundle`` the bundle's own."""

    digest: str
    bundle: str
    layer: str
    """The digest of the bundle's file."""
    size: int
    """Bytes of the bundle's file."""
    eval: str
    images: tuple[StoredImage, ...]


def layer_of(file: Path) -> tuple[str, int]:
    """The digest and the size of a bundle's file."""
    with file.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}", stream.tell()


def compose(info: BundleInfo, layer: str, size: int, images: Mapping[str, StoredImage]) -> tuple[bytes, bytes]:
    """The bytes of the manifest and of the configuration."""
    config = _canonical(
        {
            "schema": 1, "bundle": info.digest, "eval": info.eval, "version": info.version, "tasks": info.tasks,
            "images": [
                {"name": one.name, "id": one.id, "manifest": one.manifest} for _, one in sorted(images.items())
            ],
        }
    )  # fmt: skip
    annotations = {IDENTITY: info.digest, "org.opencontainers.image.title": info.eval}
    if info.version is not None:
        annotations["org.opencontainers.image.version"] = info.version
    manifest = {
        "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "digest": digest_of(config), "size": len(config)},
        "layers": [
            {"mediaType": LAYER_TYPE, "digest": layer, "size": size,
             "annotations": {"org.opencontainers.image.title": f"{slug(info.eval) or 'bundle'}.hpb"}},
        ],
        "annotations": annotations,
    }  # fmt: skip
    return _canonical(manifest), config


def _canonical(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")


def find(transport: Transport, name: str) -> Artifact | None:
    """The bundle of a tag or digest, everything but its file read and verified; None when there is nothing.

    MachineError when it is something else, or holds what no `push` wrote.
    """
    found = transport.manifest(name)
    if found is None:
        return None
    manifest, digest, _body = found
    where = f"{transport.reference.name}: {name if name == digest else f'{name} ({digest})'}"
    try:
        config = manifest["config"]
        if config["mediaType"] != CONFIG_TYPE:
            raise MachineError(f"{where} is no bundle but {str(config['mediaType'])[:80]}")
        [layer] = manifest["layers"]
        if layer["mediaType"] != LAYER_TYPE:
            raise MachineError(f"{where}: a layer {str(layer['mediaType'])[:80]}; this version reads {LAYER_TYPE}")
        data = transport.json_blob(_digest(config["digest"]), min(_size(config["size"]), MAX_CONFIG))
        if data["schema"] != 1:
            raise MachineError(f"{where} was pushed by a later version of harbor-pack; update this one")
        images = tuple(
            StoredImage(_text(one["name"]), _digest(one["id"]), _digest(one["manifest"])) for one in data["images"]
        )
        bundle = _digest(data["bundle"])
        if manifest["annotations"][IDENTITY] != bundle:
            raise MachineError(f"{where}: its annotation and its configuration name different bundles; refused")
        return Artifact(digest, bundle, _digest(layer["digest"]), _size(layer["size"]), _text(data["eval"]), images)
    except (KeyError, TypeError, ValueError, IndexError):
        raise MachineError(f"{where} is no bundle that harbor-pack pushed; refused") from None


def _digest(value: Any) -> str:
    if not isinstance(value, str) or DIGEST.fullmatch(value) is None:
        raise ValueError(value)
    return value


def _size(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
