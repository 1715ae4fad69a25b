"""What a task's verifier gets to know: the content of ``tests/judges.json``, and the modules of ``tests/lib/``.

What is the same for all cases (prompt files, modules, checked arguments) is read once for an eval by `judging_of`;
`judges_config` then only puts one case's data to it. What the entries mean is said in ``interceptor/verify.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Case, Eval
from harbor_tasks.evalspec.fields import is_number
from harbor_tasks.evalspec.paths import is_file
from harbor_tasks.evalspec.schema import DEFAULT_JUDGE_TIMEOUT, Judge, Reward
from harbor_tasks.tasks.judge_modules import LibFile, module_files
from harbor_tasks.tasks.judge_prompts import check_prompt, model_of

__all__ = ["BUILTIN_ARGUMENTS", "Judging", "LibFile", "judges_config", "judging_of"]

MAX_PROMPT_BYTES = 256 * 1024


@dataclass(frozen=True)
class Judging:
    """The judges of an eval, ready to be written into each task.

    ``judges`` are the entries of judges.json, in the eval's order; ``lib`` is what belongs into ``tests/lib``;
    ``inputs`` are all files and folders that were read for it (a change of one changes every task).
    """

    judges: tuple[dict[str, Any], ...]
    lib: tuple[LibFile, ...]
    inputs: tuple[Path, ...]

    @property
    def asks_models(self) -> bool:
        """Is one of them a model?"""
        return any(judge["kind"] == "prompt" for judge in self.judges)


def judging_of(ev: Eval, problems: Problems) -> Judging:
    """Read and check all that the eval's judges name; errors carry the line in eval.yaml or in the module."""
    lib: dict[str, LibFile] = {}
    inputs: dict[Path, None] = {}
    judges = []
    for at, judge in enumerate(ev.spec.judges):
        place = _Place(ev, problems, at)
        entry = {"name": judge.name, "kind": kind_of(judge), **_work(place, judge, lib, inputs)}
        entry |= {
            "if": judge.if_, "arguments": judge.arguments or None, "step": judge.step,
            "feedback_type": judge.feedback_type, "score_range": judge.score_range and list(judge.score_range),
            "timeout": judge.timeout or DEFAULT_JUDGE_TIMEOUT,
        }  # fmt: skip
        judges.append({key: value for key, value in entry.items() if value is not None})
    _check_reward(ev, problems)
    return Judging(tuple(judges), tuple(lib[path] for path in sorted(lib)), tuple(inputs))


def judges_config(
    ev: Eval, case: Case, step: str | None = None, *, judging: Judging | None = None, patterns: Iterable[str] = ()
) -> dict[str, Any]:
    """The content of ``tests/judges.json`` for a case, or for one of its steps.

    ``step`` is None for an eval without steps. ``patterns`` are the tool patterns of all handlers, which say what calls
    the interception log must hold. Without ``judging`` the eval's judges are read again. ``final`` is False for a step
    before the last: its verifier runs only the judges that name it, the last one's also those that name no step.
    """
    judging = judging or judging_of(ev, Problems())
    steps = [s.id for s in ev.spec.execution.steps]
    final = step is None or step == steps[-1]
    wanted = [j for j in judging.judges if j.get("step") == step or (final and j.get("step") is None)]
    names = {judge["name"] for judge in wanted}
    return {
        "workspace": ev.spec.sandbox.workdir,
        "final": final,
        "annotations": case.annotations,
        "input": case.input,
        "outputs": [{"path": o.path} if o.path is not None else {"tool": o.tool} for o in ev.spec.outputs],
        "judges": wanted,
        "reward": reward_config(ev.spec.reward, names, final=final),
        "handlers": sorted(set(patterns)),
    }


def reward_config(reward: Reward, names: Collection[str], *, final: bool) -> dict[str, Any]:
    """What a verifier that runs the judges ``names`` makes the reward with."""
    return {
        "weights": {name: weight for name, weight in reward.weights.items() if name in names},
        "gate": reward.gate,
        "judge": reward.judge if final or reward.judge in names else None,
    }


def kind_of(judge: Judge) -> str:
    """check, builtin, command, module or prompt."""
    for kind in ("check", "builtin", "command", "module"):
        if getattr(judge, kind) is not None:
            return kind
    return "prompt"


class _Place:
    """One judge's entry in eval.yaml: where its errors go."""

    def __init__(self, ev: Eval, problems: Problems, at: int) -> None:
        self.ev, self.problems, self.at = ev, problems, at

    @property
    def name(self) -> str:
        return f"judge {self.ev.spec.judges[self.at].name!r}"

    def error(self, key: str, message: str, *, hint: str = "", code: str = "judge") -> None:
        line = self.ev.line("judges", self.at, key)
        self.problems.error(f"{self.name}: {message}", self.ev.file, line, hint=hint, code=code)


