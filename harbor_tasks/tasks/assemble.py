"""Puts a build together: reads the eval and its cases, renders, writes, and remembers what it saw.

One way for all: every case is read, rendered and, if its task would differ, written beside its place. Only when no case
has an error is anything moved into place.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harbor_tasks.errors import AuthorError, MachineError, Problem, Problems, display_path
from harbor_tasks.evalspec import Eval, list_cases, load_eval, read_case
from harbor_tasks.evalspec.scan import warn_of_secrets
from harbor_tasks.policy.permissions import permissions_of
from harbor_tasks.policy.routes import Route, permits_of, routes
from harbor_tasks.tasks.build import BuildReport, CheckReport, Matches
from harbor_tasks.tasks.eval_plan import EvalPlan, plan_eval
from harbor_tasks.tasks.interception import interception_files
from harbor_tasks.tasks.manifest_of import manifest_of
from harbor_tasks.tasks.names import task_names
from harbor_tasks.tasks.plan import TaskName, made
from harbor_tasks.tasks.pool import share
from harbor_tasks.tasks.render import render_task
from harbor_tasks.tasks.staging_hooks import has_staging, run_before_all, staged_workspace
from harbor_tasks.tasks.state import (
    Request,
    State,
    TaskState,
    Unit,
    built_watches,
    case_watches,
    meta_watches,
    own_watches,
    problem_from_json,
    problem_to_json,
    seal_if_needed,
    state_lines,
    unit_of,
)
from harbor_tasks.tasks.variant import variant_of
from harbor_tasks.tasks.watches import project_is_cwd, watches_of
from harbor_tasks.tasks.write import ChangedMeanwhileError, Output

CASES_PER_PROCESS = 125
"""Fewer cases than this for each process are not worth another one."""
MAX_PROCESSES = 8
NOTHING = Unit("")


@dataclass(frozen=True)
class Selection:
    """An eval as it was read, and the cases that are asked for."""

    ev: Eval
    plan: EvalPlan | None
    cases: tuple[tuple[TaskName, Path], ...]
    every_directory: frozenset[str]
    """The task directories of all cases, asked for or not."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one case. ``outputs`` is the stamp of its task directory and the time of its latest change."""

    index: int
    problems: tuple[Problem, ...]
    digest: str = ""
    written: bool = False
    inputs: Unit = NOTHING
    outputs: tuple[str, int] = ("", 0)

    @property
    def failed(self) -> bool:
        """Whether there is no task of it."""
        return not self.digest


def check_eval(eval_path: Path, only: Sequence[str], *, strict: bool) -> CheckReport:
    """What `check` says (see build.check)."""
    problems = Problems()
    selection = read_eval(eval_path, only, problems)
    report = CheckReport(problems)
    if selection is not None:
        read_cases(selection, problems)
        _note_no_judges(selection.ev, problems)
        report.matches = matches_of(selection.plan)
        report.cases = len(selection.cases)
        report.not_packed = selection.ev.not_packed
        if selection.plan is not None and not problems.errors:
            report.routes = routes_of(selection.plan)
    if strict:
        problems.strict()
    return report


def _note_no_judges(ev: Eval, problems: Problems) -> None:
    """An eval may be there for its probes alone, so that this is advice; what `run` will say should be no surprise."""
    if not ev.spec.judges and not ev.is_faulty("judges"):
        message = "the eval has no judges: its trials end unjudged, and `run` with exit code 1"
        hint = "say in `judges` what a good result is"
        problems.note(message, ev.file, ev.line("judges"), hint=hint, code="no-judges")


def read_eval(
    eval_path: Path, only: Sequence[str], problems: Problems, *, runner: str | None = None
) -> Selection | None:
    """Read the eval and list its cases; as much of it as can be checked although something is wrong."""
    ev = load_eval(eval_path, problems)
    if ev is None:
        return None
    ev = ev if runner in (None, ev.spec.runner.type) else variant_of(ev, str(runner))
    for key in ev.not_packed:
        problems.warn(f"{key} is not packed", ev.file, ev.line(key), hint="it has no effect here", code="not-packed")
    plan = plan_eval(ev, problems)
    if plan is not None and runner is not None:  # whose tasks carry calls, and run no skill
        plan = replace(plan, missing=())
    every = list_cases(ev, Problems()) if only else list_cases(ev, problems)
    names = {name.case_id: name for name in task_names(ev.spec.name, (directory.name for directory in every))}
    wanted = list_cases(ev, problems, only) if only else every
    cases = tuple((names[directory.name], directory) for directory in wanted)
    return Selection(ev, plan, cases, frozenset(name.directory for name in names.values()))


