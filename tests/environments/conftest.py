"""Evals as an author writes them, built and run for real on this machine."""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from harbor_tasks.endpoint import Endpoint
from harbor_tasks.environments.base import Event, Job, RunOptions, Trial, read_job, read_trials
from harbor_tasks.environments.jobs import dry_run, run_job
from harbor_tasks.environments.plan import JobPlan
from harbor_tasks.tasks.build import build
from tests.kit import small_eval, write_files

from .fake_server import Answer, Fake, MakeFake
from .judging import QUALITY, Bench


@dataclass
class Ran:
    """A job that was run, and what was said meanwhile."""

    folder: Path
    events: list[Event]

    @property
    def job(self) -> Job:
        return read_job(self.folder)

    @property
    def trials(self) -> list[Trial]:
        return read_trials(self.folder)

    @property
    def trial(self) -> Trial:
        """The only one."""
        [one] = self.trials
        return one

    @property
    def trial_folder(self) -> Path:
        return self.folder / "trials" / self.trial.id

    def kept(self, name: str) -> str:
        """A file of the only trial's folder."""
        return (self.trial_folder / name).read_text(encoding="utf-8")


@dataclass
class Author:
    """Writes an eval, builds it, runs it."""

    folder: Path
    scratch: Path
    spec: dict[str, Any] = field(default_factory=lambda: small_eval("desk"))

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    def case(self, name: str = "c1", *, replay: Any = None, solve: str | None = None, **files: str) -> Path:
        """A case; other keywords are files by name, `__` for a slash and `_yaml` for the extension."""
        case = self.folder / "eval" / "cases" / name
        written = {"input.yaml": "prompt: do it\n", **{_path(key): text for key, text in files.items()}}
        if replay is not None:
            written["replay.yaml"] = yaml.safe_dump(replay)
        if solve is not None:
            written["solution/solve.sh"] = solve
        write_files(case, written)
        return case

    def project(self, files: Mapping[str, str]) -> None:
        """Files of the eval's project, by their paths."""
        write_files(self.eval, files)

    def handlers(self, *handlers: dict[str, Any]) -> None:
        """The author's own tool_handlers.yaml."""
        path = self.folder / "eval" / "tool_handlers.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump({"handlers": list(handlers)}))

    @property
    def eval(self) -> Path:
        return self.folder / "eval"

    def write(self) -> None:
        """The eval.yaml, in a project of its own."""
        (self.eval / ".git").mkdir(exist_ok=True)
        (self.eval / "eval.yaml").write_text(json.dumps(self.spec))

    def build(self) -> Path:
        self.write()
        return build(self.eval, self.folder / "out").out

    def run(self, agent: str = "oracle", **options: Any) -> Ran:
        """Build and run."""
        return self.run_built(self.build(), agent, **options)

    def dry_run(self, source: Path | None = None, agent: str = "oracle", **options: Any) -> JobPlan:
        """Plan only."""
        return dry_run(source or self.build(), RunOptions(agent=agent, jobs_dir=self.jobs, **options))

    def run_built(self, out: Path, agent: str = "oracle", **options: Any) -> Ran:
        events: list[Event] = []
        asked = RunOptions(agent=agent, jobs_dir=self.jobs, **options)
        return Ran(run_job(out, asked, on_event=events.append), events)


def _path(key: str) -> str:
    return key.replace("__", "/").replace("_yaml", ".yaml").replace("_txt", ".txt").replace("_py", ".py")


@pytest.fixture(scope="module")
def engine_author(tmp_path_factory: pytest.TempPathFactory, base_image: str) -> Iterator[Callable[[], Author]]:
    """Makes authors whose trials run in containers made from the base image; their images go with the module."""
    spec_name = f"desk {secrets.token_hex(3)}"

    def make() -> Author:
        folder = tmp_path_factory.mktemp("author")
        (folder / "eval").mkdir()
        author = Author(folder, folder)
        author.spec["name"] = spec_name
        return author

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        yield make
    mine = f"harbor-pack/{spec_name.replace(' ', '-')}"
    listed = subprocess.run(["docker", "images", "-q", mine], capture_output=True, text=True, check=True).stdout.split()
    if listed:
        subprocess.run(["docker", "rmi", "-f", *listed], capture_output=True, check=True)


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Author:
    """An author whose temporary folders lie in one place of the test's own."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    # this Python itself: the shim of a version manager would take most of the time of a test
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "eval").mkdir()
    return Author(tmp_path, scratch)


@pytest.fixture
def make_fake() -> Iterator[MakeFake]:
    """Servers that end with the test."""
    made: list[Fake] = []

    def make(answer: Callable[[str, str], Answer]) -> Fake:
        made.append(Fake(answer))
        return made[-1]

    yield make
    for fake in made:
        fake.close()


@pytest.fixture
def gateway(engine: str, base_image: str) -> str:
    """This machine's address as containers of the engine's own network see it."""
    asked = [engine, "run", "--rm", base_image, "cat", "/proc/net/route"]
    routes = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    found = next(fields[2] for route in routes if (fields := route.split())[1] == "00000000")
    return socket.inet_ntoa(struct.pack("=L", int(found, 16)))


@pytest.fixture(scope="module")
def judge_server() -> Iterator[Endpoint]:
    """The scripted endpoint."""
    with Endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def bench(judge_server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A model; the caller of `run` has no key unless the test sets one."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    yield Bench(judge_server)
    judge_server.remove("bench")


@pytest.fixture
def small(author: Author, bench: Bench) -> Author:
    """An eval with a check and a model judge, whose case writes what is asked for."""
    author.spec["judges"] = [*author.spec["judges"], QUALITY]
    author.case(solve="echo yes > done.txt\n")
    return author
