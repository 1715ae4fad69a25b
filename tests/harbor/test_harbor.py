"""Every example, built, taken by real Harbor and run on a real Docker engine.

Harbor exits with 0 when trials fail and drops invalid tasks without a word, so what it did is read from its files and
compared with what was built.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from harbor_tasks.tasks.conformance import LINT_EXEMPT
from harbor_tasks.tasks.manifest import BuildManifest

pytestmark = [pytest.mark.harbor, pytest.mark.engine]

EXAMPLES = sorted(path.parent.name for path in (Path(__file__).parents[2] / "examples").glob("*/eval.yaml"))
CANARY = "canary-7c1f0e"
# Harbor must not ask the internet for prices, nor report home.
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}

# What an agent could see when it starts, and what the registered hook says to a call that is not well-formed.
LOOK = f"""
command=$(python3 -c "
import json
hooks = json.load(open('.claude/settings.json'))['hooks']['PreToolUse']
print(hooks[0]['hooks'][0]['command'])")
echo "--- files"; find . -type f | sort
echo "--- canaries"; grep -rl {CANARY} . /tests /solution 2>/dev/null
echo "--- policy"; ls -A /tests 2>/dev/null; ls -A /solution 2>/dev/null; find . -path ./hooks -o -path ./setup
echo "--- environment"; env; hostname
echo "--- command"; printf '%s\\n' "$command"
echo "--- call"
echo '{{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": "no object"}}' | sh -c "$command" 2>&1
"""

# An agent of our own for Harbor that looks and does nothing else.
LOOKER = f"""
from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities

class Looker(BaseAgent):
    capabilities = AgentCapabilities(mcp_servers=True)

    @staticmethod
    def name():
        return "looker"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        result = await environment.exec(command={LOOK!r})
        (self.logs_dir / "seen.txt").write_text(result.stdout)
"""


@dataclass(frozen=True)
class Built:
    """A copy of an example, built: where, and the tasks that the build says it wrote."""

    tasks: Path
    manifest: BuildManifest
    folder: Path

    @property
    def directories(self) -> list[Path]:
        """The task directories."""
        return [self.tasks / task.directory for task in self.manifest.tasks]


@pytest.fixture(scope="module", params=EXAMPLES)
def built(
    request: pytest.FixtureRequest, repo_root: Path, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Built:
    """The example on the plain base image, with a word in all answers and annotations that must stay hidden."""
    folder = tmp_path_factory.mktemp(request.param)
    copy = folder / "eval"
    shutil.copytree(repo_root / "examples" / request.param, copy)
    spec = yaml.safe_load((copy / "eval.yaml").read_text())
    assert "sandbox" not in spec, "the example has a sandbox of its own: use that one here"
    with (copy / "eval.yaml").open("a") as file:
        file.write(f"\nsandbox: {{image: {base_image}, sealed: false}}\n")
    hide_a_word_in_the_answers(copy)
    command: list[str | Path] = [sys.executable, "-m", "harbor_tasks.cli", "build", copy, "-o", folder / "tasks"]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    manifest = BuildManifest.model_validate_json((folder / "tasks" / ".harbor-pack" / "build.json").read_text())
    assert len(manifest.tasks) == len(list(copy.glob("cases/*/input.*")))
    return Built(folder / "tasks", manifest, folder)


def hide_a_word_in_the_answers(copy: Path) -> None:
    """Add a key that only those may read who may read the answers."""
    names = [path for name in ("answers", "annotations") for path in copy.glob(f"cases/*/{name}.yaml")]
    assert names
    for path in names:
        with path.open("a") as file:
            file.write(f"\nhidden: {CANARY}\n")


@dataclass(frozen=True)
class Outcome:
    """What Harbor's files say of a job."""

    job: dict[str, Any]
    trials: dict[str, dict[str, Any]]
    folder: Path


def harbor_run(harbor_bin: Path, built: Built, name: str, *agent: str) -> Outcome:
    """Run every task of a build once, two at a time; the trials by task name."""
    command: list[str | Path] = [harbor_bin, "run", "-y", "-q", "-p", built.tasks, *agent, "-e", "docker", "-n", "2"]
    env = os.environ | OFFLINE | {"PYTHONPATH": str(built.folder)}
    done = subprocess.run(
        [*command, "-o", built.folder / "jobs", "--job-name", name],
        cwd=built.folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    folder = built.folder / "jobs" / name
    trials = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
    return Outcome(json.loads((folder / "result.json").read_text()), {t["task_name"]: t for t in trials}, folder)


def test_harbor_takes_every_task(built: Built, harbor_bin: Path) -> None:
    code = "import sys; from harbor.models.task.task import Task; [Task(path) for path in sys.argv[1:]]"
    python = harbor_bin.parent / "python"
    done = subprocess.run(
        [python, "-c", code, *built.directories], env=os.environ | OFFLINE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_harbors_lint_finds_nothing_but_what_is_exempted_with_a_reason(built: Built, harbor_bin: Path) -> None:
    command: list[str | Path] = [harbor_bin, "lint", "--select", "ALL", "--json", *built.directories]
    done = subprocess.run(command, env=os.environ | OFFLINE, capture_output=True, text=True, check=False)
    findings = json.loads(done.stdout)
    assert [finding for finding in findings if finding["rule"] not in LINT_EXEMPT] == []
    assert all(LINT_EXEMPT.values())


def test_the_solution_of_every_case_gets_reward_1(built: Built, harbor_bin: Path) -> None:
    outcome = harbor_run(harbor_bin, built, "oracle", "-a", "oracle")
    faults = {name: trial["exception_info"] for name, trial in outcome.trials.items() if trial["exception_info"]}
    assert faults == {}
    assert outcome.job["stats"]["n_errored_trials"] == 0
    assert outcome.job["n_total_trials"] == len(built.manifest.tasks)
    rewards = {
        name: (trial["verifier_result"] or {}).get("rewards", {}).get("reward")
        for name, trial in outcome.trials.items()
    }
    assert rewards == {task.name: 1 for task in built.manifest.tasks}


def test_when_the_agent_starts_no_answer_is_in_its_workspace(built: Built, harbor_bin: Path) -> None:
    (built.folder / "looker.py").write_text(LOOKER)
    outcome = harbor_run(harbor_bin, built, "looker", "-a", "looker:Looker")
    assert set(outcome.trials) == {task.name for task in built.manifest.tasks}
    case_of = {task.name: task.case_id for task in built.manifest.tasks}
    for name, trial in outcome.trials.items():
        looks = list((outcome.folder / trial["trial_name"]).glob("**/seen.txt"))
        assert looks
        for seen in looks:  # with steps, one a step
            parts = dict(part.split("\n", 1) for part in seen.read_text().split("--- ")[1:])
            files = {Path(line).name for line in parts["files"].splitlines()}
            assert not files & {"answers.yaml", "annotations.yaml", "tool_handlers.yaml", "solve.sh", "judges.json"}
            assert "settings.json" in files
            assert parts["canaries"] == parts["policy"] == ""
            assert case_of[name] not in parts["environment"]
            assert "/opt/harbor-pack/hooks/tools.py" in parts["command"]
            assert '"permissionDecision":"deny"' in parts["call"].replace(": ", ":")
