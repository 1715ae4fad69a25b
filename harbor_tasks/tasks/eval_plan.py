"""What all tasks of an eval share: read, checked and planned once, before any case is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from harbor_tasks.errors import AuthorError, Problems
from harbor_tasks.evalspec import Eval, dotted
from harbor_tasks.policy.handlers import Handlers, handlers_of
from harbor_tasks.policy.lint import lint
from harbor_tasks.resources import resource, script_module, script_text
from harbor_tasks.tasks.interception import interception_files
from harbor_tasks.tasks.judging import Judging, judging_of
from harbor_tasks.tasks.layer import Layer, layer_of
from harbor_tasks.tasks.own_base import OwnBase, own_base
from harbor_tasks.tasks.plan import INTERCEPTION_LOG, SANDBOX_HOME, TaskFile, made
from harbor_tasks.tasks.runtime import image_tag
from harbor_tasks.tasks.sealing import MODEL_BASE_URL, MODEL_KEY, Seal, answers_questions, seal_of
from harbor_tasks.tasks.skills import MissingSkill, missing_skills
from harbor_tasks.tasks.task_toml import NotWritableError, TaskToml, task_toml
from harbor_tasks.tasks.templates import render_task_file


@dataclass(frozen=True)
class Instruction:
    """What the agent is told, for the task or for one step: a skill with arguments, or a prompt."""

    step: str | None
    skill: str | None
    template: str
    what: str
    line: int | None


@dataclass(frozen=True)
class EvalPlan:
    """What all tasks of an eval share."""

    ev: Eval
    handlers: Handlers | None
    judging: Judging
    layer: Layer
    base: OwnBase
    image: str
    toml: TaskToml
    instructions: tuple[Instruction, ...]
    missing: tuple[MissingSkill, ...]
    """Skills that only the case itself could bring."""
    shared: tuple[TaskFile, ...]
    """Files with the same content in every task."""
    faulty: bool
    """Whether the eval has errors: its cases can be checked, but no task of it would be whole."""

    @property
    def patterns(self) -> list[str]:
        """The tool patterns of all handlers."""
        return [pattern for h in (self.handlers.handlers if self.handlers else ()) for pattern in h.patterns]


def plan_eval(ev: Eval, problems: Problems) -> EvalPlan | None:
    """Read and check all that belongs to no case; None when there are errors that leave nothing to render."""
    handlers = handlers_of(ev, problems)
    lint(handlers, ev, problems)
    judging = judging_of(ev, problems)
    layer = layer_of(ev, problems)
    base = own_base(ev, problems)
    image = image_of(ev, layer, base)
    try:
        policy = interception_files(ev, handlers, {})
        _prove(policy, ev)
        seal = seal_of(ev, handlers, layer.servers) if ev.spec.sandbox.sealed else None
        toml = task_toml(ev, layer.servers, image, hook_model=answers_questions(handlers), problems=problems)
    except AuthorError as error:
        problems.extend(error.problems)
        return None
    except NotWritableError as error:
        problems.error(str(error), ev.file, code="task-toml")
        return None
    return EvalPlan(
        ev=ev, handlers=handlers, judging=judging, layer=layer, base=base, image=image, toml=toml,
        instructions=tuple(_instructions(ev)), missing=missing_skills(ev, layer),
        shared=tuple(_shared(ev, judging, layer, seal)), faulty=bool(problems.errors),
    )  # fmt: skip


def image_of(ev: Eval, layer: Layer, base: OwnBase) -> str:
    """The image of the sandbox: the author's as it is when it is not sealed, else ours, named after what is in it."""
    if uses_own_image(ev):
        return str(ev.spec.sandbox.image)
    return image_tag(ev.spec.name, ev.spec.sandbox, layer.files, base.files)


def uses_own_image(ev: Eval) -> bool:
    """Whether the author's image is used as it is; then the layer travels in each task."""
    return not ev.spec.sandbox.sealed and ev.spec.sandbox.image is not None


def _prove(policy: dict[str, bytes], ev: Eval) -> None:
    """The interceptor itself must accept the handlers that are written."""
    handlers = policy.get("tool_handlers.yaml")
    if handlers is None:
        return
    load = script_module("tools").load_handlers
    try:
        load(handlers)
    except Exception as error:
        problems = Problems()
        problems.error(f"the interceptor refuses the handlers: {error}", ev.handlers_file or ev.file, code="handlers")
        raise AuthorError(problems) from error


def _instructions(ev: Eval) -> Iterator[Instruction]:
    execution = ev.spec.execution
    parts: list[tuple[str | None, Any, tuple[str | int, ...]]] = [
        (step.id, step, ("execution", "steps", index)) for index, step in enumerate(execution.steps)
    ]
    for step, part, keys in parts or [(None, execution, ("execution",))]:
        key = "arguments" if part.skill is not None else "prompt"
        template = part.arguments if part.skill is not None else part.prompt
        if part.skill is None and template is None:
            continue  # neither was given, or it was faulty: said when eval.yaml was read
        yield Instruction(step, part.skill, template or "", dotted(ev.where(*keys, key)), ev.line(*keys, key))


def _shared(ev: Eval, judging: Judging, layer: Layer, seal: Seal | None) -> Iterator[TaskFile]:
    setup = render_task_file(
        "environment/setup", workdir=ev.spec.sandbox.workdir, home=SANDBOX_HOME, log=INTERCEPTION_LOG, seal=seal,
        model_base_url=MODEL_BASE_URL, model_key=MODEL_KEY, memory_script=script_text("memory").rstrip(),
    )  # fmt: skip
    yield made("environment/setup", setup, 0o755)
    codex = ("codex_transcript.py",) if ev.spec.runner.type == "codex" else ()  # what the verifier reads its record by
    tests = [
        made("test.sh", render_task_file("tests/test.sh"), 0o755),
        made("verify.py", resource("interceptor", "verify.py").read_bytes()),
        *(made(name, resource("interceptor", name).read_bytes()) for name in codex),
        *([made("judge.py", resource("interceptor", "judge.py").read_bytes())] if judging.asks_models else ()),
        *(made(f"lib/{lib.path}", lib.source.read_bytes()) for lib in judging.lib),
    ]
    yield from for_each_step(ev, tests)
    if uses_own_image(ev):
        yield from (replace(f, path=f"environment/layer/{f.path}") for f in layer.files)


def for_each_step(ev: Eval, files: Iterable[TaskFile]) -> Iterator[TaskFile]:
    """Files of a verifier in their place: `tests/`, or with steps each one's own, which is whole without the others."""
    folders = [f"steps/{step.id}/tests" for step in ev.spec.execution.steps] or ["tests"]
    for file in files:
        for folder in folders:
            yield TaskFile(f"{folder}/{file.path}", file.content, file.mode, file.sha256)
