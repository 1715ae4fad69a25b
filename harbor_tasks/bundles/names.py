"""How the file of a bundle is called."""

from __future__ import annotations

import re
from pathlib import Path

from harbor_tasks.bundles.format import SUFFIX
from harbor_tasks.tasks.manifest import read_manifest
from harbor_tasks.tasks.names import org_name


def default_name(tasks: Path) -> Path:
    """NAME-VERSION.hpb of an eval, safe on every file system."""
    manifest = read_manifest(tasks)
    version = re.sub(r"[^A-Za-z0-9._+-]+", "-", manifest.version or "").strip("-.")
    return Path(f"{org_name(manifest.name)}{'-' if version else ''}{version}{SUFFIX}")
