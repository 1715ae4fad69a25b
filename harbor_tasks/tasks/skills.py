"""Whether the skills and commands that an eval runs will be found by the agent, under the names that the eval uses."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problem, Problems, Where
from harbor_tasks.evalspec import Eval, dotted
from harbor_tasks.tasks.layer import Layer
from harbor_tasks.tasks.staging_hooks import has_staging

_PLACES = ".claude/skills, .claude/commands or plugin_dirs"


@dataclass(frozen=True, slots=True)
class MissingSkill:
    """A skill that the project does not have, and what is to be said if the case does not bring it either."""

    skill: str
    problem: Problem
    commands: bool
    """Whether the agent would find a command of that name, too: Codex knows none."""


def missing_skills(ev: Eval, layer: Layer) -> tuple[MissingSkill, ...]:
    """The skills of an eval that are in no place of its project where the agent looks.

    A skill that commands may make at build is a warning only. So is one that the eval's own image may bring, where the
    project has no skills, commands or plugins at all.
    """
    return tuple(_missing(ev, set(known_names(layer, commands=ev.spec.runner.type != "codex"))))


def report_missing(missing: Iterable[MissingSkill], workspace: Iterable[str], problems: Problems) -> None:
    """Say which skills are missing, unless the files of this workspace bring them."""
    missing = tuple(missing)
    if missing:
        commands = all(one.commands for one in missing)
        own = [path.split("/")[1:] for path in workspace if path.startswith(".claude/")]
        brought = {name for parts in own if commands or parts[0] == "skills" for name in _names(parts)}
        problems.extend(one.problem for one in missing if one.skill not in brought)


def _missing(ev: Eval, known: set[str]) -> Iterator[MissingSkill]:
    sandbox, commands = ev.spec.sandbox, ev.spec.runner.type != "codex"
    in_image = (sandbox.image is not None or sandbox.dockerfile is not None) and not known
    for keys, skill in _skills(ev):
        if skill in known:
            continue
        near = difflib.get_close_matches(skill, known, 1)
        message = f"{dotted(ev.where(*keys))}: the skill {skill!r} is not found in {_PLACES}"
        where = Where(ev.file, ev.line(*keys))
        if in_image or has_staging(ev):
            hint = f"did you mean {near[0]}?" if near else "the image or a hook has to bring it"
            yield MissingSkill(skill, Problem(message, where, hint, "warning", "skill-not-packed"), commands)
        else:
            hint = f"did you mean {near[0]}?" if near else _where_to_put(skill, known)
            yield MissingSkill(skill, Problem(message, where, hint, "error", "skill-not-found"), commands)


def _where_to_put(skill: str, known: set[str]) -> str:
    plugin, _, name = skill.rpartition(":")
    home = f"the plugin {plugin} into runner.plugin_dirs" if plugin else f"it into .claude/skills/{name}/SKILL.md"
    return f"put {home}" + (f"; known here: {', '.join(sorted(known)[:10])}" if known else "")


def _skills(ev: Eval) -> Iterator[tuple[tuple[str | int, ...], str]]:
    execution = ev.spec.execution
    if execution.skill is not None:
        yield ("skill",) if _at_the_top(ev) else ("execution", "skill"), execution.skill
    for index, step in enumerate(execution.steps):
        if step.skill is not None:
            yield ("execution", "steps", index, "skill"), step.skill


def _at_the_top(ev: Eval) -> bool:
    """Whether the skill stands in its old place in eval.yaml."""
    execution = ev.document.data.get("execution")
    return not (isinstance(execution, dict) and execution.get("skill"))


def known_names(layer: Layer, *, commands: bool = True) -> Iterator[str]:
    """All names under which a skill or command of the layer can be called; Codex knows no commands."""
    own = {plugin: _own_commands(manifest) for plugin, manifest in _manifests(layer)}
    for file in layer.files:
        match file.path.split("/"):
            case [*_, name] if not commands and (name != "SKILL.md" or "skills" not in file.path.split("/")[-3:-2]):
                continue
            case ["workspace", ".claude", *parts]:
                yield from _names(parts)
            case ["plugins", plugin, *parts]:
                for name in _names_in_plugin(plugin, parts, own):
                    yield name
                    yield f"{plugin}:{name}"


def _manifests(layer: Layer) -> Iterator[tuple[str, Any]]:
    """Each plugin of the layer that has a manifest, with what that says."""
    for file in layer.files:
        match file.path.split("/"):
            case ["plugins", plugin, ".claude-plugin", "plugin.json"]:
                with suppress(OSError, ValueError, RecursionError):  # for the agent program to say
                    data = file.content.read_bytes() if isinstance(file.content, Path) else file.content or b""
                    yield plugin, json.loads(data)


def _own_commands(manifest: Any) -> tuple[str, ...]:
    """The files and folders, without `./` before them, that a plugin's manifest names for commands."""
    given = manifest.get("commands") if isinstance(manifest, dict) else None
    texts = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return tuple(os.path.normpath(text) for text in texts if isinstance(text, str))


def _names_in_plugin(plugin: str, parts: Sequence[str], own: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """As `_names`; a plugin may also be one skill itself, and have its commands in places that its manifest names."""
    yield from _names(parts)
    if parts == ["SKILL.md"]:
        yield plugin
    path = "/".join(parts)
    for place in own.get(plugin, ()):
        if path.endswith(".md") and (path == place or path.startswith(f"{place}/")):
            yield parts[-1].removesuffix(".md")


def _names(parts: Sequence[str]) -> Iterator[str]:
    """The name of the skill or command that this file defines, if it does: by its folder, or by its own name.

    A SKILL.md deeper than `skills/<name>/` is a file of that skill.
    """
    if parts[-1] == "SKILL.md" and len(parts) > 1:
        if parts[0] != "skills" or len(parts) == 3:
            yield parts[-2]
    elif len(parts) > 1 and parts[0] == "commands" and parts[-1].endswith(".md"):
        stem = parts[-1].removesuffix(".md")
        yield stem
        yield ":".join((*parts[1:-1], stem))