def routes_of(plan: EvalPlan) -> tuple[Route, ...]:
    """What handlers and permission rules make of each tool that the program has, and of the eval's MCP servers."""
    permits = permits_of(plan.ev.spec.runner, permissions_of(plan.ev, Problems()))
    return routes(plan.handlers, permits, mcp_servers=[server.name for server in plan.layer.servers])


def matches_of(plan: EvalPlan | None) -> Matches:
    """What each `match` became."""
    handlers = plan.handlers.handlers if plan is not None and plan.handlers is not None else ()
    return [(handler.match, handler.patterns) for handler in handlers]


def assemble(
    eval_path: Path, out: Path, request: Request, stored: State | None, *, jobs: int | None,
    progress: Callable[[int, int], None] | None,
) -> BuildReport:  # fmt: skip
    """What `build` does when something may have changed (see build.build)."""
    since = time.time_ns()
    problems = Problems()
    selection = read_eval(eval_path, request.only, problems, runner=request.runner)
    if selection is None or problems.errors or selection.plan is None:
        if selection is not None:
            read_cases(selection, problems)
        raise AuthorError(problems.errors)
    _check_place(selection.ev, out)
    try:
        with Output(out) as output:
            build = _Build(output, selection, selection.plan, request, problems)
            build.prepare(stored)
            done = build.run(jobs, progress)
            report = build.commit(done)
            output.replace_state(state_lines(build.state(done, since)))
            return report
    except ChangedMeanwhileError as error:
        raise MachineError(f"{error}: was changed while it was packed; build again") from error
    except OSError as error:
        raise MachineError(f"{error.filename or out}: {error.strerror or error}") from error


def read_cases(selection: Selection, problems: Problems) -> None:
    """Say all that is wrong with the cases: each is read, and rendered as far as the eval lets it be."""
    for name, directory in selection.cases:
        own = Problems()
        case = read_case(selection.ev, directory, own)
        if case is not None:
            warn_of_secrets(case, own)
            if selection.plan is not None:
                render_task(selection.plan, name, case, own)
        problems.extend(own)


def _check_place(ev: Eval, out: Path) -> None:
    """Tasks among the cases would be cases themselves."""
    for base in (ev.root, ev.project):
        dataset = base / ev.spec.dataset.path
        if dataset.is_dir() and out.resolve().is_relative_to(dataset.resolve()):
            raise AuthorError(f"{display_path(out)}: lies in the folder of cases; name a folder outside of it")


