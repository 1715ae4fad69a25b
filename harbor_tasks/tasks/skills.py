"""Whether the skills and commands that an eval runs will be found by the agent, under the names that the eval uses."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harbor_tasks.errors import Problem, Problems, Where
from harbor_tasks.evalspec import Eval
from harbor_tasks.tasks.layer import Layer
from harbor_tasks.tasks.staging_hooks import has_staging


@dataclass(frozen=True, slots=True)
class MissingSkill:
    """A skill that the project does not have, and what is to be said if the case does not bring it either."""

    skill: str
    problem: Problem


def missing_skills(ev: Eval, layer: Layer) -> tuple[MissingSkill, ...]:
    """The skills of an eval that are in no place of its project where the agent looks.

    An eval whose project has no skills, commands or plugins at all may rely on its image: that is a warning only. So is
    a skill that commands may make at build.
    """
    return tuple(_missing(ev, set(known_names(layer, commands=ev.spec.runner.type != "codex"))))


def report_missing(missing: Iterable[MissingSkill], workspace: Iterable[str], problems: Problems) -> None:
    """Say which skills are missing, unless the files of this workspace bring them."""
    if missing:
        brought = {name for path in workspace if path.startswith(".claude/") for name in _names(path.split("/")[1:])}
        problems.extend(one.problem for one in missing if one.skill not in brought)


def _missing(ev: Eval, known: set[str]) -> Iterator[MissingSkill]:
    for keys, skill in _skills(ev):
        if skill in known:
            continue
        near = difflib.get_close_matches(skill, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known)[:10])}" if known else ""
        places = ".claude/skills, .claude/commands or plugin_dirs"
        message = f"{'.'.join(map(str, keys))}: the skill {skill!r} is not found in {places}"
        where = Where(ev.file, ev.line(*keys))
        if known and not has_staging(ev):
            yield MissingSkill(skill, Problem(message, where, hint, "error", "skill-not-found"))
        else:
            hint = hint or "the image or a hook has to bring it"
            yield MissingSkill(skill, Problem(message, where, hint, "warning", "skill-not-packed"))


def _skills(ev: Eval) -> Iterator[tuple[tuple[str | int, ...], str]]:
    execution = ev.spec.execution
    if execution.skill is not None:
        keys = ("execution", "skill") if ev.line("execution", "skill") else ("skill",)
        yield keys, execution.skill
    for index, step in enumerate(execution.steps):
        if step.skill is not None:
            yield ("execution", "steps", index, "skill"), step.skill


def known_names(layer: Layer, *, commands: bool = True) -> Iterator[str]:
    """All names under which a skill or command of the layer can be called; Codex knows no commands."""
    for file in layer.files:
        match file.path.split("/"):
            case [*_, name] if not commands and name != "SKILL.md":
                continue
            case ["workspace", ".claude", *parts]:
                yield from _names(parts)
            case ["plugins", plugin, *parts]:
                for name in _names(parts):
                    yield name
                    yield f"{plugin}:{name}"


def _names(parts: Sequence[str]) -> Iterator[str]:
    """The name of the skill or command that this file defines, if it does: by its folder, or by its own name."""
    if parts[-1] == "SKILL.md" and len(parts) > 1:
        yield parts[-2]
    elif len(parts) > 1 and parts[0] == "commands" and parts[-1].endswith(".md"):
        stem = parts[-1].removesuffix(".md")
        yield stem
        yield ":".join((*parts[1:-1], stem))
