"""What a trial in a container costs: eight of them with the oracle, two at a time, against less and against more.

Less is a bare `docker run` of the same scripts, as many at a time: stage, setup, the solution, tests/test.sh. More is
`harbor run` on the same tasks. All three have to bring eight rewards of 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import yaml

from harbor_tasks.environments.base import read_trials
from harbor_tasks.environments.engine import find_engine
from harbor_tasks.images import ImageRef, ensure_image
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

TRIALS, AT_A_TIME = 8, 2
OVER_BARE, OVER_HARBOR = 3.0, 3.0
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}
SPEC = {
    "name": "cost bench", "description": "small cases with a handler, a file and two judges",
    "dataset": {"path": "cases"}, "execution": {"prompt": "{{ input.prompt }}"}, "outputs": [{"path": "done.txt"}],
    "judges": [
        {"name": "done", "check": "return outputs['files'].get('done.txt') == 'yes 7\\n'"},
        {"name": "kept", "command": "test -s data/numbers.txt"},
    ],
}  # fmt: skip
HANDLERS = {
    "handlers": [{"match": "Uploads", "patterns": ["Bash"], "input_filters": ["upload"], "reason": "no uploads"}]
}
# What `run` does in a container, without anything around it.
BARE = """
cp -a /task/environment/. /workspace && sh /workspace/setup && cp -a /task/solution /solution && cd /workspace &&
su -s /bin/bash agent -c 'umask 002; bash /solution/solve.sh' && cp -a /task/tests/. /tests && sh /tests/test.sh >&2 &&
cat /logs/verifier/reward.json
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight small tasks, built."""
    folder = tmp_path_factory.mktemp("cost") / "eval"
    for number in range(TRIALS):
        case = folder / "cases" / f"case-{number}"
        (case / "files" / "data").mkdir(parents=True)
        (case / "solution").mkdir()
        (case / "input.yaml").write_text(f"prompt: count, {number}\n")
        (case / "files" / "data" / "numbers.txt").write_text("1\n2\n3\n4\n5\n6\n7\n")
        (case / "solution" / "solve.sh").write_text('echo "yes $(wc -l < data/numbers.txt)" > done.txt\n')
    (folder / ".git").mkdir()
    (folder / "eval.yaml").write_text(yaml.safe_dump(SPEC))
    (folder / "tool_handlers.yaml").write_text(yaml.safe_dump(HANDLERS))
    return build(folder, folder.parent / "tasks").out


@pytest.fixture(scope="module")
def image(tasks: Path, base_image: str) -> Iterator[ImageRef]:
    """The eval's image, made before anything is measured."""
    with pytest.MonkeyPatch.context() as patch, find_engine() as engine:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        found = ensure_image(tasks, engine)
        yield found
        subprocess.run(["docker", "rmi", "-f", found.tag], capture_output=True, check=True)


def seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def bare(tasks: Path, image: ImageRef) -> None:
    """One `docker run` a task."""

    def one(directory: str) -> float:
        command = ["docker", "run", "--rm", "-v", f"{tasks / directory}:/task:ro", "-w", "/workspace", image.id]
        done = subprocess.run([*command, "sh", "-c", BARE], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        reward: float = json.loads(done.stdout)["reward"]
        return reward

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        assert list(pool.map(one, [task.directory for task in read_manifest(tasks).tasks])) == [1] * TRIALS


def ours(tasks: Path, image: ImageRef, jobs: Path) -> None:
    """The command, as a process of its own."""
    command = [sys.executable, "-m", "harbor_tasks.cli", "run", str(tasks), "--env", "docker", "--agent", "oracle"]
    subprocess.run([*command, "-n", str(AT_A_TIME), "--jobs-dir", str(jobs)], capture_output=True, check=True)
    [job] = jobs.iterdir()
    assert [trial.reward for trial in read_trials(job)] == [1] * TRIALS
    assert {trial.versions["image"] for trial in read_trials(job)} == {image.id}


def harbor(tasks: Path, harbor_bin: Path, jobs: Path) -> None:
    """Harbor's own command and oracle."""
    command = [str(harbor_bin), "run", "-y", "-q", "-p", str(tasks), "-a", "oracle", "-e", "docker"]
    subprocess.run(
        [*command, "-n", str(AT_A_TIME), "-o", str(jobs), "--job-name", "bench"],
        env=os.environ | OFFLINE, stdin=subprocess.DEVNULL, capture_output=True, check=True,
    )  # fmt: skip
    rewards = [json.loads(path.read_text())["verifier_result"]["rewards"] for path in jobs.glob("bench/*/result.json")]
    assert [reward["reward"] for reward in rewards] == [1] * TRIALS


@pytest.mark.engine
@pytest.mark.harbor
def test_trials_cost_little_more_than_bare_containers_and_much_less_than_harbors(
    tasks: Path, image: ImageRef, harbor_bin: Path, tmp_path: Path
) -> None:
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    for turn in ("first", "second"):  # in turns: what else the machine does falls on both
        times["bare"].append(seconds(partial(bare, tasks, image)))
        times["ours"].append(seconds(partial(ours, tasks, image, tmp_path / turn)))
    less, own = min(times["bare"]), min(times["ours"])
    more = seconds(partial(harbor, tasks, harbor_bin, tmp_path / "harbor"))
    print(
        f"\n{TRIALS} trials with the oracle, {AT_A_TIME} at a time: bare docker run {less:.1f} s, run --env docker "
        f"{own:.1f} s, harbor run {more:.1f} s; over bare {own / less:.2f} (at most {OVER_BARE:g}), harbor over ours "
        f"{more / own:.1f} (at least {OVER_HARBOR:g}); load of the machine {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} processors: Harbor mostly waits, so on a busy machine it looks better"
    )
    assert own <= OVER_BARE * less
    assert more >= OVER_HARBOR * own
