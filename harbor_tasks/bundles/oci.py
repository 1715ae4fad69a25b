"""Pushes bundles to a registry, with their images beside them, and pulls them from there, verified."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.bundles import BundleInfo, inspect, unpack
from harbor_tasks.bundles import reference as references
from harbor_tasks.bundles.artifact import Artifact, StoredImage, compose, find, layer_of
from harbor_tasks.bundles.reference import DEFAULT_TAG, Reference
from harbor_tasks.bundles.session import digest_of
from harbor_tasks.bundles.stored_images import OneEngine, has_image, pull_image, push_image
from harbor_tasks.bundles.transport import Progress, Transport
from harbor_tasks.environments.scratch import folder_beside
from harbor_tasks.errors import AuthorError, MachineError, display_path
from harbor_tasks.images.builder import Engine
from harbor_tasks.tasks.pulled import bundle_origin

Say = Callable[[str], None]


@dataclass(frozen=True)
class Pushed:
    """What `push` left in a registry. ``digest`` is the artifact's; nothing is uploaded when all of it was there."""

    ref: str
    """Registry, repository and tag."""
    digest: str
    uploads: int
    """Blobs and manifests that were uploaded, those of images not counted."""
    uploaded: int
    """Bytes of them."""
    images: Mapping[str, str]
    """Where each image is: ``registry/repository@sha256:…`` by content name."""
    images_uploaded: tuple[str, ...]
    """The images that the engine had to push."""
    bundle: BundleInfo

    @property
    def nothing_uploaded(self) -> bool:
        """Whether the registry had everything already."""
        return self.uploads == 0 and not self.images_uploaded

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "ref": self.ref, "digest": self.digest, "bundle": self.bundle.digest, "size": self.bundle.size,
            "uploads": self.uploads, "uploaded": self.uploaded, "images": dict(self.images),
            "images_uploaded": list(self.images_uploaded),
        }  # fmt: skip


@dataclass(frozen=True)
class Pulled:
    """What `pull` brought: the folder of built tasks, the bundle, and the images that are on the engine now."""

    folder: Path
    ref: str
    """Registry and repository with the artifact's digest: always this bundle."""
    digest: str
    bundle: BundleInfo
    images: Mapping[str, str]
    """``registry/repository@sha256:…`` of each image beside the bundle, by content name."""
    images_here: tuple[str, ...] = ()
    """The images that the engine has."""

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "folder": str(self.folder), "ref": self.ref, "digest": self.digest, "bundle": self.bundle.digest,
            "eval": self.bundle.eval, "version": self.bundle.version, "tasks": self.bundle.tasks,
            "images": dict(self.images), "images_here": list(self.images_here),
        }  # fmt: skip


def push(
    bundle: Path, ref: str, *, images: bool = True, engine: Engine | None = None, host: str | None = None,
    plain_http: bool = False, ca: Path | None = None, say: Say | None = None, progress: Progress | None = None,
) -> Pushed:  # fmt: skip
    """Push a bundle's file, and its images unless ``images`` is false; what the registry has is not sent again.

    Without a tag it is ``latest``. ``engine`` (else the one at ``host``, else the `docker` command's) is asked only
    for images that the registry lacks. AuthorError for the reference or permissions; MachineError for the network.
    """
    say = say or _silent
    reference = references.parse(ref)
    if reference.digest is not None:
        raise AuthorError(f"{reference}: a digest cannot be chosen; push to a tag, and the digest is said")
    info = inspect(bundle)
    layer, size = layer_of(bundle)
    tag = reference.tag or DEFAULT_TAG
    with Transport(reference, "push to", plain_http=plain_http, ca=ca) as transport:
        stored: dict[str, StoredImage] = {}
        sent: list[str] = []
        with OneEngine(engine, host) as engines:
            for image in info.images if images else ():
                stored[image.name], new = push_image(transport, engines, image.name, image.digest, say)
                sent += [image.name] * new
        manifest, config = compose(info, layer, size, stored)
        digest = digest_of(manifest)
        before = transport.digest_of_tag(tag)
        if transport.put_blob(bundle, layer, size, progress):
            say(f"uploaded {display_path(bundle)} ({size} bytes)")
        transport.put_blob(config, digest_of(config), len(config))
        transport.put_manifest(manifest, tag)
        if before not in {None, digest}:
            say(f"{reference.name}:{tag} was {before} before")
        _say_fault(transport, say)
    places = {name: str(reference.at(one.manifest)) for name, one in stored.items()}
    return Pushed(
        f"{reference.name}:{tag}", digest, transport.uploads, transport.uploaded, places, tuple(sent), info
    )  # fmt: skip


def look(ref: str, *, plain_http: bool = False, ca: Path | None = None) -> tuple[Reference, Artifact]:
    """What a registry has there, by digest; nothing but manifest and configuration is fetched, both verified."""
    reference = references.parse(ref)
    with Transport(reference, "pull from", plain_http=plain_http, ca=ca) as transport:
        return _found(transport, reference)


