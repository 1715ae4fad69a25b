"""Renders the files of one task, by the plan of its eval (`eval_plan.py`) and its case.

Nothing is written here. A file of the case is read once, unless it is large; then it is copied when it is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Case, CaseFile, env_references, load_yaml
from harbor_tasks.tasks.conformance import faults_of
from harbor_tasks.tasks.eval_plan import EvalPlan, Instruction, for_each_step
from harbor_tasks.tasks.interception import interception_files
from harbor_tasks.tasks.judge_prompts import check_case
from harbor_tasks.tasks.judging import judges_config
from harbor_tasks.tasks.plan import FILES, TaskFile, TaskName, TaskPlan, digest_of, made, sha256_of
from harbor_tasks.tasks.recorded import script_of
from harbor_tasks.tasks.skills import report_missing
from harbor_tasks.tasks.task_toml import NotWritableError, has_step_env, step_settings
from harbor_tasks.tasks.templates import render_arguments, render_task_file
from harbor_tasks.tasks.workspace import check_layer, check_made, refuse_twins

FILE_IN_MEMORY = 256 << 10
TASK_IN_MEMORY = 16 << 20
"""Bytes of one file, and of all files of a task, that are held between reading and writing; others are copied."""
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_CANARY = re.compile(r"(?:<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)


def render_task(
    plan: EvalPlan, name: TaskName, case: Case, problems: Problems, *, workspace: Sequence[TaskFile] | None = None
) -> TaskPlan | None:
    """All files of a case's task; None when ``problems``, which are those of this case alone, hold errors.

    ``workspace`` are the files that the agent starts with, where hooks made others than those of the case.
    """
    task = _Task(plan, case, problems)
    try:
        if workspace is None:
            workspace = [_of_case(file, file.path) for file in case.files]
        else:
            check_made(workspace, problems, case=case)
        files = [*plan.shared, *task.environment(workspace), *task.instructions(), *task.tests(), *task.solution()]
        files.append(made("task.toml", plan.toml.text(name)))
    except UnicodeEncodeError:
        problems.error(
            "a text holds half of a surrogate pair, which cannot be written as UTF-8", case.input_file, case=case.id,
            code="encoding",
        )  # fmt: skip
        return None
    except NotWritableError as error:
        problems.error(str(error), case.directory, case=case.id, code="task-toml")
        return None
    files.sort(key=lambda file: file.path)
    refuse_twins(files, case, problems)
    if not problems.errors and not plan.faulty:
        for fault in faults_of(files):
            problems.error(f"its task would be wrong: {fault}", case.directory, case=case.id, code="conformance")
    if problems.errors or plan.faulty:
        return None
    return TaskPlan(name, tuple(files), digest_of(files))


def _of_case(file: CaseFile, place: str) -> TaskFile:
    return TaskFile(place, None if file.is_dir else file.source, 0o755 if file.is_dir else file.mode)


@dataclass(slots=True)
class _Task:
    """One case on its way to a task; ``held`` counts the bytes of its files that are in memory."""

    plan: EvalPlan
    case: Case
    problems: Problems
    held: int = 0

    def environment(self, workspace: Sequence[TaskFile]) -> Iterator[TaskFile]:
        """`environment/`: the policy, input and answers, the case's workspace."""
        ev, case = self.plan.ev, self.case
        policy = interception_files(ev, self.plan.handlers, case.overrides)
        for path, content in policy.items():
            yield made(f"environment/{path}", content)
        yield made("environment/input.yaml", self._text(case.input_file))
        if case.answers_file is not None:
            yield made("environment/answers.yaml", self._text(case.answers_file))
        if has_step_env(ev):
            settings = json.loads(policy.get(".claude/settings.json", b"{}"))
            for step in ev.spec.execution.steps:
                literals = {name: value for name, value in step.env.items() if env_references(value) is None}
                own = {**settings, "env": {**settings.get("env", {}), **literals}}
                yield made(f"environment/{step_settings(step)}", json.dumps(own, indent=2) + "\n")
            if ".claude/settings.json" not in policy:
                yield made("environment/.claude/settings.json", "{}\n")
        report_missing(self.plan.missing, (file.path for file in workspace), self.problems)
        yield from self._workspace(workspace)

    def _workspace(self, workspace: Sequence[TaskFile]) -> Iterator[TaskFile]:
        files = list(workspace)
        if self.plan.ev.spec.execution.mode == "batch":
            files.append(made("batch.yaml", yaml_text([self.case.input])))
        check_layer(files, self.plan.layer, self.problems, case=self.case)
        hashes = {path: file.sha256 for path, file in self.plan.layer.workspace.items()}
        for file in files:
            loaded = self._loaded(file)
            if loaded.content is not None:
                hashes[file.path] = loaded.sha256
            yield TaskFile(FILES + file.path, loaded.content, loaded.mode, loaded.sha256)
        yield from for_each_step(self.plan.ev, [made("initial.json", json_text(dict(sorted(hashes.items()))))])

    def instructions(self) -> Iterator[TaskFile]:
        """instruction.md, of the task or of each step."""
        for part in self.plan.instructions:
            rendered = render_arguments(
                part.template, self.case.input, path=self.plan.ev.file, line=part.line, case=self.case.id,
                problems=self.problems, what=part.what,
            )  # fmt: skip
            if rendered is None:
                continue
            text = render_task_file(
                "instruction.md", skill=part.skill, arguments=rendered, prompt=rendered,
                runtime=self.plan.ev.spec.runner.type,
            )  # fmt: skip
            self._check_instruction(part, text)
            yield made("instruction.md" if part.step is None else f"steps/{part.step}/instruction.md", text)

    def _check_instruction(self, part: Instruction, text: str) -> None:
        where = {"path": self.plan.ev.file, "line": part.line, "case": self.case.id}
        if not text.strip():
            self.problems.error(f"{part.what}: the instruction is empty", **where, code="empty-instruction")  # type: ignore[arg-type]
        elif "\0" in text:
            self.problems.error(f"{part.what}: the instruction holds a NUL", **where, code="nul")  # type: ignore[arg-type]
        elif _CANARY.fullmatch(text.split("\n", 1)[0].strip()):
            message = f"{part.what}: Harbor takes the first line for a canary and does not show it to the agent"
            self.problems.warn(message, **where, code="canary-line")  # type: ignore[arg-type]

    def tests(self) -> Iterator[TaskFile]:
        """`tests/`: what the verifier gets beside what is shared."""
        plan, case = self.plan, self.case
        check_case(plan.ev, plan.judging.judges, case, self.problems)
        for part in plan.instructions:
            config = judges_config(plan.ev, case, part.step, judging=plan.judging, patterns=plan.patterns)
            folder = "tests" if part.step is None else f"steps/{part.step}/tests"
            yield made(f"{folder}/judges.json", json_text(config))
        files = []
        if case.annotations_file is not None:
            files.append(made("annotations.yaml", self._text(case.annotations_file)))
        for file in case.references:
            self._not_harborignore(file)
            files.append(self._loaded(_of_case(file, f"references/{file.path}")))
        yield from for_each_step(plan.ev, files)

    def solution(self) -> Iterator[TaskFile]:
        """`solution/`, and with steps also theirs: Harbor's oracle takes a step's own folder if there is one."""
        steps = [part.step for part in self.plan.instructions if part.step is not None]
        for file in self.case.solution:
            if file.path in steps and not file.is_dir:
                message = f"must be a folder: it is the solution of the step {file.path}"
                self.problems.error(message, file.source, case=self.case.id, hint="move it into it", code="case-file")
        shared = [f for f in self.case.solution if f.path.split("/", 1)[0] not in steps]
        for file in shared:
            self._not_harborignore(file)
            yield self._loaded(_of_case(file, f"solution/{file.path}"))
        script = self._replay(steps)
        if script is not None and not steps:
            yield made("solution/replay.json", json_text(script))
        for step in steps:
            own = [f for f in self.case.solution if f.path.startswith(f"{step}/")]
            if not own and script is None:
                continue
            for file in own or shared:
                place = file.path.removeprefix(f"{step}/") if own else file.path
                yield self._loaded(_of_case(file, f"steps/{step}/solution/{place}"))
            if script is not None:
                yield made(f"steps/{step}/solution/replay.json", json_text(script.get(step, [])))

    def _replay(self, steps: Sequence[str]) -> Any:
        """The recorded calls of the case: a list, or with steps a list for each; None when there are none."""
        path = self.case.replay_file
        document = None if path is None else load_yaml(path, self.problems, case=self.case.id)
        if path is None or document is None:
            return None
        return script_of(document, steps, self.problems, self.case.id)

    def _not_harborignore(self, file: CaseFile) -> None:
        if file.path.endswith(".harborignore"):
            message = "would hide files of the task from Harbor"
            self.problems.error(message, file.source, case=self.case.id, code="harborignore")

    def _loaded(self, file: TaskFile) -> TaskFile:
        """The file with its hash, and with its bytes if they are few."""
        if file.content is None or file.sha256:
            return file
        if isinstance(file.content, bytes):
            return replace(file, sha256=sha256_of(file.content))
        try:
            with open(file.content, "rb", buffering=0) as stream:  # noqa: PTH123 - the quick way, once for each file
                data = stream.read(FILE_IN_MEMORY + 1)
                self.held += len(data)
                if len(data) <= FILE_IN_MEMORY and self.held <= TASK_IN_MEMORY:
                    return TaskFile(file.path, data, file.mode, sha256_of(data))
                stream.seek(0)
                return replace(file, sha256=hashlib.file_digest(stream, "sha256").hexdigest())
        except OSError as error:
            self._unreadable(file.content, error)
            return file

    def _text(self, path: Path) -> bytes:
        """A YAML file of the case with LF ends and without a BOM: the values are the same."""
        try:
            return path.read_bytes().removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        except OSError as error:
            self._unreadable(path, error)
            return b""

    def _unreadable(self, path: Path, error: OSError) -> None:
        self.problems.error(f"cannot be read ({error.strerror})", path, case=self.case.id, code="not-packable")


def yaml_text(data: list[Any]) -> str:
    """JSON that YAML readers take for the same: what they break lines at or refuse is escaped."""
    return _NOT_YAML.sub(lambda ch: f"\\u{ord(ch[0]):04x}", json_text(data))


def json_text(data: dict[str, Any] | list[Any]) -> str:
    """JSON with one line for each key or item: as easy to compare as indented text, at a tenth of its cost."""
    if isinstance(data, dict):
        lines = [f"{_line(key)}: {_line(value)}" for key, value in data.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"
    return "[\n" + ",\n".join(map(_line, data)) + "\n]\n"


_line = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # made once: json.dumps makes one for each call
