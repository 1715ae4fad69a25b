"""The agent `probe`: forces the probes of a task that was made for it, through interceptor/prober.py."""

from __future__ import annotations

from pathlib import Path

from harbor_tasks import __version__
from harbor_tasks.agents.base import Launch, OwnProgram, Places


class ProbeAgent(OwnProgram):
    """Asks the registered hooks about each probe's call; no tool runs. Its outcomes lie where a transcript would."""

    name: str = "probe"
    version: str = __version__
    needs_solution: bool = True
    solution_files: tuple[str, ...] | None = ("probes.json",)
    programs: tuple[str, ...] = ("replay.py", "prober.py")
    asks_hooks: bool = False  # with no key of a model: a question that only a model can answer shows as guessed

    def lacks(self, task: Path, steps: tuple[str, ...]) -> str | None:  # noqa: ARG002 - the task has none
        """The probes."""
        return (
            None if (task / "solution" / "probes.json").is_file() else "no probes: it is for `harbor-pack probe` only"
        )

    def launch(self, places: Places) -> Launch:
        """The script with a Python of its own."""
        argv = [
            places.python, "-I", "-S", str(places.programs / "prober.py"),
            "--probes", str(places.solution / "probes.json"), "--settings", str(places.settings),
            "--workspace", str(places.workspace), "--out", str(places.transcript),
        ]  # fmt: skip
        return Launch(argv=tuple(argv))