class _Build:
    """One build into one folder."""

    def __init__(
        self, output: Output, selection: Selection, plan: EvalPlan, request: Request, problems: Problems
    ) -> None:
        self.output = output
        self.selection = selection
        self.plan = plan
        self.request = request
        self.problems = problems
        self.owned = output.owned()
        self.shared_problems = list(problems)
        self.staged = has_staging(plan.ev)
        self.kept: dict[int, TaskState] = {}

    def prepare(self, stored: State | None) -> None:
        """Find out which tasks need not be rendered, and write what belongs to all."""
        strangers = self.output.strangers(self.owned)
        wanted = {name.directory for name, _directory in self.selection.cases}
        for stranger in strangers:
            path = self.output.out / stranger
            if stranger in wanted:
                self.problems.error("is in the way of a task and was not written by harbor-pack", path, code="stranger")
            else:
                self.problems.warn("belongs to no task and is left as it is", path, code="stranger")
        self.problems.raise_errors()
        self.shared_problems = list(self.problems)
        if stored is not None and not self.staged:
            self._keep(stored)
        self.output.put_meta("layer", self.plan.layer.files)
        self.output.put_meta("base", self.plan.base.files)
        probe = interception_files(self.plan.ev, self.plan.handlers, {})
        self.output.put_meta("probe", [made(path, content) for path, content in sorted(probe.items())])
        if self.staged:
            run_before_all(self.plan.ev, self.output.staging / "ground", self.problems)
            self.problems.raise_errors()

    def _keep(self, stored: State) -> None:
        """Find the tasks of an earlier build that are as they would be now: nothing that they depend on has changed."""
        if (stored.request.eval, stored.request.runner) != (
            self.request.eval,
            self.request.runner,
        ) or not stored.eval_is_same():
            return
        known = {(task.directory, task.case_id, task.source): task for task in stored.tasks}
        for index, (name, directory) in enumerate(self.selection.cases):
            task = known.get((name.directory, name.case_id, str(directory)))
            if task is not None and stored.task_is_same(task, str(self.output.out)):
                self.kept[index] = task

    def run(self, jobs: int | None, progress: Callable[[int, int], None] | None) -> list[Done]:
        """Render and write all cases that are not kept; AuthorError with all errors of all of them."""
        total = len(self.selection.cases)
        todo = [index for index in range(total) if index not in self.kept]
        done = [self._kept(index) for index in self.kept]
        found = share(lambda number: self._case(todo[number]), len(todo), jobs or default_processes(len(todo)))
        for count, one in enumerate(found, len(done)):
            if progress is not None:
                progress(count, total)
            done.append(one)
        if progress is not None:
            progress(total, total)
        done.sort(key=lambda one: one.index)
        for one in done:
            self.problems.extend(one.problems)
        if self.request.strict:
            self.problems.strict()
        self.problems.raise_errors()
        return done

    def _kept(self, index: int) -> Done:
        task = self.kept[index]
        problems = tuple(map(problem_from_json, task.problems))
        return Done(index, problems, task.digest, written=False, inputs=task.inputs)

    def _case(self, index: int) -> Done:
        """Render one case and write its task beside its place; may run in a process of its own."""
        name, directory = self.selection.cases[index]
        problems = Problems()
        inputs = unit_of(case_watches(str(directory)))
        case = read_case(self.plan.ev, directory, problems)
        workspace = None
        if case is not None:
            warn_of_secrets(case, problems)
            if self.staged and not problems.errors:
                folder = self.output.staging / f"workspace-{index}"
                ground = self.output.staging / "ground"
                workspace = staged_workspace(self.plan.ev, case, ground, folder, problems)
        task = None if case is None else render_task(self.plan, name, case, problems, workspace=workspace)
        if task is None or problems.errors:
            return Done(index, tuple(problems))
        written, stamp = self.output.put(name.directory, task.files, owned=name.directory in self.owned)
        if workspace is not None:
            shutil.rmtree(self.output.staging / f"workspace-{index}", ignore_errors=True)
        return Done(index, tuple(problems), task.digest, written, inputs, stamp)

    def commit(self, done: list[Done]) -> BuildReport:
        """Move everything into place; what the build did."""
        keep = {name.directory for name, _directory in self.selection.cases}
        remove = {name for name in self.owned - keep if (self.output.out / name).exists()}
        tasks = [(self.selection.cases[one.index][0], one.digest) for one in done]
        self.output.commit(manifest_of(self.plan, tasks).to_bytes(), keep=keep, remove=remove)
        written = sum(one.written for one in done)
        return BuildReport(
            out=self.output.out, tasks=len(done), written=written, unchanged=len(done) - written, removed=len(remove),
            problems=self.problems, matches=matches_of(self.plan),
        )  # fmt: skip

    def state(self, done: list[Done], since: int) -> State:
        """What the next build has to compare; ``since`` is the time at which this one began to read."""
        watches = watches_of(self.plan, frozenset(directory for _name, directory in self.selection.cases))
        out = str(self.output.out)
        at = time.time_ns()
        tasks = []
        for one in done:
            name, directory = self.selection.cases[one.index]
            kept = self.kept.get(one.index)
            if kept is not None:
                tasks.append(kept)
                continue
            stamp, changed = one.outputs
            outputs = Unit(stamp, seal_if_needed(built_watches(out, name.directory), changed, at))
            said = list(map(problem_to_json, one.problems))
            tasks.append(TaskState(name.case_id, name.directory, str(directory), one.digest, one.inputs, outputs, said))
        return State(
            request=self.request, tool=unit_of(own_watches(), since=since), watched=tuple(watches),
            shared=unit_of(watches, since=since),
            cwd=project_is_cwd(self.plan.ev), always=self.staged, meta=unit_of(meta_watches(out)),
            report={
                "matches": matches_of(self.plan), "problems": list(map(problem_to_json, self.shared_problems)),
            },
            tasks=tuple(tasks),
        )  # fmt: skip


def default_processes(cases: int) -> int:
    """As many processes as have enough to do."""
    return max(1, min(len(os.sched_getaffinity(0)), MAX_PROCESSES, cases // CASES_PER_PROCESS))
