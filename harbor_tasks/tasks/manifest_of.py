"""Makes build.json from what was planned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import env_references
from harbor_tasks.policy.permissions import permissions_of
from harbor_tasks.policy.probes import probes_of
from harbor_tasks.resources import script_module
from harbor_tasks.tasks.eval_plan import EvalPlan
from harbor_tasks.tasks.manifest import (
    BuildManifest,
    ExecutionPart,
    HandlerPart,
    HooksAfterPart,
    JudgePart,
    PermissionsPart,
    StepPart,
    TaskPart,
)
from harbor_tasks.tasks.plan import TaskName
from harbor_tasks.tasks.task_toml import TOOL, harbor_value

_NAME = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def manifest_of(plan: EvalPlan, tasks: Iterable[tuple[TaskName, str]]) -> BuildManifest:
    """The manifest of a build: the eval as it was planned, and its tasks with their digests."""
    spec = plan.ev.spec
    execution = spec.execution
    rules = permissions_of(plan.ev, Problems())
    return BuildManifest(
        tool=TOOL, name=spec.name, version=spec.version, description=spec.description,
        image=plan.image, runner=spec.runner, models=spec.models,
        execution=ExecutionPart(
            mode=execution.mode, timeout=execution.timeout, max_budget_usd=execution.max_budget_usd,
            parallelism=execution.parallelism, env=_references(execution.env),
        ),
        steps=tuple(
            StepPart(id=step.id, timeout=step.timeout, on_failure=step.on_failure, env=_references(step.env))
            for step in execution.steps
        ),
        judges=tuple(map(_judge, plan.judging.judges)),
        reward=spec.reward, thresholds=spec.thresholds,
        hooks_after=HooksAfterPart(after_each=tuple(spec.hooks.after_each), after_all=tuple(spec.hooks.after_all)),
        mcp_servers=tuple(
            server.model_copy(update={"env": _references(server.env)}) for server in plan.layer.servers
        ),
        permissions=PermissionsPart(allow=rules.allow, deny=rules.deny),
        probes=probes_of(plan.ev, plan.handlers), sandbox=spec.sandbox,
        handlers=tuple(
            HandlerPart(match=handler.match, patterns=handler.patterns, enforced=handler.enforced)
            for handler in (plan.handlers.handlers if plan.handlers else ())
        ),
        bundle=spec.bundle, variables=tuple(sorted(set(_variables(plan)))),
        plugins=plan.layer.plugins,
        tasks=tuple(
            TaskPart(directory=name.directory, name=name.name, case_id=name.case_id, digest=digest)
            for name, digest in tasks
        ),
    )  # fmt: skip


def _judge(entry: Mapping[str, Any]) -> JudgePart:
    """A judge's part, from its entry in judges.json."""
    needs_model = entry["kind"] == "prompt"
    asks = script_module("judge").asks(entry) if needs_model else None
    keys = ("name", "kind", "feedback_type", "score_range", "step", "timeout", "model", "samples")
    return JudgePart.model_validate({"needs_model": needs_model, "asks": asks, **{key: entry.get(key) for key in keys}})


def _variables(plan: EvalPlan) -> Iterator[str]:
    """Names of the environment variables that an eval has to do with."""
    execution = plan.ev.spec.execution
    for env in (execution.env, *(step.env for step in execution.steps)):
        yield from env
        yield from (reference.name for value in env.values() if (reference := env_references(value)))
    for server in plan.layer.servers:
        yield from server.env
        texts = (server.command or "", server.url or "", *server.args, *server.env.values(), *server.headers.values())
        yield from _NAME.findall("\0".join(texts))
    for handler in plan.handlers.handlers if plan.handlers else ():
        yield from handler.env_checks or ()


def _references(env: Mapping[str, str]) -> dict[str, str]:
    """References in one form, ``${VAR}`` or ``${VAR:-default}``; literals as they are."""
    return {name: harbor_value(value) or value for name, value in env.items()}
