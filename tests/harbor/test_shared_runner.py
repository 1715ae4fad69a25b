"""docs/shared-runner.md, command by command: a registry, a server with a key, a CI job on a merge, a run."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harbor_tasks.environments.base import read_job, read_trials
from harbor_tasks.results.collect import collect_job
from tests.kit import what_became

from .kit import MakeDesk, left_behind, verdicts
from .serving import Server, free_port, own_address

pytestmark = [pytest.mark.harbor, pytest.mark.engine, pytest.mark.registry]


@dataclass
class Team:
    """The commands of the page, and a machine that is registry, runner and CI in one."""

    folder: Path
    harbor: Path
    blocks: dict[str, list[tuple[str, str]]]
    """By heading: (language, text) of each block."""
    registry: int = field(default_factory=lambda: free_port("127.0.0.1"))
    server: int = 0
    address: str = field(default_factory=own_address)

    def text(self, heading: str, number: int) -> str:
        """A block, with this machine's ports and folders in place of the page's."""
        text = self.blocks[heading][number][1]
        for there, here in (
            ("127.0.0.1:5000", f"127.0.0.1:{self.registry}"),
            ("/var/lib/docker-registry", f"{self.folder}/registry"),
            ("/var/lib/harbor", f"{self.folder}/data"),
            ("8390", str(self.server)),
        ):
            text = text.replace(there, here)
        return text

    def environ(self, **more: str) -> dict[str, str]:
        """Where the page's programs are found, and its two variables."""
        path = os.pathsep.join([str(Path(sys.executable).parent), str(self.harbor.parent), os.environ["PATH"]])
        team = {"REGISTRY": f"127.0.0.1:{self.registry}/team", "ADDRESS": self.address}
        cache = {"HARBOR_PACK_CACHE": str(self.folder / "cache")}
        return {**os.environ, **team, **cache, "PATH": path, **more}

    def start(self, heading: str, number: int) -> subprocess.Popen[bytes]:
        """Start a block that goes on."""
        with (self.folder / f"{heading}.log").open("wb") as log:
            return subprocess.Popen(
                ["sh", "-euc", f"exec {text}" if "exec" not in (text := self.text(heading, number)) else text],
                cwd=self.folder, env=self.environ(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def do(self, heading: str, number: int, cwd: Path | None = None, **more: str) -> str:
        """Run a block; what it printed."""
        done = subprocess.run(
            ["sh", "-euc", self.text(heading, number)], cwd=cwd or self.folder, env=self.environ(**more),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def team(harbor_bin: Path, repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """The page's registry and server, running."""
    page = (repo_root / "docs" / "shared-runner.md").read_text(encoding="utf-8")
    blocks: dict[str, list[tuple[str, str]]] = {}
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading = part.partition("\n")[0]
        blocks[heading] = re.findall(r"^```(sh|yaml)\n(.*?)^```$", part, flags=re.MULTILINE | re.DOTALL)
    team = Team(tmp_path_factory.mktemp("team"), harbor_bin, blocks)
    team.server = free_port(team.address)
    with contextlib.ExitStack() as running:
        (team.folder / "registry.yml").write_text(team.text("The registry", 0))
        for process in (team.start("The registry", 1),):
            running.callback(process.wait)
            running.callback(process.terminate)
        team.do("The runner", 0)
        process = team.start("The runner", 1)
        running.callback(process.wait)
        running.callback(process.terminate)
        probe = Server(harbor_bin, team.folder, host=team.address, port=team.server)
        until = time.monotonic() + 90
        while not probe.answers():
            assert process.poll() is None, (team.folder / "The runner.log").read_text()
            assert time.monotonic() < until
            time.sleep(0.2)
        yield team


def git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=team", "-c", "user.email=team@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", "-C", folder, *name, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def merged(make_desk: MakeDesk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of main, as a CI job gets it, after the merge of a branch that brought a case."""
    repository = tmp_path_factory.mktemp("repository")
    desk = make_desk()
    rule = {"match": "no downloads", "patterns": ["Bash"], "input_filters": [r"\bcurl\b"]}
    eval_folder = repository / "evals" / "desk"
    desk.spec["name"] = f"team {desk.spec['name']}"
    calls = [{"tool": "Bash", "input": {"command": command}} for command in ("curl example.org", "echo yes > done.txt")]
    desk.case("first", replay=calls)
    desk.handlers(rule)
    desk.build()
    git(repository, "init", "-q")
    (repository / "evals").mkdir()
    (desk.folder / "eval").rename(eval_folder)
    (eval_folder / ".git").rmdir()
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "The eval")
    git(repository, "switch", "-qc", "second")
    (eval_folder / "cases" / "first").joinpath("input.yaml").write_text("prompt: do it now\n")
    git(repository, "commit", "-qam", "Say when")
    git(repository, "switch", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "Merge second", "second")
    checkout = repository.parent / f"{repository.name}-ci"
    git(repository, "clone", "-q", str(repository), str(checkout))
    return checkout


def test_what_a_merge_pushes_is_what_the_runner_runs(team: Team, merged: Path, tmp_path: Path) -> None:
    said = team.do("The CI job", 0, merged)
    commit = git(merged, "rev-parse", "--short=12", "HEAD")
    assert f"team/desk:{commit}" in said
    assert "team/desk:latest: 1 upload, " in said
    said = team.do("A run", 0)
    assert re.search(r"1 of 1 trial scored, mean reward 1\.00", said), said
    [job] = (team.folder / "jobs").iterdir()
    assert [trial.reward for trial in read_trials(job)] == [1.0]
    assert [(trial.calls.denied, trial.sealed, trial.warnings) for trial in read_trials(job)] == [(1, True, ())]
    assert read_job(job).server == f"http://{team.address}:{team.server}"
    assert collect_job(job).exit_code == 0
    assert left_behind(job) == []
    again = team.do("A run", 1, JOB=str(job), HARBOR_API_KEY=(team.folder / "harbor.key").read_text().strip())
    assert "1 kept" in again
    local = ["harbor-pack", "run", read_job(job).source, "--trust", "--agent", "replay", "--jobs-dir", str(tmp_path)]
    subprocess.run(local, env=team.environ(), capture_output=True, check=True, timeout=60)
    [here] = tmp_path.iterdir()
    assert verdicts(here) == verdicts(job)
    assert what_became(here) == what_became(job)
    key = (team.folder / "harbor.key").read_text().strip()
    written = [path for path in (team.folder / "jobs").rglob("*") if path.is_file()]
    assert [path for path in written if key in path.read_text(errors="replace")] == []
    assert (team.folder / "harbor.key").stat().st_mode & 0o077 == 0


def test_a_merge_of_an_eval_with_a_fault_pushes_nothing(team: Team, merged: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    git(merged, "clone", "-q", str(merged), str(broken))
    (broken / "evals" / "desk" / "eval.yaml").write_text("name: desk\nprompts: do\n")
    done = subprocess.run(
        ["sh", "-euc", team.text("The CI job", 0)], cwd=broken, env=team.environ(), capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "digest" not in done.stdout


def test_the_page_is_run_here_block_by_block(team: Team) -> None:
    counts = {heading: len(found) for heading, found in team.blocks.items()}
    assert counts == {"The registry": 2, "The runner": 2, "The CI job": 1, "A run": 2, "Who gets what": 0}
