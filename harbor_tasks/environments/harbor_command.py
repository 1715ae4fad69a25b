"""The user's `harbor` command: where it is, which version, which of its options a run of ours leaves to the user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.environments.harbor_kinds import DEFAULT_KIND, KINDS
from harbor_tasks.errors import AuthorError, MachineError, Problem, Where, display_path
from harbor_tasks.helpers import HARBOR, cache_folder, call_of, find_program
from harbor_tasks.resources import resource

TESTED = ((0, 26), (0, 27))
"""Harbor's versions that are tested: from the first up to, not including, the second."""
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}
"""Harbor must not ask the internet for prices, nor report what the user runs."""
_PLAIN = {"COLUMNS": "1000", "TERM": "dumb", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
"""Its messages unwrapped, so that a path in them can be found."""
_SECONDS = 120

_OURS = {
    ("-p", "--path", "-d", "--dataset", "-t", "--task", "--repo", "--registry-path"): "name the eval or its tasks",
    ("-i", "--include-task-name", "-x", "--exclude-task-name", "-l", "--n-tasks"): "use --case of harbor-pack",
    ("-a", "--agent"): "use --agent of harbor-pack",
    ("-k", "--n-attempts"): "use --attempts of harbor-pack",
    ("-n", "--n-concurrent"): "use -n of harbor-pack",
    ("-o", "--jobs-dir", "--job-name"): "use --jobs-dir of harbor-pack",
    ("-c", "--config", "--diff"): "harbor-pack writes the job's configuration",
    ("--dry-run", "--print-config", "--install-only", "--disable-verification", "--verifier"): (
        "nothing would be judged"
    ),
    ("--no-delete",): "the trials' containers would be left",
    ("--launch", "--upload"): "the trials must run from here, and their results stay here",
    ("--server", "--watch"): "use harbor-pack runner --server URL",
    ("--user-agent", "--load-trajectory", "--resume-trajectory"): "harbor-pack's agents know no such thing",
}
"""Options that would make the job another one than was asked for, and what to do instead."""


@dataclass(frozen=True)
class Harbor:
    """A `harbor` command that answered."""

    path: Path
    version: str

    @property
    def tested(self) -> bool:
        """Is it a version that harbor-pack is tested with?"""
        numbers = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        return TESTED[0] <= numbers < TESTED[1]


def harbor_here(caller: Mapping[str, str]) -> str | None:
    """The command that is taken when none is named: the one on PATH, else that of docker/harbor.sh."""
    return find_program("harbor", HARBOR, caller)


def how_to_get() -> str:
    """What to do where there is no Harbor, or one that is not tested."""
    low, high = (".".join(map(str, version)) for version in TESTED)
    return f"{call_of('harbor.sh')}, or pipx install 'harbor>={low},<{high}' with Python 3.12 or newer"


def find_harbor(named: Path | None, caller: Mapping[str, str]) -> Harbor:
    """The command that was named, else the one that is here; MachineError that says how to get it."""
    if named is not None:
        found = shutil.which(named.expanduser() if named.parent != Path() else Path(".", named))
        found = found or shutil.which(str(named), path=caller.get("PATH"))
        if found is None:
            raise MachineError(f"--harbor {display_path(named)}: no such program")
    else:
        found = harbor_here(caller)
    if found is None:
        where = display_path(cache_folder(*HARBOR))
        raise MachineError(f"harbor is not on PATH, nor in {where}; {how_to_get()}, or name it with --harbor")
    path = Path(found).absolute()
    try:
        done = subprocess.run(
            [path, "--version"], env={**caller, **OFFLINE, **_PLAIN}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise MachineError(f"{path} --version does not work: {last_lines(str(said))}") from None
    version = re.search(r"\d+(?:\.\d+)+\S*", done.stdout)
    if version is None:
        raise MachineError(f"{path} does not say its version: is it Harbor? It printed {done.stdout.strip()[:100]!r}")
    return Harbor(path, version[0])


def check_options(options: Sequence[str]) -> None:
    """AuthorError for each option that would change what the job is."""
    faults = []
    for option in options:
        name = option.partition("=")[0]
        for ours, instead in _OURS.items():
            if name in ours or any(len(one) == 2 and re.fullmatch(rf"{one}[^-].*", option) for one in ours):
                faults.append(Problem(f"{name} cannot be passed on to harbor run", Where(), instead, code="option"))
    if faults:
        raise AuthorError(faults)


def kind_of(options: Sequence[str]) -> str:
    """The kind of machine that the options ask for: a name of Harbor's, or ``module:Class``."""
    kind = DEFAULT_KIND
    for at, option in enumerate(options):
        name, given, value = option.partition("=")
        if name in ("-e", "--env"):
            kind = value if given else options[at + 1] if at + 1 < len(options) else kind
        elif re.fullmatch(r"-e[^-=].*", option):
            kind = option[2:]
    return kind


def check_kind(kind: str, *, sealed: bool) -> str | None:
    """MachineError for a kind that cannot seal what must be sealed; a warning for one where nobody has tried it."""
    known = KINDS.get(kind)
    if not sealed or (known is not None and known.seals == "yes"):
        return None
    if known is not None and known.seals == "no":
        able = ", ".join(name for name, one in KINDS.items() if one.seals == "yes")
        raise MachineError(
            f"Harbor's environment {kind} cannot seal ({known.why}); use {able}, or set sandbox.sealed: false"
        )
    why = f" ({known.why})" if known is not None else ""
    return f"Harbor's environment {kind}{why}: the seal was not tried there; where it does not hold, trials are errors"


def environ(caller: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The environment of Harbor's process: the user's, our agents to be found, nothing asked of the internet."""
    folders = [str(resource("interceptor")), *filter(None, [caller.get("PYTHONPATH")])]
    return {**caller, **more, **OFFLINE, **_PLAIN, "PYTHONPATH": os.pathsep.join(folders)}


def dry_run(harbor: Harbor, config: Path, options: Sequence[str], env: Mapping[str, str]) -> str | None:
    """What Harbor finds wrong with the job (its options, a task) without running it; None if nothing.

    MachineError when it is this machine that lacks something.
    """
    command: list[str | Path] = [harbor.path, "run", "--config", config, "--dry-run", "--yes", *options]
    try:
        done = subprocess.run(
            command, env=dict(env), cwd=config.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"{harbor.path} run --dry-run does not work: {error}") from None
    if done.returncode == 0:
        return None
    failed = done.stdout.rpartition("Dry run failed:")
    if failed[1]:
        return last_lines(failed[2])
    complaint = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("Skipped:"))
    if not complaint.strip() or "Usage:" in complaint:
        return last_lines(complaint or done.stdout)
    raise MachineError(f"harbor run --dry-run: {last_lines(complaint, 1)}")


def last_lines(text: str, count: int = 3) -> str:
    """The last lines of what a program printed, without the frames and escapes of a terminal."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line.strip(" \t│╭╮╰╯─┃") for line in plain.splitlines()]
    return "; ".join([line for line in lines if line][-count:])[-1500:] or "it said nothing"
