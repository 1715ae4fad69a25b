"""Reads an eval: eval.yaml strictly, its models and rules, the files that it names, the project's `.mcp.json`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harbor_tasks.errors import Problems, display_path
from harbor_tasks.evalspec.mcp import merge_project_servers
from harbor_tasks.evalspec.paths import find_path, is_file, is_folder, is_there, project_root
from harbor_tasks.evalspec.reader import Document, load_yaml
from harbor_tasks.evalspec.rules import check_rules
from harbor_tasks.evalspec.schema import EvalSpec
from harbor_tasks.evalspec.validate import Checked, checked_model, dotted

TEXTS = (
    "name", "description", "version", "execution.env.*", "execution.steps.*.env.*", "mcp_servers.*.env.*",
    "mcp_servers.*.headers.*", "mcp_servers.*.args.*", "probes.*.env.*", "probes.*.answers.*", "runner.settings.env.*",
)  # fmt: skip
"""Where a scalar is its source text, however it looks: the variable `1.10` is not 1.1."""

NOT_PACKED = ("mlflow", "generation")
HANDLERS = "tool_handlers.yaml"
_HANDLERS_MISNAMED = tuple(
    f"{name}.{end}"
    for name in ("tool_handlers", "tool_handler", "tool-handlers", "tool-handler", "toolhandlers", "tools_handlers")
    for end in ("yaml", "yml", "json")
    if f"{name}.{end}" != HANDLERS
)
_NOT_THIS_EVALS = ("eval.yaml", "eval.yml", "hooks/tools.py")
"""Beside handlers they show that these are another eval's, or were put there for an agent."""
_HANDLERS_MISPLACED = (".", ".claude", "hooks", ".claude/hooks")
"""Folders of the eval, and of its project, in which a handlers file is looked for that was put into the wrong one."""


@dataclass(frozen=True)
class Eval:
    """One eval.yaml that was read: its content, and where it and its project are."""

    spec: EvalSpec
    document: Document
    file: Path
    root: Path
    project: Path
    handlers_file: Path | None = None
    not_packed: tuple[str, ...] = ()
    checked: Checked | None = field(default=None, repr=False)
    """Which parts of the document were faulty, so that ``spec`` does not have them."""

    def where(self, *keys: str | int) -> tuple[str | int, ...]:
        """The keys in eval.yaml of what stands at these keys of ``spec``: a list there may have lost faulty entries."""
        return keys if self.checked is None else self.checked.where(*keys)

    def line(self, *keys: str | int) -> int | None:
        """The line of this key of ``spec`` in eval.yaml, or of the nearest one above it."""
        return self.document.line(*self.where(*keys))

    def is_faulty(self, *keys: str | int) -> bool:
        """Whether something at, below or above this key was faulty, so that its absence is no news."""
        return self.checked is not None and self.checked.is_faulty(*keys)

    def resolve(self, text: str, problems: Problems, *keys: str | int, what: str) -> Path | None:
        """The file or folder that a path of eval.yaml names, or None with an error at ``keys``.

        ``what`` names the thing where there are no keys. Where it exists both in the file's folder and in the project's
        root, a warning says which was taken. `.` in `plugin_dirs` is the project, unless eval.yaml lies in a plugin.
        """
        if keys[:2] == ("runner", "plugin_dirs") and Path(text) == Path():
            return self.root if is_folder(self.root / ".claude-plugin") else self.project
        found = find_path(text, self.root, self.project)
        name = dotted(self.where(*keys)) or what
        if found.path is None:
            problems.error(f"{name} {found.fault}", self.file, self.line(*keys), hint=found.hint, code="path")
        elif found.passed_over is not None:
            message = f"{name} is {display_path(found.path)}, not {display_path(found.passed_over)}"
            hint = "both exist; the folder of eval.yaml comes first"
            problems.warn(message, self.file, self.line(*keys), hint=hint, code="path-twice")
        return found.path


