"""Temporary folders: gone when their process ends in any way but SIGKILL, and told from those in use after that."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harbor_tasks.cli import answer
from harbor_tasks.environments.cleaning import clean
from harbor_tasks.environments.scratch import left_folders, scratch_folder

HOLDS = """
import time
from harbor_tasks.environments.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "tasks").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


UNPACKS = """
import os, signal
from pathlib import Path
from harbor_tasks.environments.scratch import folder_beside
with folder_beside(Path("out")) as folder:
    (folder / "tasks").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_goes_with_its_block(place: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == place.resolve()
        assert not list(left_folders())
    assert not list(place.iterdir())


def test_clean_takes_what_a_killed_process_left_and_nothing_that_is_held(place: Path) -> None:
    (place / "hp-of-somebody-else").mkdir()
    (killed, left), (running, held) = holder(), holder()
    with running, killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert clean(jobs_dir=place / "jobs").removed == [f"folder {left}"]
        assert held.is_dir()
        running.kill()
    assert sorted(path.name for path in place.iterdir()) == sorted([held.name, "hp-of-somebody-else"])


def test_clean_takes_what_was_left_beside_a_target_here_and_in_the_cache(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (here := place / "here", cache := place / "cache" / "bundles"):
        (folder / ".hp-somebodys").mkdir(parents=True)
        subprocess.run([sys.executable, "-c", UNPACKS], cwd=folder, check=False)
        assert len(list(folder.iterdir())) == 2
    monkeypatch.chdir(here)
    monkeypatch.setenv("HARBOR_PACK_CACHE", str(place / "cache"))
    assert answer(["clean"]) == 0
    assert capsys.readouterr().out.count("removed folder") == 2
    assert [path.name for folder in (here, cache) for path in folder.iterdir()] == [".hp-somebodys"] * 2