def pull(
    ref: str, into: Path, *, images: bool = False, engine: Engine | None = None, host: str | None = None,
    plain_http: bool = False, ca: Path | None = None, say: Say | None = None, progress: Progress | None = None,
) -> Pulled:  # fmt: skip
    """Pull a bundle into ``into``, which must not be there; with ``images`` its images come to the engine, by digest.

    Every digest is verified before there is anything at ``into``: manifest, configuration, file, and the bundle's own.
    AuthorError for the reference or permissions; MachineError for the network and for a registry that lies.
    """
    say = say or _silent
    reference = references.parse(ref)
    into = into.absolute()
    if into.exists() or into.is_symlink():
        raise AuthorError(f"{display_path(into)}: is there already; name a new folder")
    with Transport(reference, "pull from", plain_http=plain_http, ca=ca) as transport, _room(into) as room:
        place, artifact = _found(transport, reference)
        say(f"{place}: {artifact.size} bytes")
        free = shutil.disk_usage(room).free
        if free < artifact.size:
            raise MachineError(
                f"{place} has {artifact.size} bytes, and there is room for {free} at {display_path(into)}"
            )
        file = room / "bundle.hpb"
        transport.download(artifact.layer, artifact.size, file, progress)
        info = unpack(file, room / "tasks", expect=artifact.bundle)
        _require_same_images(artifact, info)
        with OneEngine(engine, host) as engines:
            here = [pull_image(transport, engines, one, say) for one in artifact.images if images]
        _say_absent({one.name for one in info.images} if images else set(), artifact, say)
        file.unlink()
        _settle(room / "tasks", into)
        _say_fault(transport, say)
    places = {one.name: str(place.at(one.manifest)) for one in artifact.images}
    return Pulled(into, str(place), artifact.digest, info, places, tuple(here))


def pull_images(
    ref: str, tasks: Path, *, engine: Engine | None = None, host: str | None = None, plain_http: bool = False,
    ca: Path | None = None, say: Say | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Bring the images of the bundle in ``tasks``; their names. The registry is asked for those that are missing."""
    origin = bundle_origin(tasks)
    wanted = {} if origin is None else origin.images
    with OneEngine(engine, host) as engines:
        if not wanted or all(has_image(engines, identity) for identity in wanted.values()):
            return tuple(wanted)
        reference = references.parse(ref)
        with Transport(reference, "pull from", plain_http=plain_http, ca=ca) as transport:
            _place, artifact = _found(transport, reference)
            for one in artifact.images:
                if wanted.get(one.name) != one.id:
                    raise _other_image(one)
            _say_absent(set(wanted), artifact, say or _silent)
            return tuple(pull_image(transport, engines, one, say or _silent) for one in artifact.images)


def _found(transport: Transport, reference: Reference) -> tuple[Reference, Artifact]:
    artifact = find(transport, reference.asked)
    if artifact is None:
        what = f"nothing with the digest {reference.digest}" if reference.digest else f"no tag {reference.asked}"
        raise AuthorError(
            f"{reference.name}: {reference.registry} has {what} there; harbor-pack push puts a bundle there"
        )
    return reference.at(artifact.digest), artifact


def _require_same_images(artifact: Artifact, info: BundleInfo) -> None:
    """The configuration must not name other images than the bundle, whose digest it gives."""
    known = {(one.name, one.digest) for one in info.images}
    for one in artifact.images:
        if (one.name, one.id) not in known:
            raise _other_image(one)


def _say_fault(transport: Transport, say: Say) -> None:
    """What kept the credentials from us, where none were needed; where they were, the refusal says it."""
    if transport.credentials.fault is not None:
        say(f"warning: no credentials for {transport.reference.registry}: {transport.credentials.fault}")


def _say_absent(wanted: set[str], artifact: Artifact, say: Say) -> None:
    for name in sorted(wanted - {one.name for one in artifact.images}):
        say(f"warning: the bundle's image {name} is not beside it: it was pushed with --no-images")


def _other_image(one: StoredImage) -> MachineError:
    return MachineError(f"the image {one.name} ({one.id}) beside the bundle is not one of the bundle's; refused")


@contextmanager
def _room(into: Path) -> Iterator[Path]:
    """A folder beside the target, on the same file system; nothing of it stays, nor folders made for it."""
    made = [path for path in into.parents if not path.exists()]
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        with folder_beside(into) as room:
            yield room
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first that holds something of somebody else's ends it
            for path in made:
                path.rmdir()
        if isinstance(error, OSError):
            raise MachineError(f"{display_path(into)}: cannot be written ({error.strerror})") from None
        raise


def _settle(tasks: Path, into: Path) -> None:
    try:
        into.mkdir()  # of two at once one gets the name; a rename would take an empty folder of somebody else's
        tasks.rename(into)
    except FileExistsError:
        raise AuthorError(f"{display_path(into)}: is there meanwhile; name a new folder") from None


def _silent(_line: str) -> None:
    """Nobody listens."""
