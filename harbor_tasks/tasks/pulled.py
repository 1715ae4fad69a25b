"""Built tasks that came in a bundle: strangers', unless the user says otherwise, and with an image of their own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import AuthorError, display_path
from harbor_tasks.tasks.plan import BUILD_DIR

BUNDLE_HEAD = "bundle.json"
"""What unpacking a bundle leaves in ``.harbor-pack``, and no build does."""
_ID = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class BundleOrigin:
    """What a folder of unpacked tasks says of its bundle: the ids of its images by their content names."""

    images: dict[str, str]


def bundle_origin(tasks: Path) -> BundleOrigin | None:
    """The bundle that these tasks came in; None for a build of this machine's own. AuthorError when it was broken."""
    path = tasks / BUILD_DIR / BUNDLE_HEAD
    try:
        data = json.loads(path.read_bytes())
        images = {one["name"]: one["digest"] for one in data["images"]}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise AuthorError(f"{display_path(path)}: cannot be read; pull the bundle again") from None
    for name, digest in images.items():
        if not isinstance(name, str) or not isinstance(digest, str) or _ID.fullmatch(digest) is None:
            raise AuthorError(f"{display_path(path)}: names an image without a digest; pull the bundle again")
    return BundleOrigin(images)
