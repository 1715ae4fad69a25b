"""The eval's own commands after a trial and after the job, on the author's machine (DESIGN.md, "hooks")."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.environments.base import Stop
from harbor_tasks.environments.contained import run_contained
from harbor_tasks.evalspec.schema import HookCommand
from harbor_tasks.tasks.manifest import HooksAfterPart


@dataclass(frozen=True)
class AfterHooks:
    """The commands of one job; each method returns the first fault that is not to be passed over."""

    hooks: HooksAfterPart
    project: Path
    """The author's."""
    job: Path
    """The job's folder."""
    stop: Stop

    def after_each(self, trial: Path) -> str | None:
        """In the workspace that a trial left, by the trial's folder; what they print is in its hooks.log."""
        cwd = trial / "workspace" if (trial / "workspace").is_dir() else trial
        env = {"HARBOR_PACK_TRIAL": str(trial)}
        return self._run(self.hooks.after_each, "after_each", cwd, trial / "hooks.log", env)

    def after_all(self) -> str | None:
        """In the job's folder, where hooks.log is, too."""
        return self._run(self.hooks.after_all, "after_all", self.job, self.job / "hooks.log", {})

    def _run(
        self, hooks: tuple[HookCommand, ...], when: str, cwd: Path, log: Path, more: dict[str, str]
    ) -> str | None:  # fmt: skip
        """With the caller's environment."""
        env = {**os.environ, "AGENT_EVAL_PROJECT_ROOT": str(self.project), "HARBOR_PACK_JOB": str(self.job), **more}
        for hook in hooks:
            ended = run_contained(
                ["/bin/sh", "-c", hook.command], cwd=cwd, env=env, stdout=log, stderr=log, timeout=hook.timeout,
                stop=self.stop,
            )  # fmt: skip
            if (ended.why != "exited" or ended.exit_code) and hook.on_failure == "fail":
                how = f"exit code {ended.exit_code}" if ended.why == "exited" else ended.why
                return f"the {when} command failed ({how}): {hook.command}; see {log.name}"
        return None
