"""What Harbor needs to run a bundle's tasks as a set: ``registry.json`` and ``dataset.toml`` (facts/harbor.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from harbor_tasks.tasks.manifest import BuildManifest
from harbor_tasks.tasks.names import org_name

NO_VERSION = "0"
"""The version of a set whose eval names none: Harbor's registry wants one."""


def registry_json(manifest: BuildManifest) -> bytes:
    """A registry with this one set; paths are relative to the unpacked folder."""
    name = json.dumps(org_name(manifest.name))
    version = json.dumps(manifest.version or NO_VERSION, ensure_ascii=False)
    description = json.dumps(manifest.description, ensure_ascii=False)
    tasks = ",\n".join(
        json.dumps({"name": task.name, "path": task.directory}, ensure_ascii=False) for task in manifest.tasks
    )
    text = f'[{{"name": {name}, "version": {version}, "description": {description}, "tasks": [\n{tasks}\n]}}]\n'
    return text.encode("utf-8", "surrogatepass")


def dataset_toml(manifest: BuildManifest) -> bytes:
    """The manifest of the set: each task with its digest."""
    return "".join(_dataset_lines(manifest)).encode("utf-8")


def _dataset_lines(manifest: BuildManifest) -> Iterator[str]:
    import tomli_w

    org = org_name(manifest.name)
    info = {"name": f"{org}/{org}", "version": manifest.version or NO_VERSION, "description": manifest.description}
    yield tomli_w.dumps({"dataset": info})
    for task in manifest.tasks:  # names are plain letters (tasks.names): no quoting is needed
        yield f'\n[[tasks]]\nname = "{task.name}"\ndigest = "sha256:{task.digest}"\n'
