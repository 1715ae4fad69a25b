"""Where the tasks of a bundle lie on a shared runner: below one folder, by the bundle's digest, fetched once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.bundles.reader import inspect
from harbor_tasks.bundles.reference import is_reference
from harbor_tasks.bundles.unpack import unpack
from harbor_tasks.errors import AuthorError, display_path
from harbor_tasks.tasks.manifest import manifest_path

Say = Callable[[str], None]


@dataclass(frozen=True)
class Store:
    """A folder that holds the tasks of bundles, each below the hexadecimal digits of its digest."""

    folder: Path
    host: str | None = None
    """The engine that gets the images, else the `docker` command's."""
    plain_http: bool = False
    ca: Path | None = None

    def tasks(self, source: str, say: Say) -> Path:
        """The folder of built tasks that ``source`` names: a reference, a bundle's file, or such a folder itself.

        What is here already is not fetched again, but the images of a reference come to an engine that lacks them.
        AuthorError and MachineError as of `pull` and `unpack`.
        """
        path = Path(source)
        if path.is_dir():
            return path
        if path.is_file():
            digest = inspect(path).digest
            return self._kept(digest, say, lambda into: unpack(path, into, expect=digest))
        if is_reference(source):
            return self._pulled(source, say)
        raise AuthorError(
            f"{source}: no bundle in a registry (registry/repository:tag), and no such file or folder"
        )  # fmt: skip

    def _pulled(self, ref: str, say: Say) -> Path:
        from harbor_tasks.bundles.images import OneEngine, pull_image
        from harbor_tasks.bundles.oci import look, pull
        from harbor_tasks.bundles.transport import Transport

        place, artifact = look(ref, plain_http=self.plain_http, ca=self.ca)
        say(f"{ref}: {artifact.digest}")
        folder = self._kept(
            artifact.bundle, say,
            lambda into: pull(str(place), into, plain_http=self.plain_http, ca=self.ca),
        )  # fmt: skip
        with (
            Transport(place, "pull from", plain_http=self.plain_http, ca=self.ca) as transport,
            OneEngine(None, self.host) as engines,
        ):
            for image in artifact.images:
                pull_image(transport, engines, image, say)
        return folder

    def _kept(self, digest: str, say: Say, fetch: Callable[[Path], object]) -> Path:
        """The folder for this digest, fetched when it is not there."""
        folder = self.folder.absolute() / digest.removeprefix("sha256:")
        if manifest_path(folder).is_file():
            say(f"its tasks are here: {display_path(folder)}")
            return folder
        try:
            fetch(folder)
        except AuthorError:
            if not manifest_path(folder).is_file():  # another runner fetched the same meanwhile
                raise
        say(f"its tasks are now in {display_path(folder)}")
        return folder
