"""`build.json`: what a build says about its tasks to everything that comes after it.

It lies in ``OUT/.harbor-pack/build.json``, is the same for the same inputs, and names no path of the author's machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harbor_tasks.errors import AuthorError
from harbor_tasks.evalspec.schema import Bundle, HookCommand, McpServer, Models, Reward, Runner, Sandbox, Threshold
from harbor_tasks.policy.probes import Probe
from harbor_tasks.tasks.plan import BUILD_DIR

__all__ = ["BUILD_DIR", "PULLED", "BuildManifest", "manifest_path", "pulled_digest", "read_manifest"]


PULLED = "pulled.json"
"""In ``.harbor-pack`` of an unpacked bundle: whose tasks these are, another machine's, and of which bundle."""


class Part(BaseModel):
    """A part of the manifest: not changed once made; keys of a later version are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class ExecutionPart(Part):
    """How the agent is run."""

    mode: Literal["case", "batch"]
    timeout: int | None
    """Seconds."""
    max_budget_usd: float | None
    parallelism: int
    env: dict[str, str]
    """Literals, or ``${VAR}`` / ``${VAR:-default}`` of the caller's environment."""


class StepPart(Part):
    """One step of a task."""

    id: str
    timeout: int | None
    """Seconds."""
    on_failure: Literal["fail", "continue"]
    env: dict[str, str]
    """As in the execution part; beats it."""


class JudgePart(Part):
    """A judge as reports need it."""

    name: str
    kind: str
    """check, prompt, builtin, command or module."""
    feedback_type: str | None
    score_range: tuple[float, float] | None
    step: str | None
    needs_model: bool
    timeout: int | None = None
    """Seconds."""
    model: str | None = None
    """Of a judge that asks one, as are the next two."""
    samples: int | None = None
    asks: str | None = None
    """The digest of its request without the run's data; None in tasks of an earlier version."""


class HandlerPart(Part):
    """A handler by its text; ``enforced`` is False when the interceptor skips it."""

    match: str
    patterns: tuple[str, ...]
    enforced: bool


class HooksAfterPart(Part):
    """Commands that `run` starts on the host."""

    after_each: tuple[HookCommand, ...]
    after_all: tuple[HookCommand, ...]


class PermissionsPart(Part):
    """Rule texts as they stand in settings.json."""

    allow: tuple[str, ...]
    deny: tuple[str, ...]


class TaskPart(Part):
    """One task of the build."""

    directory: str
    """Its folder in the output folder."""
    name: str
    """``org/name`` as in task.toml."""
    case_id: str
    digest: str
    """Harbor's digest of the task directory (facts/harbor.md), hex."""


class BuildManifest(Part):
    """The content of build.json."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    tool: str
    """Name and version of what wrote it."""
    name: str
    """The eval's name, as typed."""
    version: str | None = None
    """As typed."""
    description: str
    image: str
    """The image of the sandbox: a pure function of the plan."""
    runner: Runner
    models: Models
    execution: ExecutionPart
    steps: tuple[StepPart, ...]
    judges: tuple[JudgePart, ...]
    reward: Reward
    thresholds: dict[str, Threshold]
    hooks_after: HooksAfterPart
    mcp_servers: tuple[McpServer, ...]
    """Paths of their scripts are those in the sandbox."""
    permissions: PermissionsPart
    probes: tuple[Probe, ...]
    sandbox: Sandbox
    handlers: tuple[HandlerPart, ...]
    bundle: Bundle = Bundle()
    """How the eval is packed."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that the eval sets, refers to or checks, sorted; never their values."""
    plugins: tuple[str, ...]
    """Folders of ``layer/plugins``."""
    tasks: tuple[TaskPart, ...]

    def to_bytes(self) -> bytes:
        """The bytes of build.json."""
        data: dict[str, Any] = self.model_dump(mode="json", by_alias=True)
        return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def manifest_path(out: Path) -> Path:
    """Where the manifest of this output folder lies."""
    return out / BUILD_DIR / "build.json"


def pulled_digest(out: Path) -> str | None:
    """The identity of the bundle that a folder was unpacked from; None for tasks that were built here."""
    try:
        digest = json.loads((out / BUILD_DIR / PULLED).read_bytes())["digest"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        digest = None
    if not isinstance(digest, str):
        raise AuthorError(f"{out / BUILD_DIR / PULLED}: cannot be read; pull the bundle again")
    return digest


def read_manifest(out: Path) -> BuildManifest:
    """The manifest of a folder that `build` wrote; AuthorError when it is none or was broken."""
    path = manifest_path(out)
    try:
        return BuildManifest.model_validate_json(path.read_bytes())
    except OSError:
        raise AuthorError(
            f"{out}: not a folder of built tasks (no {BUILD_DIR}/build.json); run harbor-pack build"
        ) from None
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise AuthorError(f"{path}: cannot be read ({place}: {fault['msg']}); build the eval again") from None
