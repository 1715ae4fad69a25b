"""Probes in a sandbox: one task of the eval that carries them all, run as any other by the agent `probe`.

Its policy is what the build wrote for probes; its `setup`, image and limits are those of the eval's tasks, so it is
staged and sealed as they are. It has no judges, no MCP servers and no steps.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from harbor_tasks.agents.probe import ProbeAgent
from harbor_tasks.environments.base import Event, RunOptions, Trial, read_trials, trial_dir
from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.environments.plan import task_digest
from harbor_tasks.environments.scratch import scratch_folder
from harbor_tasks.environments.staging import copy_tree
from harbor_tasks.errors import AuthorError, InterruptedRun, MachineError
from harbor_tasks.proving.calls import Forced, Outcome, set_variables
from harbor_tasks.resources import resource
from harbor_tasks.tasks.manifest import BUILD_DIR, BuildManifest, ExecutionPart, TaskPart, manifest_path

TASK = "probes"
_SECONDS = (120.0, 5.0)
"""What the agent gets, and more for each probe: the hook's own limit is for one that asks a model."""


def in_sandbox(
    source: Path, manifest: BuildManifest, caller: Mapping[str, str], forced: Sequence[Forced], environment: str,
    options: RunOptions, say: Callable[[str], None] | None, program: str | None = None,
) -> tuple[dict[str, Outcome], bool]:  # fmt: skip
    """The outcomes in this environment by the id of the call, and whether the sandbox was sealed.

    ``program``: the agent program through which they go afterwards, so that one image serves both.
    """
    agent = ProbeAgent()
    agent.program = program
    with scratch_folder() as folder:
        built = probe_build(source, manifest, caller, forced, folder / "built")
        wanted = replace(
            options, environment=environment, agent=ProbeAgent.name, parallel=1, attempts=1, cases=(), resume=None,
            jobs_dir=folder / "jobs", harbor_options=options.harbor_options if environment == "harbor" else (),
        )  # fmt: skip

        def heard(event: Event) -> None:
            if say is not None and event.kind in ("ready", "warning"):
                say(str(event))

        try:
            job = run_job(built, wanted, on_event=heard, agent=agent)
        except InterruptedRun:
            raise InterruptedRun("interrupted: the probes were not all asked") from None
        [trial] = read_trials(job)
        if trial.status != "unjudged":  # which it is when all went well: nobody judges it
            raise MachineError(f"probes cannot be asked in {environment}: {_why(trial)}")
        place = trial_dir(job, trial.id)
        tiers = {line.get("tool_use_id"): line.get("tier") for line in json_lines(place / "interceptions.jsonl")}
        outcomes = {str(line["id"]): line for line in json_lines(place / "transcript.jsonl") if "got" in line}
        return {call: {**line, "tier": tiers.get(call)} for call, line in outcomes.items()}, trial.sealed


def _why(trial: Trial) -> str:
    if trial.error is not None:
        return f"{trial.error.kind} error: {trial.error.message}"
    return "; ".join((trial.status, *trial.warnings))


def probe_build(
    source: Path, manifest: BuildManifest, caller: Mapping[str, str], forced: Sequence[Forced], out: Path
) -> Path:  # fmt: skip
    """A folder like that of `build`, with the one task of the probes."""
    example = next((source / task.directory for task in manifest.tasks if (source / task.directory).is_dir()), None)
    if example is None:
        raise AuthorError(f"{source}: it holds no task; build the eval with at least one case")
    env = set_variables(manifest, caller)
    task = out / TASK
    _policy(source / BUILD_DIR / "probe", example / "environment", task / "environment")
    toml = _toml(tomllib.loads((example / "task.toml").read_text(encoding="utf-8")), manifest, env, len(forced))
    _write(task / "task.toml", tomli_w.dumps(toml))
    _write(task / "instruction.md", "Ask the registered hooks about the calls of probes.json.\n")
    _write(task / "solution" / "probes.json", json.dumps([one.call for one in forced]))
    tests = next(path for path in (example / "tests", *sorted(example.glob("steps/*/tests"))) if path.is_dir())
    (task / "tests").mkdir()
    copy_tree(tests / "test.sh", task / "tests" / "test.sh")
    copy_tree(resource("interceptor", "verify.py"), task / "tests" / "verify.py")
    judges = {"workspace": manifest.sandbox.workdir, "judges": [], "reward": {}, "handlers": []}
    _write(task / "tests" / "judges.json", json.dumps(judges))
    for name in ("layer", "base"):  # what the image is made from
        if (source / BUILD_DIR / name).is_dir():
            copy_tree(source / BUILD_DIR / name, out / BUILD_DIR / name)
    part = TaskPart(directory=TASK, name=toml["task"]["name"], case_id=TASK, digest=task_digest(task))
    _write(manifest_path(out), _manifest(manifest, env, part).to_bytes().decode("utf-8", "surrogatepass"))
    return out


def _policy(probe: Path, example: Path, target: Path) -> None:
    """The policy of probes with the eval's own setup, and the layer where it travels with each task."""
    if probe.is_dir():  # an eval without rules and permissions has none
        copy_tree(probe, target)
    target.mkdir(parents=True, exist_ok=True)
    for name in ("setup", "layer"):
        if (example / name).exists():
            copy_tree(example / name, target / name)


def _toml(
    toml: dict[str, Any], manifest: BuildManifest, env: Mapping[str, str], count: int
) -> dict[str, Any]:  # fmt: skip
    """task.toml of one of the eval's tasks, made one for the probes."""
    for key in ("steps", "multi_step_reward_strategy"):
        toml.pop(key, None)
    org = toml["task"]["name"].partition("/")[0]
    toml["task"]["name"], toml["metadata"]["case_id"] = f"{org}/{TASK}", TASK
    toml.setdefault("agent", {})["timeout_sec"] = _SECONDS[0] + _SECONDS[1] * count
    toml["environment"].pop("mcp_servers", None)
    given = toml["environment"].pop("env", {})
    kept = {name: given[name] for name in manifest.execution.env if name in env and name in given}
    if kept:
        toml["environment"]["env"] = kept
    return toml


def _manifest(manifest: BuildManifest, env: Mapping[str, str], part: TaskPart) -> BuildManifest:
    execution: ExecutionPart = manifest.execution.model_copy(
        update={"env": {name: text for name, text in manifest.execution.env.items() if name in env}, "mode": "case"}
    )
    hooks = manifest.hooks_after.model_copy(update={"after_each": (), "after_all": ()})
    update = {
        "execution": execution, "steps": (), "judges": (), "thresholds": {}, "hooks_after": hooks, "mcp_servers": (),
        "probes": (), "tasks": (part,),
    }  # fmt: skip
    return manifest.model_copy(update=update)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