def load_eval(path: Path, problems: Problems) -> Eval | None:
    """Read an eval, given its file or its folder; None when too little of it is left to go on.

    What is faulty is reported in ``problems`` and left out of the result, so that the rest can be checked too: an Eval
    may only be used for more than checking when ``problems`` has no errors.
    """
    file = _file_of(path, problems)
    document = None if file is None else load_yaml(file, problems, text_under=TEXTS)
    if file is None or document is None:
        return None
    project = project_root(file.parent)
    checked = Checked(document.data, document, problems)
    _move_skill(checked)
    spec = checked_model(EvalSpec, checked)
    if spec is None:
        return None
    check_rules(spec, checked)
    spec = merge_project_servers(spec, project, problems)
    handlers = file.parent / HANDLERS
    ev = Eval(
        spec=spec,
        document=document,
        file=file,
        root=file.parent,
        project=project,
        handlers_file=handlers if os.path.lexists(handlers) else None,
        not_packed=tuple(key for key in NOT_PACKED if key in document.data),
        checked=checked,
    )
    _check_handlers_place(ev, problems)
    _check_files(ev, checked)
    return None if "dataset" in checked.stood_in else ev


def _file_of(path: Path, problems: Problems) -> Path | None:
    """The absolute path of eval.yaml; a link that is eval.yaml itself is kept, for its folder is the eval's."""
    file = path.resolve() / "eval.yaml" if is_folder(path) else path.parent.resolve() / path.name
    if is_there(file):
        other = file.with_suffix(".yml")
        if file.name == "eval.yaml" and os.path.lexists(other):
            problems.warn("is not read", other, hint="eval.yaml beside it is; remove one of them", code="file-name")
        return file
    if file.name == "eval.yaml" and is_there(file.with_suffix(".yml")):
        return file.with_suffix(".yml")
    problems.error("there is no eval.yaml here" if file.name == "eval.yaml" else "does not exist", file, code="no-eval")
    return None


def _move_skill(checked: Checked) -> None:
    """Top-level `skill` is the old place of `execution.skill`."""
    data = checked.data
    if not isinstance(data, dict) or "skill" not in data:
        return
    skill = data.pop("skill")
    execution = data.get("execution")
    if skill is None or not (execution is None or isinstance(execution, dict)):
        return
    execution = data["execution"] = execution or {}
    if execution.get("skill") not in (None, skill):
        checked.error("skill", says=f"is {skill!r}, but execution.skill is {execution['skill']!r}", hint="keep one")
    else:
        execution["skill"] = skill


def misplaced_handlers(ev: Eval) -> Iterator[Path]:
    """Where handlers could lie by mistake: beside eval.yaml under another name, or in a folder where none are read."""
    folders = [base / place for place in _HANDLERS_MISPLACED for base in (ev.root, ev.project)]
    folders += [base / ev.spec.dataset.path for base in (ev.root, ev.project)]
    for folder in dict.fromkeys(folders):
        if folder != ev.root:
            yield folder / HANDLERS
        yield from (folder / name for name in _HANDLERS_MISNAMED)


def _check_handlers_place(ev: Eval, problems: Problems) -> None:
    """Handlers that are not read protect nothing: an error, or a warning beside those that are."""
    for path in misplaced_handlers(ev):
        if not os.path.lexists(path):
            continue
        if path.parent != ev.root and any(is_there(path.parent / name) for name in _NOT_THIS_EVALS):
            continue
        says = "is not read: its rules would not be applied"
        hint = f"handlers are read from {display_path(ev.root / HANDLERS)} alone"
        if ev.handlers_file is None:
            problems.error(says, path, hint=f"{hint}; rename or move it", code="handlers-place")
        else:
            problems.warn(says, path, hint=hint, code="handlers-place")


def _check_files(ev: Eval, checked: Checked) -> None:
    """The files and folders that eval.yaml names must exist."""
    problems, spec = checked.problems, ev.spec
    for index, tool in enumerate(spec.inputs.tools):
        _need_file(ev, tool.prompt_file, checked, ("inputs", "tools", index, "prompt_file"))
    for index, judge in enumerate(spec.judges):
        _need_file(ev, judge.prompt_file, checked, ("judges", index, "prompt_file"))
    _need_file(ev, spec.sandbox.dockerfile, checked, ("sandbox", "dockerfile"))
    for index, folder in enumerate(spec.runner.plugin_dirs):
        found = ev.resolve(folder, problems, "runner", "plugin_dirs", index, what="plugin folder")
        if found is not None and not is_folder(found):
            checked.error("runner", "plugin_dirs", index, says="is not a folder", code="path")


def _need_file(ev: Eval, text: str | None, checked: Checked, at: tuple[str | int, ...]) -> None:
    if text is None:
        return
    found = ev.resolve(text, checked.problems, *at, what=checked.name(*at))
    if found is not None and not is_file(found):
        checked.error(*at, says="is not a file", code="path")
