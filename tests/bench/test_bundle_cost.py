"""What bundles cost: packing and unpacking beside `tar | zstd` and `skopeo copy`; ten thousand cases, build to pull.

Needs tar, zstd, skopeo and docker-registry. Files lie in memory where the machine has room there: a disk would be
measured else.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.tasks.build import build

from ..registry.kit import docker_registry
from . import test_build_cost as cases_of

LARGE_SHARE, SMALL_SHARE = 0.7, 0.3
"""Of the speed of the plain programs: what is wanted at least."""
BUILD_CPU_SECONDS, PEAK_MIB = 30.0, 150.0
ROUNDS = 3
LARGE_BYTES = 100 << 20
HEAD = "import sys\nfrom pathlib import Path\nfrom harbor_tasks.bundles import inspect, pack, unpack, verify\n"
PARTS = (
    "import sys, time\nfrom pathlib import Path\nfrom harbor_tasks.bundles.archive import write\n"
    "from harbor_tasks.bundles.listing import listed\nfrom harbor_tasks.bundles.scan import find_secrets\n"
    "import tomli_w, zstandard\nbegan = time.monotonic()\nwith listed(Path(sys.argv[1])) as listing:\n"
)  # fmt: skip
WRITE = PARTS + "    write(listing, Path(sys.argv[2]))\nprint(time.monotonic() - began)\n"
SCAN = (
    PARTS
    + "    began = time.monotonic()\n    found = list(find_secrets(listing, {}))\nprint(time.monotonic() - began)\n"
)
READ = (
    HEAD + "import time\nfrom harbor_tasks.bundles import reader\nimport zstandard\nbegan = time.monotonic()\n"
    "unpack(Path(sys.argv[1]), Path(sys.argv[2]))\nprint(time.monotonic() - began)\n"
)  # fmt: skip
PUSH, PULL = (
    "import sys\nfrom harbor_tasks.cli import answer\n" + code
    for code in (
        "sys.exit(answer(['push', sys.argv[1], sys.argv[2]]))",
        "sys.exit(answer(['pull', sys.argv[1], '-o', sys.argv[2]]))",
    )
)  # fmt: skip


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder in memory if there is room, else the usual place."""
    memory = Path("/dev/shm")
    base = memory if memory.is_dir() and shutil.disk_usage(memory).free > 8 << 30 else None
    with tempfile.TemporaryDirectory(prefix="hp-bench-", dir=base) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _programs() -> None:
    missing = [name for name in ("tar", "zstd", "skopeo", "docker-registry") if shutil.which(name) is None]
    if missing:
        pytest.fail(f"the comparison needs {', '.join(missing)}: apt-get install {' '.join(missing)}")


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def shell(line: str) -> None:
    subprocess.run(["bash", "-o", "pipefail", "-c", line], check=True)


