"""The program of an agent on this machine: where it is, what version it says, how to get the one that images hold."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from harbor_tasks.errors import MachineError, display_path
from harbor_tasks.resources import resource

_SECONDS = 60


@dataclass(frozen=True)
class Program:
    """The command ``name`` of the npm package ``package``, which the agent ``agent`` starts."""

    agent: str
    name: str
    package: str

    def pinned_version(self) -> str:
        """The version that runtime images hold."""
        text = resource("docker", "Dockerfile").read_text(encoding="utf-8")
        argument = self.agent.upper().replace("-", "_") + "_VERSION"
        found = re.search(rf"^ARG {argument}=(\S+)$", text, re.MULTILINE)
        return found[1] if found else ""

    def how_to_get(self, version: str) -> str:
        """What to do when the program is not here, or not this one."""
        helper = display_path(resource("docker", "agents.sh"))
        return f"npm install -g {self.package}@{version}, or put on PATH the folder that `sh {helper}` prints"

    def find(self, caller: Mapping[str, str]) -> str:
        """The user's own, by the caller's PATH; MachineError when there is none."""
        found = shutil.which(self.name, path=caller.get("PATH"))
        if found is None:
            raise MachineError(
                f"agent {self.agent}: there is no `{self.name}` on PATH; {self.how_to_get(self.pinned_version())}"
            )
        return found

    def version_of(self, path: str) -> str:
        """What a program says of itself; MachineError when it does not run, or says nothing like a version."""
        try:
            said = subprocess.run(
                [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=_SECONDS, check=True,
            ).stdout  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise MachineError(f"agent {self.agent}: {path} does not run: {error}") from None
        number = re.search(r"\d+\.\d+\.\d+\S*", said)
        if number is None:
            raise MachineError(f"agent {self.agent}: {path} does not say its version, but {said.strip()[:80]!r}")
        return number[0]
