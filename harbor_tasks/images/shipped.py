"""The image that a run takes: a bundle's own, by its id, where the tasks came in one; else the one named after them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.images.bases import short
from harbor_tasks.images.builder import Engine, OnEvent, engine_errors, inspect, labels_of
from harbor_tasks.images.ensure import ImageRef, ensure_image, existing_image
from harbor_tasks.tasks.manifest import read_manifest
from harbor_tasks.tasks.pulled import bundle_origin

OURS = "harbor-pack/"
"""How names of images begin that are ours to give."""


def image_for_run(
    built: Path, engine: Engine, *, agents: Sequence[str] = (), by_name: bool = False, on_event: OnEvent | None = None
) -> ImageRef:  # fmt: skip
    """The image for trials of these tasks; built when it is not there, unless it is a bundle's own.

    ``by_name``: whoever makes the containers finds it by the name in the tasks alone. AuthorError and MachineError as
    of `ensure_image`; MachineError also when a bundle's image is not on the engine: it is not silently another one.
    """
    origin, name = bundle_origin(built), read_manifest(built).image
    wanted = None if origin is None else origin.images.get(name)
    if wanted is None:
        return ensure_image(built, engine, agents=agents, on_event=on_event)
    say = on_event or (lambda _line: None)
    found, named = inspect(engine, wanted), inspect(engine, name)
    labels = labels_of(found)
    has = tuple(labels.get("harbor-pack.agents", "").split())
    missing = sorted(set(agents) - set(has))
    if found is not None and not missing:
        if by_name and (named is None or named["Id"] != wanted):
            name_image(engine, wanted, name, say)
        return ImageRef(name, wanted, False, labels.get("harbor-pack.base", ""), has)
    ours = name.startswith(OURS)
    made = existing_image(built, engine) if ours else None
    if made is not None and made.id != wanted:  # the user had it made, as the error below says
        say(f"warning: {name} on this engine was made here, of the same content; the bundle's own is {short(wanted)}")
        return ensure_image(built, engine, agents=agents, on_event=on_event)
    options = "".join(f" --agent {agent}" for agent in agents)
    how = (
        f"; one of the same content is made here by: harbor-pack image {shlex.quote(str(built))}{options}"
        if ours
        else ""
    )
    what = f"the bundle's image {name} ({short(wanted)})"
    if found is None:
        raise MachineError(f"{what} is not on this engine; harbor-pack pull --images brings it{how}")
    raise AuthorError(
        f"{what} has no {missing[0]} in it, which is put in before the bundle is made (image --agent){how}"
    )


def name_image(engine: Engine, identity: str, name: str, say: OnEvent) -> None:
    """Give an image that was pulled its content name; AuthorError when the name is not ours to give."""
    old = inspect(engine, name)
    if old is not None and old["Id"] == identity:
        return
    if not name.startswith(OURS):
        is_now = "another" if old else "no"
        raise AuthorError(
            f"the bundle's image {short(identity)} is called {name} in its tasks, and that is {is_now} image here; tag "
            "it yourself if you want that"
        )
    if old is not None:
        say(f"{name} is the bundle's image now; it was {short(str(old['Id']))}")
    repository, _, tag = name.rpartition(":")
    with engine_errors(f"tag {name}"):
        engine.client.api.tag(identity, repository, tag, force=True)
