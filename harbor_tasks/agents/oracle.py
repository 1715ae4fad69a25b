"""The agent `oracle`: runs the solution that the case's author wrote, as Harbor's own oracle does."""

from __future__ import annotations

from pathlib import Path

from harbor_tasks import __version__
from harbor_tasks.agents.base import Launch, OwnProgram, Places, solution_dir


class OracleAgent(OwnProgram):
    """``solution/solve.sh`` with bash, in the workspace. It makes no tool calls, so no hook sees it."""

    name: str = "oracle"
    version: str = __version__
    needs_solution: bool = True
    solution_files: tuple[str, ...] | None = None
    programs: tuple[str, ...] = ()
    asks_hooks: bool = False

    def lacks(self, task: Path, steps: tuple[str, ...]) -> str | None:
        """Every step needs a solve.sh: its own, or the one of the task."""
        for step in steps or (None,):
            if not (solution_dir(task, step) / "solve.sh").is_file():
                return f"no solution/solve.sh{f' for the step {step}' if step is not None else ''}"
        return None

    def launch(self, places: Places) -> Launch:
        """bash, so that a solve.sh without the executable bit runs too."""
        return Launch(argv=("bash", str(places.solution / "solve.sh")))
