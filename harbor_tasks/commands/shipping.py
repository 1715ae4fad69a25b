"""Commands that bring an eval to other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harbor_tasks.commands.base import Host, Json, Source, app
from harbor_tasks.errors import AuthorError, display_path, printable
from harbor_tasks.output import building, complain, plural, print_json, warn


@app.command()
def bundle(
    source: Source,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="default: NAME-VERSION.hpb of the eval")
    ] = None,
    image: Annotated[
        bool | None,
        typer.Option(
            "--image/--no-image", help="make the image if it is not there / name none (default: name one that is there)"
        ),
    ] = None,
    image_digest: Annotated[
        str | None, typer.Option("--image-digest", metavar="SHA256", help="name the image by this digest")
    ] = None,
    host: Host = None,
    as_json: Json = False,
) -> None:
    """Pack an eval into one file: its tasks, its image by digest, a manifest; refused while a secret is in it."""
    from harbor_tasks.bundles import pack
    from harbor_tasks.bundles.names import default_name
    from harbor_tasks.bundles.own_image import images_of
    from harbor_tasks.environments.sources import built_tasks

    if image_digest is not None and image is not None:
        raise AuthorError("--image-digest goes without --image and --no-image")
    with built_tasks(source, warn, building) as tasks:
        images = () if image is False else images_of(
            tasks, complain, make=bool(image), digest=image_digest, host=host
        )  # fmt: skip
        target = default_name(tasks) if out is None else out / default_name(tasks) if out.is_dir() else out
        packed = pack(tasks, target, images=images, say=warn)
    if as_json:
        print_json(packed.as_json())
        return
    print(printable(f"{display_path(packed.file)}: {plural(packed.tasks, 'task')}, {plural(packed.files, 'file')}"))
    print(packed.digest)


@app.command()
def verify(
    source: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="a bundle, or the tasks of one (or of a build)")],
    expect: Annotated[
        str | None, typer.Option("--expect", metavar="SHA256", help="the digest that it must have")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every digest of a bundle, or of the folder that it was unpacked into; name what differs."""
    from harbor_tasks.bundles import verify as verify_source

    found = verify_source(source, expect=expect)
    if as_json:
        print_json(found.as_json())
        return
    print(
        printable(
            f"{display_path(source)}: {plural(found.tasks, 'task')}, {plural(found.files, 'file')}, all as packed"
        )
    )
    print(found.digest)
