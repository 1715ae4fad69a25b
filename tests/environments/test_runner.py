"""`harbor-pack runner` before it asks the server: what is known on this machine is said first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harbor_tasks.bundles import pack
from harbor_tasks.cli import answer
from harbor_tasks.environments.base import read_job
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build

from .fake_server import Fake, problem

Runner = Callable[..., tuple[int, str]]


@pytest.fixture
def server() -> Iterator[Fake]:
    """One that refuses everything, and says what it was asked."""
    fake = Fake(lambda _method, _path: problem(401, "who are you?"))
    yield fake
    fake.close()


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(resource("examples") / "starter", tmp_path_factory.mktemp("built") / "tasks").out


@pytest.fixture
def runner(server: Fake, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """The command in an empty folder: exit code, and what was said."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> tuple[int, str]:
        code = answer(["runner", "--server", server.url, *map(str, arguments)])
        said = "".join(capsys.readouterr())
        assert "Traceback" not in said
        return code, said

    return run


@pytest.mark.engine
def test_the_server_is_asked_when_nothing_here_is_in_the_way(runner: Runner, server: Fake, tasks: Path) -> None:
    code, said = runner(tasks)
    assert (code, server.asked[0][0]) == (3, "GET /jobs?page_size=1")
    assert "wants a key" in said


@pytest.mark.engine
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--agent", "orakle"), 2, "agent 'orakle' is not known; did you mean oracle?"),
        (("--resume", "nothing"), 2, "not the folder of a job"),
        (("--ca", "nothing.pem"), 2, "--ca: nothing.pem cannot be read"),
        (
            ("--keep", "file/kept"),
            3,
            "file/kept: no folder can be made there (Not a directory); name another place: --k",
        ),
        (
            ("--jobs-dir", "file"),
            3,
            "file: no folder can be made there (Not a directory); name another place: --jobs-d",
        ),
        (("--harbor", "nothing/harbor"), 3, "--harbor nothing/harbor: no such program"),
        (("--host", "unix:///nowhere.sock"), 3, "no container engine answers at unix:///nowhere.sock"),
        (("--", "--n-tasks", "3"), 2, "--n-tasks cannot be passed on to harbor run"),
    ],
)
def test_an_option_that_cannot_be_is_said_before(
    words: tuple[str, ...], code: int, says: str, runner: Runner, server: Fake, tasks: Path
) -> None:
    Path("file").touch()
    got, said = runner(tasks, *words)
    assert (got, server.asked) == (code, [])
    assert says in said


@pytest.mark.engine
def test_a_bundle_that_cannot_be_is_said_before(runner: Runner, server: Fake) -> None:
    Path("empty").mkdir()
    for source, says in (
        ("nowhere.hpb", "no such file or folder"),
        ("empty", "neither an eval nor built tasks"),
        ("registry.test/Evals:1", "cannot be the name of a repository"),
        ("https://registry.test/evals:1", "a reference has no https:// in front"),
    ):
        code, said = runner(source)
        assert (code, server.asked) == (2, [])
        assert says in said


@pytest.mark.engine
def test_one_bundle_that_cannot_be_stops_no_other(runner: Runner, server: Fake, tasks: Path) -> None:
    code, _ = runner("nowhere.hpb", tasks)
    assert (code, len(server.asked)) == (3, 1)


@pytest.mark.engine
def test_a_job_that_is_none_of_a_servers_is_said_before(
    runner: Runner, server: Fake, tasks: Path, repo_root: Path
) -> None:
    command = [sys.executable, "-m", "harbor_tasks.cli", "run", str(tasks), "--jobs-dir", f"{Path.cwd()}/jobs"]
    subprocess.run(command, cwd=repo_root, check=True, capture_output=True)
    [job] = Path("jobs").iterdir()
    assert read_job(job).environment == "local"
    code, said = runner(tasks, "--resume", job)
    assert (code, server.asked) == (2, [])
    assert "this job ran with the environment local, not harbor" in said


def test_run_knows_agents_and_environments_before_it_fetches(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tasks: Path
) -> None:
    bundle = pack(tasks, tmp_path / "a.hpb").file
    for words, says in (
        (("--agent", "orakle", "--env", "docker"), "did you mean oracle?"),
        (("--env", "dokker"), "environment 'dokker' is not known; use --env local or docker or harbor"),
    ):
        for source in (str(bundle), "127.0.0.1:9/nobody/there"):
            assert answer(["run", source, "--trust", *words]) == 2
            assert says in capsys.readouterr().err
