"""A bundle's images in a registry: the engine pushes and pulls them, and their digests are checked on both ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from harbor_tasks.bundles.artifact import StoredImage
from harbor_tasks.environments.engine import find_engine
from harbor_tasks.errors import AuthorError, HarborPackError, MachineError
from harbor_tasks.images.bases import short
from harbor_tasks.images.builder import Engine, engine_errors, inspect
from harbor_tasks.images.moving import fault_of
from harbor_tasks.images.shipped import OURS, name_image

if TYPE_CHECKING:
    from harbor_tasks.bundles.transport import Transport

Say = Callable[[str], None]
_REFUSED = re.compile(r"unauthorized|authentication required|no basic auth|forbidden|denied", re.IGNORECASE)


class OneEngine:
    """An engine that is looked for when it is needed, and closed when it was found here."""

    def __init__(self, engine: Engine | None, host: str | None) -> None:
        self._given, self._host = engine, host
        self._found: Any = None

    def __enter__(self) -> OneEngine:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if self._found is not None:
            self._found.close()

    def get(self) -> Engine:
        """The engine; MachineError when none answers."""
        if self._given is not None:
            return self._given
        if self._found is None:
            self._found = find_engine(self._host)
        found: Engine = self._found
        return found


def has_image(engines: OneEngine, identity: str) -> bool:
    """Whether the engine has the image with this id."""
    return inspect(engines.get(), identity) is not None


def push_image(
    transport: Transport, engines: OneEngine, name: str, identity: str, say: Say
) -> tuple[StoredImage, bool]:
    """The image in the bundle's repository, and whether the engine had to push it. ``identity`` is the image's id.

    What counts is the id: a tag on the engine may have moved since the bundle was made.
    """
    tag = f"image-{identity.removeprefix('sha256:')[:16]}"
    stored = _stored(transport, tag, name, identity)
    if stored is not None:
        return stored, False
    try:
        engine = engines.get()
    except MachineError as error:
        raise MachineError(f"{error}; --no-images pushes the bundle without its image") from None
    if inspect(engine, identity) is None:
        other = inspect(engine, name)
        what = f"has another image of that name ({short(str(other['Id']))})" if other else "does not have it"
        raise MachineError(
            f"the bundle's image {name} ({short(identity)}): the engine {what}; bundle again on the machine that has "
            "it, or push without it: --no-images"
        )
    place = transport.reference.name
    say(f"pushing the image {name} to {place}:{tag}")
    with engine_errors(f"tag {name}"):
        engine.client.api.tag(identity, place, tag, force=True)
    try:
        _ask(engine, transport, f"images/{place}/push", {"tag": tag}, f"push the image to {place}")
    finally:
        tags = (inspect(engine, identity) or {}).get("RepoTags") or []
        if len(tags) > 1:  # with its last name the image itself would go
            with engine_errors(f"remove the tag {place}:{tag}"):
                engine.client.api.remove_image(f"{place}:{tag}", noprune=True)
    stored = _stored(transport, tag, name, identity)
    if stored is None:
        raise MachineError(f"the engine pushed {name}, but {place}:{tag} is another image than {identity}; refused")
    return stored, True


def pull_image(transport: Transport, engines: OneEngine, image: StoredImage, say: Say) -> str:
    """Bring an image to the engine, by digest; its content name. It is named so there if the name is ours to give."""
    if _stored(transport, image.manifest, image.name, image.id) is None:
        place = transport.reference.at(image.manifest)
        raise MachineError(f"{place} is not the image {image.name} ({image.id}) of the bundle; refused")
    engine = engines.get()
    if inspect(engine, image.id) is None:
        place = transport.reference.at(image.manifest)
        say(f"pulling the image {place}")
        parameters = {"fromImage": transport.reference.name, "tag": image.manifest}
        _ask(engine, transport, "images/create", parameters, f"pull the image {place}")
        if inspect(engine, image.id) is None:
            raise MachineError(f"the engine pulled {place}, but has no image {image.id}; refused")
    if image.name.startswith(OURS):
        name_image(engine, image.id, image.name, say)
    return image.name


def _stored(transport: Transport, name: str, image: str, identity: str) -> StoredImage | None:
    """The image of a tag or digest in the repository, if it is the one with this id.

    An engine's id is the digest of the configuration, or with containerd's store that of the manifest.
    """
    found = transport.manifest(name)
    if found is None:
        return None
    manifest, digest, _body = found
    config = manifest.get("config")
    named = config.get("digest") if isinstance(config, Mapping) else None
    return StoredImage(image, identity, digest) if identity in {named, digest} else None


def _ask(engine: Engine, transport: Transport, what: str, parameters: dict[str, str], doing: str) -> None:
    """Push or pull by the engine, which speaks to the registry itself; what goes wrong there as one line."""
    said = fault_of(engine, what, parameters, transport.credentials.auth)
    if said is not None:
        raise _engine_fault(transport, doing, said)


def _engine_fault(transport: Transport, doing: str, said: str) -> HarborPackError:
    host = transport.reference.registry
    if "server gave HTTP response" in said:
        how = f"the engine takes no http registry but its own machine's; add {host} to its insecure-registries"
        return MachineError(f"the container engine cannot {doing}: {how}")
    if "x509" in said or "certificate" in said:
        how = f"put the authority's certificate at /etc/docker/certs.d/{host}/ca.crt on the engine's machine"
        return MachineError(f"the container engine cannot {doing} ({said}); {how}")
    if _REFUSED.search(said):
        fault = transport.credentials.fault
        how = f"; run docker login {host}" if fault is None else f", and {fault}"
        return AuthorError(f"the container engine cannot {doing}: {host} refuses ({said}){how}")
    return MachineError(f"the container engine cannot {doing}: {said}")
