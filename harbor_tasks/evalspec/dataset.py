"""The cases of an eval: which folders are cases, what they hold, what of it goes where."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problems, display_path
from harbor_tasks.evalspec import keys
from harbor_tasks.evalspec.casefiles import JUNK, CaseFile, CaseFolder
from harbor_tasks.evalspec.fields import folded, shown
from harbor_tasks.evalspec.load import Eval
from harbor_tasks.evalspec.portable import bad_name
from harbor_tasks.evalspec.reader import Document, load_yaml

INPUT_NAMES = ("input.yaml", "input.yml", "input.json")
ANSWERS, ANNOTATIONS, REPLAY = "answers.yaml", "annotations.yaml", "replay.yaml"
POLICY_PATHS = (
    ".claude/settings*.json", ".codex/hooks.json", "hooks/tools.py", "tool_handlers.yaml", "setup", "setup/*",
)  # fmt: skip
"""Places in the workspace where the policy or the set-up lies: no case file may."""

_OTHER_ENDS = ("yml", "json")
_POLICY_FOLDERS = (".claude", ".codex")
_OWN = frozenset({*INPUT_NAMES, ANSWERS, ANNOTATIONS, REPLAY, "files", "solution"})
_NOT_FOR_THE_AGENT = (ANSWERS, ANNOTATIONS, REPLAY, "solution")
_SIGNS_OF_A_CASE = frozenset({*_OWN, "answers.yml", "annotations.yml", "inputs.yaml", "Input.yaml"})
_MISNAMED = {
    **{f"{name}.{end}": f"{name}.yaml" for name in ("answers", "annotations", "replay") for end in _OTHER_ENDS},
    **{f"{name}.{end}": f"{name}s.yaml" for name in ("answer", "annotation") for end in ("yaml", *_OTHER_ENDS)},
}
_HANDLERS = ("tool_handlers.yaml", "tool_handlers.yml", "tool_handlers.json")


@dataclass(frozen=True, slots=True)
class Case:
    """One case: its data, and its files by where they go.

    ``files`` are for the agent's workspace (paths relative to it), ``solution`` for the oracle (relative to
    `solution/`), ``references`` for the verifier (relative to the case).
    """

    id: str
    directory: Path
    input: Any
    input_file: Path
    answers_file: Path | None
    overrides: dict[str, str | list[str]]
    annotations_file: Path | None
    annotations: Any
    files: tuple[CaseFile, ...]
    solution: tuple[CaseFile, ...]
    replay_file: Path | None
    references: tuple[CaseFile, ...]


def list_cases(ev: Eval, problems: Problems, only: Sequence[str] = ()) -> list[Path]:
    """The case folders, sorted by name; with ``only`` those ids, each of which must be a case."""
    folder = ev.resolve(ev.spec.dataset.path, problems, "dataset", "path", what="dataset.path")
    if folder is None:
        return []
    line = ev.line("dataset", "path")
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError as error:
        message = f"dataset.path {display_path(folder)} is not a folder that can be read: {error.strerror}"
        problems.error(message, ev.file, line, code="path")
        return []
    cases = [folder / name for name in names if _is_case(folder / name, problems)]
    if not cases:
        hint = f"a case is a folder with an {' or '.join(INPUT_NAMES)}"
        problems.error(f"dataset.path {display_path(folder)} holds no case", ev.file, line, hint=hint, code="no-cases")
        return []
    if not only:
        return cases
    known = [case.name for case in cases]
    for wanted in dict.fromkeys(only):
        if wanted not in known:
            nearest = keys.nearest(wanted, known)
            hint = f"did you mean {shown(nearest)}?" if nearest else f"known: {', '.join(known[:10])}"
            problems.error(f"there is no case {wanted}", folder, hint=hint, code="no-such-case")
    return [case for case in cases if case.name in only]


def _is_case(folder: Path, problems: Problems) -> bool:
    """Whether a folder of the dataset is a case; one that seems to be meant as a case is warned of."""
    name = folder.name
    if name.startswith(".") or name == "__pycache__":
        return False
    found = [one for one in INPUT_NAMES if os.path.lexists(f"{folder}/{one}")]
    if not found:
        try:
            signs = sorted(_SIGNS_OF_A_CASE.intersection(os.listdir(folder)))  # noqa: PTH208 - names are enough
        except OSError as error:
            problems.warn(f"is no case: {error.strerror}", folder, code="no-input")
            return False
        if signs:
            hint = f"a case has an {' or '.join(INPUT_NAMES)}"
            problems.warn(f"is no case: it holds {signs[0]} but no input file", folder, hint=hint, code="no-input")
        return False
    fault = bad_name(name)
    if fault:
        problems.error(f"the case {shown(name)} {fault}", folder.parent, hint="rename the folder", code="file-name")
        return False
    return True


def read_case(ev: Eval, directory: Path, problems: Problems) -> Case | None:
    """Read one case; None when it has no usable input.

    What is faulty is reported in ``problems`` and left out, as by `load_eval`.
    """
    folder = CaseFolder(directory, directory.name, problems)
    if not _stays_inside(ev, folder):
        return None
    try:
        names = sorted(os.listdir(directory))  # noqa: PTH208 - names are enough
    except OSError as error:
        folder.error(str(directory), f"cannot be read: {error.strerror}", code="unreadable")
        return None
    for name in names:
        if name in _MISNAMED:
            hint = f"rename it to {_MISNAMED[name]}"
            problems.warn("is not read", directory / name, case=directory.name, hint=hint, code="file-name")
        elif name in _HANDLERS:
            says = "is not read: handlers belong to the eval, not to a case"
            hint = "put its rules into tool_handlers.yaml beside eval.yaml, or rename it if it is a reference"
            report = problems.error if ev.handlers_file is None else problems.warn
            report(says, directory / name, case=directory.name, hint=hint, code="handlers-place")
    input_file = _input_file(names, folder)
    document = None if input_file is None else _data(input_file, folder)
    answers = directory / ANSWERS if ANSWERS in names else None
    annotations = directory / ANNOTATIONS if ANNOTATIONS in names else None
    replies = None if answers is None else _data(answers, folder, texts=True)
    notes = None if annotations is None else _data(annotations, folder)
    files, given = _workspace(ev, folder, names)
    solution = _folder(folder, "solution", "it holds solve.sh") if "solution" in names else []
    _warn_of_crlf([*files, *solution], folder)
    if input_file is None or document is None:
        return None
    return Case(
        id=directory.name,
        directory=directory,
        input=document.data,
        input_file=input_file,
        answers_file=None if replies is None else answers,
        overrides={} if replies is None else _overrides(replies, folder),
        annotations_file=None if notes is None else annotations,
        annotations=None if notes is None else notes.data,
        files=files,
        solution=tuple(solution),
        replay_file=directory / REPLAY if REPLAY in names and _is_file(directory / REPLAY, folder) else None,
        references=_references(folder, names, given),
    )


def inputs_of(ev: Eval, directory: Path) -> Iterator[Path]:  # noqa: ARG001 - it is the eval's to say what is an input
    """Every path of a case, folders included: its task is unchanged when none of them changed, came or went."""
    yield directory
    pending = [str(directory)]
    while pending:
        try:
            entries = sorted(os.scandir(pending.pop()), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)


def _stays_inside(ev: Eval, folder: CaseFolder) -> bool:
    """A case that is a link may not lead out of the project."""
    if not folder.directory.is_symlink():
        return True
    real = Path(folder.real)
    if any(real.is_relative_to(home.resolve()) for home in (ev.root, ev.project)):
        return True
    folder.error(str(folder.directory), "is a link that leaves the project", "copy the case", "link")
    return False


def _input_file(names: list[str], folder: CaseFolder) -> Path | None:
    found = [name for name in INPUT_NAMES if name in names]
    if len(found) > 1:
        folder.error(str(folder.directory), f"has {' and '.join(found)}", "keep one of them", "two-inputs")
    elif not found:
        folder.error(str(folder.directory), f"has no {' or '.join(INPUT_NAMES)}", "", "no-input")
    return folder.directory / found[0] if len(found) == 1 else None


def _data(file: Path, folder: CaseFolder, *, texts: bool = False) -> Document | None:
    """The content of a data file of the case, which may be a link within the case only."""
    if not _is_file(file, folder):
        return None
    json_only = file.suffix == ".json"
    return load_yaml(file, folder.problems, texts=texts, case=folder.case, json_only=json_only)


def _is_file(file: Path, folder: CaseFolder) -> bool:
    """Whether a file of the case may be opened: a regular one, here or where a link within the case leads."""
    if os.path.isdir(file):  # noqa: PTH112 - one call
        folder.error(str(file), "must be a file", code="special-file")
        return False
    return bool(folder.collect(str(file), file.name))


def _folder(folder: CaseFolder, name: str, holds: str, hidden: Sequence[str] = ()) -> list[CaseFile]:
    """The files below a folder of the case that has a meaning of its own."""
    path = f"{folder.directory}/{name}"
    if os.path.isdir(path):  # noqa: PTH112 - one call
        return folder.collect(path, "", hidden=hidden)
    folder.error(path, "must be a folder", holds)
    return []


def _overrides(document: Document, folder: CaseFolder) -> dict[str, str | list[str]]:
    """The answers of a case by question (DESIGN.md, Decisions): texts and lists of texts at the top level, and the map
    under `case_overrides`, which wins."""
    if document.data is None:
        return {}
    problems, case, file = folder.problems, folder.case, document.path
    if not isinstance(document.data, dict):
        message = f"must be a mapping of questions and answers, not {shown(document.data)}"
        problems.error(message, file, 1, case=case, code="answers")
        return {}
    found = {key: value for key, value in document.data.items() if key != "case_overrides" and _is_answer(value)}
    _check_twins(found, document, (), folder)
    own = document.data.get("case_overrides", {})
    if own in ("", "null"):
        own = {}
    if not isinstance(own, dict):
        message = f"case_overrides must be a mapping of questions and answers, not {shown(own)}"
        problems.error(message, file, document.line("case_overrides"), case=case, code="answers")
        return found
    for question, answer in own.items():
        if _is_answer(answer):
            found[question] = answer
        else:
            message = f"the answer to {shown(question)} must be a text or a list of texts, not {shown(answer)}"
            problems.error(message, file, document.line("case_overrides", question), case=case, code="answers")
    _check_twins(own, document, ("case_overrides",), folder)
    return found


def _check_twins(answers: dict[str, Any], document: Document, at: tuple[str, ...], folder: CaseFolder) -> None:
    """Two keys that are the same question must not have different answers: only one of them could be given."""
    seen: dict[str, str] = {}
    for question, answer in answers.items():
        twin = seen.setdefault(folded(question), question)
        if twin is not question and answers[twin] != answer:
            first, line = document.line(*at, twin), document.line(*at, question)
            message = f"{shown(question)} is the same question as {shown(twin)} (line {first}) with another answer"
            hint = "white space and case do not tell questions apart; keep one"
            folder.problems.error(message, document.path, line, case=folder.case, hint=hint, code="same-question")


def _is_answer(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _workspace(ev: Eval, folder: CaseFolder, names: list[str]) -> tuple[tuple[CaseFile, ...], list[str]]:
    """The files for the agent, and which paths of the case `dataset.workspace.files` gave it."""
    top = str(folder.directory)
    files: list[CaseFile] = []
    if "files" in names:
        files = _folder(folder, "files", "it holds what the agent starts with", hidden=_NOT_FOR_THE_AGENT)
    given: list[str] = []
    for index, listed in enumerate(ev.spec.dataset.workspace.files):
        place = os.path.normpath(listed)
        if place.split("/")[0] == "files":  # comes anyway
            continue
        if place.split("/")[0] in _NOT_FOR_THE_AGENT or place == ".":
            message = f"dataset.workspace.files[{index}] would hand {listed} to the agent"
            line = ev.line("dataset", "workspace", "files", index)
            folder.problems.error(message, ev.file, line, code="answers-leak")
        elif os.path.lexists(f"{top}/{place}"):
            given.append(place)
            files += folder.collect(f"{top}/{place}", place, hidden=_NOT_FOR_THE_AGENT)
        else:
            message = f"has no {listed}, which dataset.workspace.files names"
            folder.problems.warn(message, folder.directory, case=folder.case, code="missing-file")
    _check_places(ev, files, folder)
    return tuple(sorted(files, key=lambda file: file.path)), given


def _check_places(ev: Eval, files: list[CaseFile], folder: CaseFolder) -> None:
    """No file may lie where the policy lies, nor two at one place."""
    batch = ev.spec.execution.mode == "batch"
    seen: set[str] = set()
    for file in files:
        path = file.path
        if path[0] in ".hts" and (path in _POLICY_FOLDERS or any(fnmatchcase(path, one) for one in POLICY_PATHS)):
            hint = "the policy of the task lies there; remove it, or give it another name"
            folder.error(str(file.source), f"would lie at {path} in the workspace", hint, "policy-path")
        elif batch and path == "batch.yaml":
            says = "would lie at batch.yaml, which mode: batch writes"
            folder.error(str(file.source), says, "rename it", "policy-path")
        if path in seen:
            folder.error(str(file.source), f"lands at {path}, where another file lands", "rename one of them", "clash")
        seen.add(path)


def _warn_of_crlf(files: list[CaseFile], folder: CaseFolder) -> None:
    for file in files:
        if file.path.endswith(".sh") and not file.is_dir:
            with file.source.open("rb") as script:
                if b"\r\n" in script.read(65536):
                    hint = "a shell does not understand them; the file is copied as it is"
                    folder.problems.warn("has CRLF line ends", file.source, case=folder.case, hint=hint, code="crlf")


def _references(folder: CaseFolder, names: list[str], given: list[str]) -> tuple[CaseFile, ...]:
    """What is left of a case stays with the verifier."""
    found: list[CaseFile] = []
    for name in names:
        if name not in _OWN and name not in JUNK and name not in given:
            found += folder.collect(f"{folder.directory}/{name}", name, skip=JUNK)
    inside = tuple(f"{one}/" for one in given)
    return tuple(file for file in found if file.path not in given and not file.path.startswith(inside))