def python(code: str, *arguments: Path) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def large_files(root: Path) -> Path:
    """One case with two files that cannot be compressed and two that can."""
    files = root / "cases/c1/files"
    files.mkdir(parents=True)
    (root / "cases/c1/input.yaml").write_text("prompt: go\n")
    (root / "eval.yaml").write_text("{name: large, dataset: {path: cases}, execution: {prompt: x}}")
    chance = random.Random(1)
    for number in (1, 2):
        (files / f"noise{number}.bin").write_bytes(chance.randbytes(LARGE_BYTES))
        (files / f"digits{number}.txt").write_text(chance.randbytes(LARGE_BYTES // 2).hex())
    return build(root, root / "tasks").out


def small_files(root: Path) -> Path:
    """A thousand cases."""
    root.mkdir()
    cases_of.write_cases(root)
    return build(root, root / "tasks").out


def layout_of(blob: Path, place: Path) -> Path:
    """An OCI layout whose one layer is this file."""
    blobs = place / "blobs/sha256"
    blobs.mkdir(parents=True)

    def add(content: bytes | Path, media: str) -> dict[str, Any]:
        if isinstance(content, Path):
            with content.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.link(content, blobs / digest)
            return {"mediaType": media, "digest": f"sha256:{digest}", "size": content.stat().st_size}
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    kind = "application/vnd.oci.image"
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "0" * 64]}}
    manifest = {
        "schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json",
        "config": add(json.dumps(config).encode(), f"{kind}.config.v1+json"),
        "layers": [add(blob, f"{kind}.layer.v1.tar+zstd")],
    }  # fmt: skip
    entry = add(json.dumps(manifest).encode(), f"{kind}.manifest.v1+json")
    (place / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (place / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return place


@pytest.mark.parametrize(("make", "share"), [(large_files, LARGE_SHARE), (small_files, SMALL_SHARE)])
def test_packing_and_unpacking_keep_up_with_plain_programs(
    room: Path, make: Callable[[Path], Path], share: float
) -> None:
    tasks = make(room / "eval")
    plain, bundle, out = room / "plain.zst", room / "bundle.hpb", room / "out"
    times: dict[str, list[float]] = {name: [] for name in ("pack", "tar|zstd", "unpack", "zstd|tar", "skopeo")}
    for _ in range(ROUNDS):
        times["tar|zstd"].append(seconds(lambda: shell(f"tar -C {tasks} -cf - . | zstd -q -3 -f -o {plain}")))
        times["pack"].append(float(python(WRITE, tasks, bundle)))
        out.mkdir()
        times["zstd|tar"].append(seconds(lambda: shell(f"zstd -dqc {plain} | tar -C {out} -xf -")))
        shutil.rmtree(out)
        times["unpack"].append(float(python(READ, bundle, out)))
        shutil.rmtree(out)
        layout = layout_of(plain, room / "layout")
        copy = f"skopeo copy -q --dest-oci-accept-uncompressed-layers oci:{layout} oci:{room}/copy"
        times["skopeo"].append(seconds(lambda line=copy: shell(line)))  # type: ignore[misc]
        shutil.rmtree(layout)
        shutil.rmtree(room / "copy")
    scanned = float(python(SCAN, tasks))
    middle = {name: statistics.median(found) for name, found in times.items()}
    print(f"\n{make.__name__}: " + ", ".join(f"{name} {found:.2f} s" for name, found in middle.items()))
    packing, unpacking = middle["tar|zstd"] / middle["pack"], middle["zstd|tar"] / middle["unpack"]
    copied = (middle["skopeo"] + middle["zstd|tar"]) / middle["unpack"]
    print(
        f"pack: {packing:.2f} of tar|zstd's speed, unpack: {unpacking:.2f} of zstd|tar's, {copied:.2f} of skopeo's and "
        f"zstd|tar's (at least {share}); the secrets scan {scanned:.2f} s"
    )
    assert packing >= share
    assert unpacking >= share


@pytest.fixture
def registry(room: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The real one, on loopback, and nobody logged in."""
    monkeypatch.setenv("DOCKER_CONFIG", str(room))
    with docker_registry(room / "registry") as host:
        yield host


def test_ten_thousand_cases_take_flat_memory(room: Path, registry: str) -> None:
    costs: dict[int, dict[str, cases_of.Cost]] = {}
    for count in (1000, 10_000):
        root = room / str(count)
        root.mkdir()
        cases_of.write_cases(root, count)
        tasks, bundle, out, place = root / "tasks", root / "b.hpb", root / "out", Path(registry, f"cases:{count}")
        costs[count] = {
            "build": cases_of.measured(cases_of.BUILD, root, tasks),
            "bundle": cases_of.measured(HEAD + "pack(Path(sys.argv[1]), Path(sys.argv[2]), environ={})", tasks, bundle),
            "verify": cases_of.measured(HEAD + "inspect(Path(sys.argv[1]))", bundle),
            "unpack": cases_of.measured(READ, bundle, out),
            "push": cases_of.measured(PUSH, bundle, place),
            "pull": cases_of.measured(PULL, place, root / "pulled"),
            "dry run": cases_of.measured(
                "import sys\nfrom harbor_tasks.cli import answer\n"
                "sys.exit(answer(['run', sys.argv[1], '--dry-run', '--agent', 'replay']))", tasks
            ),
        }  # fmt: skip
        print(f"\n{count} cases: bundle of {bundle.stat().st_size >> 10} KiB")
        for name, cost in costs[count].items():
            print(f"  {name}: {cost.cpu:.1f} s CPU, peak {cost.peak:.0f} MiB")
        shutil.rmtree(root)
    assert costs[10_000]["build"].cpu <= BUILD_CPU_SECONDS
    assert max(cost.peak for cost in costs[10_000].values()) <= PEAK_MIB
