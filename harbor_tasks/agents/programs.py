"""The program of an agent on this machine: where it is, what version it says, how to get the one that images hold."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from harbor_tasks.errors import MachineError, display_path
from harbor_tasks.helpers import AGENTS, cache_folder, call_of, find_program
from harbor_tasks.resources import resource

_SECONDS = 60


@dataclass(frozen=True)
class Program:
    """The command ``name`` of the npm package ``package``, which the agent ``agent`` starts."""

    agent: str
    name: str
    package: str
    oldest: tuple[int, ...] = ()
    """Older ones are refused."""

    def pinned_version(self) -> str:
        """The version that runtime images hold."""
        text = resource("docker", "Dockerfile").read_text(encoding="utf-8")
        argument = self.agent.upper().replace("-", "_") + "_VERSION"
        found = re.search(rf"^ARG {argument}=(\S+)$", text, re.MULTILINE)
        return found[1] if found else ""

    def how_to_get(self, version: str) -> str:
        """What to do when the program is not here, or not this one."""
        helper = call_of("agents.sh")
        return f"npm install -g {self.package}@{version}, or put on PATH the folder that `{helper}` prints"

    def here(self, caller: Mapping[str, str]) -> str | None:
        """The user's own, by the caller's PATH, else the one of docker/agents.sh."""
        return find_program(self.name, AGENTS, caller)

    def find(self, caller: Mapping[str, str]) -> str:
        """The one that is here; MachineError when there is none."""
        found = self.here(caller)
        if found is None:
            where, how = display_path(cache_folder(*AGENTS)), self.how_to_get(self.pinned_version())
            raise MachineError(f"agent {self.agent}: there is no `{self.name}` on PATH, nor in {where}; {how}")
        return found

    def is_too_old(self, version: str) -> bool:
        """Whether this version is refused."""
        return tuple(map(int, re.findall(r"\d+", version)[:3])) < self.oldest

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
