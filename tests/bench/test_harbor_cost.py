"""What the runtime image saves under Harbor: the same packed task, with and without its STOPSIGNAL.

A container's first process ignores SIGTERM, and Harbor stops each container in good order: without the image's
STOPSIGNAL every trial waits ten seconds for nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harbor_tasks.environments.engine import find_engine
from harbor_tasks.images import ensure_image
from harbor_tasks.tasks.build import build

SAVED = 8.0
"""Seconds a trial, at least."""
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}
SPEC = {
    "name": "stop bench", "description": "one case", "dataset": {"path": "cases"}, "execution": {"prompt": "do it"},
    "outputs": [{"path": "done.txt"}],
    "judges": [{"name": "done", "check": "return outputs['files'].get('done.txt') == 'yes\\n'"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, base_image: str) -> Iterator[dict[str, Path]]:
    """A built task, twice: on the eval's image, and on the same image with Docker's default stop signal."""
    folder = tmp_path_factory.mktemp("stop")
    case = folder / "eval" / "cases" / "one"
    (case / "solution").mkdir(parents=True)
    (case / "input.yaml").write_text("prompt: do it\n")
    (case / "solution" / "solve.sh").write_text("echo yes > done.txt\n")
    (folder / "eval" / "eval.yaml").write_text(yaml.safe_dump(SPEC))
    built = build(folder / "eval", folder / "tasks").out
    with pytest.MonkeyPatch.context() as patch, find_engine() as engine:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        tag = ensure_image(built, engine).tag
    plain = f"{tag.partition(':')[0]}:without-stopsignal"
    dockerfile = f"FROM {tag}\nSTOPSIGNAL SIGTERM\n"
    subprocess.run(["docker", "build", "--quiet", "--tag", plain, "-"], input=dockerfile.encode(), check=True)
    shutil.copytree(built / "one", folder / "without" / "one")
    toml = folder / "without" / "one" / "task.toml"
    assert tag in toml.read_text()
    toml.write_text(toml.read_text().replace(tag, plain))
    yield {"with": built / "one", "without": folder / "without" / "one"}
    subprocess.run(["docker", "rmi", "--force", plain, tag], capture_output=True, check=True)


def harbor_run(harbor_bin: Path, task: Path, jobs: Path, name: str) -> float:
    """Wall time of one trial with Harbor's own command and oracle, in seconds."""
    command = [str(harbor_bin), "run", "-y", "-q", "-p", str(task), "-a", "oracle", "-e", "docker"]
    started = time.monotonic()
    subprocess.run(
        [*command, "-o", str(jobs), "--job-name", name], env=os.environ | OFFLINE, stdin=subprocess.DEVNULL,
        capture_output=True, check=True,
    )  # fmt: skip
    wall = time.monotonic() - started
    [result] = jobs.glob(f"{name}/*/result.json")
    assert json.loads(result.read_text())["verifier_result"]["rewards"]["reward"] == 1
    return wall


@pytest.mark.engine
@pytest.mark.harbor
def test_the_images_stop_signal_saves_seconds_of_every_trial_under_harbor(
    tasks: dict[str, Path], harbor_bin: Path, tmp_path: Path
) -> None:
    walls: dict[str, list[float]] = {"with": [], "without": []}
    for turn in range(2):  # in turns: what else the machine does falls on both
        for name, task in tasks.items():
            walls[name].append(harbor_run(harbor_bin, task, tmp_path, f"{name}-{turn}"))
    saved = min(walls["without"]) - min(walls["with"])
    shown = {name: " and ".join(f"{wall:.1f} s" for wall in found) for name, found in walls.items()}
    print(
        f"\none trial under harbor run: {shown['without']} without the image's STOPSIGNAL, {shown['with']} with it; "
        f"saved {saved:.1f} s (at least {SAVED:g})"
    )
    assert saved >= SAVED