def _work(
    place: _Place, judge: Judge, lib: dict[str, LibFile], inputs: dict[Path, None]
) -> dict[str, Any]:  # fmt: skip
    """The keys of an entry that say what the judge does."""
    if judge.check is not None:
        return {"code": judge.check}
    if judge.builtin is not None:
        if not place.ev.is_faulty("judges", place.at, "arguments"):
            _check_builtin(place, judge.builtin, judge.arguments)
        return {"builtin": judge.builtin}
    if judge.command is not None:
        if judge.feedback_type in ("int", "float") or judge.score_range is not None:
            key = "feedback_type" if judge.feedback_type else "score_range"
            place.error(key, "a command is true or false by its exit code", hint=f"take out {key}, or use `check`")
        return {"command": judge.command}
    if judge.module is not None:
        if judge.function is None:  # said when eval.yaml was read
            return {}
        files = module_files(place.ev, place.at, judge.module, judge.function, place.problems)
        lib.update((file.path, file) for file in files)
        inputs.update(dict.fromkeys(path for file in files for path in (file.source, file.source.parent)))
        return {"module": judge.module, "function": judge.function}
    texts: list[tuple[str, Path | None]] = [] if judge.prompt is None else [(judge.prompt, None)]
    if judge.prompt_file is not None:
        texts += _prompt_file(place, judge.prompt_file, inputs)
    check_prompt(place.ev, place.at, texts, place.problems)
    prompt = "\n\n".join(text for text, _ in texts)
    return {"prompt": prompt, "model": model_of(place.ev, judge), "samples": judge.samples}


def _prompt_file(place: _Place, text: str, inputs: dict[Path, None]) -> list[tuple[str, Path | None]]:
    path = place.ev.resolve(text, Problems(), "judges", place.at, "prompt_file", what="prompt file")
    if path is None or not is_file(path):  # said when eval.yaml was read
        return []
    inputs[path] = None
    try:
        data = path.read_bytes()
        if len(data) > MAX_PROMPT_BYTES:
            place.error("prompt_file", f"{text} is larger than {MAX_PROMPT_BYTES // 1024} KiB")
            return []
        return [(data.decode("utf-8-sig").replace("\r\n", "\n"), path)]
    except UnicodeDecodeError:
        place.error("prompt_file", f"{text} is not UTF-8", hint="save it as UTF-8")
    except OSError as error:
        place.error("prompt_file", f"{text} cannot be read ({error.strerror})")
    return []


# ---- arguments of the judges that come with the product ----


def _amount(value: Any) -> str | None:
    return None if is_number(value) and value >= 0 else "must be a number, 0 or more"


def _share(value: Any) -> str | None:
    return None if _amount(value) is None and value <= 1 else "must be a number from 0 to 1"


def _texts(value: Any) -> str | None:
    known = isinstance(value, list) and value and all(isinstance(v, str) and v.strip() for v in value)
    return None if known else "must be a list of texts, not empty"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value.strip() else "must be a text"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


BUILTIN_ARGUMENTS: dict[str, dict[str, Callable[[Any], str | None]]] = {
    "cost_budget": {"max_cost_usd": _amount},
    "documents_consulted": {"paths": _texts, "annotation": _text, "min_coverage": _share},
    "tool_calls_valid": {"allow_denied": _flag},
}
"""Builtin judge → argument → what is wrong with a value (None: nothing)."""

_NEEDED = {"cost_budget": ("max_cost_usd",), "documents_consulted": ("paths", "annotation"), "tool_calls_valid": ()}


def _check_builtin(place: _Place, builtin: str, arguments: dict[str, Any]) -> None:
    known = BUILTIN_ARGUMENTS.get(builtin)
    if known is None:  # said when eval.yaml was read
        return
    for name, value in arguments.items():
        fault = known[name](value) if name in known else f"is no argument of {builtin}"
        if fault:
            hint = "" if name in known else f"it takes {', '.join(known)}"
            place.error("arguments", f"arguments.{name} {fault}", hint=hint, code="judge-arguments")
    if _NEEDED[builtin] and not set(_NEEDED[builtin]) & set(arguments):
        wanted = " or ".join(f"arguments.{name}" for name in _NEEDED[builtin])
        place.error("builtin", f"{builtin} needs {wanted}", code="judge-arguments")


def _check_reward(ev: Eval, problems: Problems) -> None:
    """With steps the reward is the last step's: a judge of an earlier one cannot be part of it."""
    steps = [step.id for step in ev.spec.execution.steps]
    early = {judge.name: judge.step for judge in ev.spec.judges if judge.step in steps[:-1]}
    reward, why = ev.spec.reward, "the reward is the last step's"
    if reward.judge in early:
        problems.error(
            f"reward.judge is {reward.judge!r}, a judge of step {early[reward.judge]!r}, but {why}",
            ev.file, ev.line("reward", "judge"), hint=f"name a judge of step {steps[-1]!r}, or of none",
            code="reward-step",
        )  # fmt: skip
    for name in reward.weights:
        if name in early:
            problems.warn(
                f"reward.weights.{name} has no effect: {name!r} runs in step {early[name]!r}, and {why}",
                ev.file, ev.line("reward", "weights", name), code="reward-step",
            )  # fmt: skip
