"""Commands about registries: push, pull, and a reference in place of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harbor_tasks.commands.base import Ca, Host, Json, PlainHttp, app
from harbor_tasks.errors import AuthorError, MachineError, display_path
from harbor_tasks.output import complain, plural, print_json, print_lines, progress_bar

if TYPE_CHECKING:
    from harbor_tasks.bundles.oci import Pulled, Pushed
    from harbor_tasks.environments.base import RunOptions

Ref = Annotated[str, typer.Argument(metavar="REF", help="registry/repository[:tag][@sha256:…]")]


@app.command()
def push(
    bundle: Annotated[Path, typer.Argument(metavar="FILE", help="a bundle's file")],
    ref: Ref,
    images: Annotated[bool, typer.Option("--images/--no-images", help="push the bundle's images beside it")] = True,
    plain_http: PlainHttp = False,
    ca: Ca = None,
    host: Host = None,
    as_json: Json = False,
) -> None:
    """Push a bundle to a registry, with its images; what is there already is not sent again."""
    from harbor_tasks.bundles.oci import push as push_bundle

    if bundle.is_dir():
        raise AuthorError(f"{display_path(bundle)}: is a folder; make a bundle of it first (harbor-pack bundle)")
    with progress_bar("push") as advance:
        pushed = push_bundle(
            bundle, ref, images=images, host=host, plain_http=plain_http, ca=ca, say=complain, progress=advance
        )
    if as_json:
        print_json(pushed.as_json())
        return
    sent = f"{plural(pushed.uploads, 'upload')}, {pushed.uploaded} bytes"
    sent += f", {plural(len(pushed.images_uploaded), 'image')}" if pushed.images_uploaded else ""
    print_lines([f"{pushed.ref}: {'nothing uploaded' if pushed.nothing_uploaded else sent}", *_names(pushed)])


@app.command()
def pull(
    ref: Ref,
    out: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="a new folder for the built tasks")],
    images: Annotated[bool, typer.Option("--images", help="bring the bundle's images to the engine too")] = False,
    plain_http: PlainHttp = False,
    ca: Ca = None,
    host: Host = None,
    as_json: Json = False,
) -> None:
    """Pull a bundle from a registry, verified, and unpack its tasks into a new folder."""
    from harbor_tasks.bundles.oci import pull as pull_bundle

    with progress_bar("pull") as advance:
        pulled = pull_bundle(
            ref, out, images=images, host=host, plain_http=plain_http, ca=ca, say=complain, progress=advance
        )
    if as_json:
        print_json(pulled.as_json())
        return
    print_lines([f"{plural(pulled.bundle.tasks, 'task')} in {display_path(pulled.folder)}", *_names(pulled)])


def _names(moved: Pushed | Pulled) -> list[str]:
    """The digests of what was pushed or pulled, and its images."""
    images = [f"image {name} = {place}" for name, place in moved.images.items()]
    return [f"digest {moved.digest}", f"bundle {moved.bundle.digest}", *images]


def tasks_of(
    given: str, options: RunOptions, *, plain_http: bool = False, ca: Path | None = None, dry: bool = False,
    keep: Path | None = None,
) -> Path:  # fmt: skip
    """What `run` was given, as a folder or an eval: a bundle's file or reference becomes its unpacked tasks.

    A path that exists is never taken for a reference. ``keep``: where bundles are unpacked, if not in the cache.
    """
    if ca is not None:  # whether or not it comes to be used
        from harbor_tasks.bundles.session import authority

        authority(ca)
    source = Path(given)
    if source.is_dir():
        return source
    from harbor_tasks.bundles import cache
    from harbor_tasks.bundles.reference import is_reference, parse
    from harbor_tasks.environments import strangers

    is_file = cache.is_bundle(source)
    if "://" in given and not source.exists():
        parse(given)  # a URL, not a path: says how the registry is named, and shows no password
    if not is_file and (source.exists() or not is_reference(given)):
        return source
    if options.environment == strangers.HERE and not options.trust:  # before anything is fetched
        raise AuthorError(
            strangers.refusal(
                display_path(source) if is_file else f"{given} (a reference: no such file or folder is here)"
            )
        )
    if is_file:
        return cache.tasks_of_file(source, keep=keep)
    from harbor_tasks.bundles.faults import PassingError

    images = not dry and _has_engine(options)
    try:
        return cache.tasks_of_reference(
            given, images=images, host=options.host, plain_http=plain_http, ca=ca, keep=keep, say=complain
        )
    except PassingError as error:
        raise MachineError(f"{error}; and no file or folder {given} is here") from None


def fault_of(given: str) -> AuthorError | None:
    """What is wrong with what `run` was given, if that is known before anything is fetched or built."""
    from harbor_tasks.bundles.cache import is_bundle
    from harbor_tasks.bundles.reference import is_reference, parse
    from harbor_tasks.environments.sources import is_eval

    source = Path(given)
    try:
        if not source.exists() and (is_reference(given) or "://" in given):
            parse(given)
        elif not is_bundle(source):
            is_eval(source)
    except AuthorError as fault:
        return fault
    return None


def _has_engine(options: RunOptions) -> bool:
    """Whether the trials run in containers of an engine of the user's."""
    from harbor_tasks.environments.harbor_command import kind_of
    from harbor_tasks.environments.harbor_kinds import DEFAULT_KIND

    name = options.environment
    return name == "docker" or (name == "harbor" and kind_of(options.harbor_options) == DEFAULT_KIND)
