"""registry.json and dataset.toml of a bundle, as Harbor itself reads them."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from harbor_tasks.bundles import BundleInfo, unpack
from harbor_tasks.tasks.manifest import read_manifest

READ = """
import json, sys
from pathlib import Path
from harbor.models.dataset.manifest import DatasetManifest
from harbor.models.registry import Registry
from harbor.models.task.task import Task
registry = Registry.from_path(Path("registry.json"))
dataset = DatasetManifest.from_toml(Path("dataset.toml").read_text())
tasks = [Task(task.to_source_task_id().get_local_path()) for task in registry.datasets[0].tasks]
print(json.dumps({
    "set": [registry.datasets[0].name, registry.datasets[0].version], "tasks": [task.name for task in tasks],
    "dataset": [dataset.dataset.name, dataset.dataset.version, dataset.dataset.description],
    "digests": {task.name: task.digest for task in dataset.tasks},
}))
"""


@pytest.fixture
def pulled(packed: BundleInfo, tmp_path: Path) -> Path:
    unpack(packed.file, tmp_path / "pulled")
    return tmp_path / "pulled"


def test_the_set_names_every_task_and_its_digest(pulled: Path) -> None:
    manifest = read_manifest(pulled)
    (entry,) = json.loads((pulled / "registry.json").read_bytes())
    assert [task["path"] for task in entry["tasks"]] == [task.directory for task in manifest.tasks] == ["one", "two"]
    assert (entry["name"], entry["version"]) == ("shop", "1.2")
    data = tomllib.loads((pulled / "dataset.toml").read_text())
    assert data["dataset"] == {"name": "shop/shop", "version": "1.2", "description": "orders – and „refunds“"}
    assert data["tasks"] == [{"name": t.name, "digest": f"sha256:{t.digest}"} for t in manifest.tasks]


@pytest.mark.harbor
def test_harbor_reads_the_set_and_would_run_it_by_name(pulled: Path, harbor_bin: Path) -> None:
    environ = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}
    python = harbor_bin.resolve().parent / "python"
    done = subprocess.run([python, "-c", READ], cwd=pulled, env=environ, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    manifest = read_manifest(pulled)
    assert said["set"] == ["shop", "1.2"]
    assert said["tasks"] == [task.name for task in manifest.tasks]
    assert said["dataset"] == ["shop/shop", "1.2", "orders – and „refunds“"]
    assert said["digests"] == {task.name: f"sha256:{task.digest}" for task in manifest.tasks}
    command: list[str | Path] = [
        harbor_bin,
        "run",
        "-d",
        "shop@1.2",
        "--registry-path",
        "registry.json",
        "-a",
        "oracle",
        "--dry-run",
        "-y",
    ]
    run = subprocess.run(command, cwd=pulled, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
