"""Which image a bundle names: by its content tag, and by the digest that every engine shows for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from harbor_tasks.bundles.format import PackedImage
from harbor_tasks.bundles.verify import recorded_images
from harbor_tasks.environments.engine import find_engine
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.images import ensure_image, existing_image
from harbor_tasks.tasks.manifest import pulled_digest, read_manifest

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def images_of(
    tasks: Path, say: Callable[[str], None], *, make: bool = False, digest: str | None = None, host: str | None = None
) -> tuple[PackedImage, ...]:
    """The image of built tasks: of the digest given, made now, or as it is on the engine here; none where it is not.

    Of tasks that were pulled: the image that their bundle names. ``say`` hears why there is none. AuthorError for a
    digest that is none; MachineError when the image is to be made and cannot be.
    """
    name = read_manifest(tasks).image
    if digest is not None:
        if not _DIGEST.fullmatch(digest):
            raise AuthorError(f"--image-digest: {digest} is no digest: sha256: and 64 hex digits (an image's Id)")
        return (PackedImage(name, digest),)
    if not make and pulled_digest(tasks) is not None:
        return recorded_images(tasks)
    try:
        with find_engine(host) as engine:
            found = ensure_image(tasks, engine, on_event=say) if make else existing_image(tasks, engine)
    except MachineError as error:
        if make:
            raise
        say(f"no image is named: {error}")
        return ()
    if found is None:
        say(f"no image is named: {name} is not on this engine (harbor-pack image makes it); who pulls will build it")
        return ()
    return (PackedImage(name, found.id),)
