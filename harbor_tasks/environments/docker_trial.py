"""One trial's phases in its container: staged and sealed by the task's own setup, then what local does, but inside."""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from harbor_tasks.agents.base import Launch, Places, solution_dir
from harbor_tasks.environments.base import SandboxError, Stop, TrialPlan
from harbor_tasks.environments.contained import OUTPUT_BYTES, Ended
from harbor_tasks.environments.docker_container import AGENT_HOME, Container
from harbor_tasks.environments.docker_files import Outgoing, unpack
from harbor_tasks.environments.docker_line import File, Line
from harbor_tasks.environments.docker_network import check_network, close_names
from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.environments.judge_model import judge_model
from harbor_tasks.environments.records import read_toml
from harbor_tasks.environments.selftest import SECONDS, SelfTestError, self_test
from harbor_tasks.environments.staging import KEPT_BYTES, POLICY_FILES, mcp_config, not_kept, record_not_kept
from harbor_tasks.environments.trial import Part, run_record
from harbor_tasks.environments.variables import MODEL, MODEL_URL, fill_in, resolve_value
from harbor_tasks.resources import resource, script_module
from harbor_tasks.tasks.manifest import BuildManifest
from harbor_tasks.tasks.plan import INTERCEPTION_LOG, SANDBOX_HOME
from harbor_tasks.tasks.sealing import SERVERS_FILE, server_command

RUN = f"{AGENT_HOME}/run"
"""What one run of the agent, or of the verifier, is given; emptied between them."""
SOLUTION, TESTS, AGENT_LOGS, VERIFIER_LOGS = "/solution", "/tests", "/logs/agent", "/logs/verifier"
"""Harbor's places."""
PREFIX = "/usr/local/lib/harbor-pack/prefix"
MANAGED = "/etc/claude-code/managed-settings.json"
AGENT, AGENT_GID, WORKER, SERVICES_GID = "agent", 903, "worker", 904
"""The user of the agent program in a sealed sandbox, its own group, and the user of what the model runs."""
SETUP_SECONDS = 120.0
LOG_BYTES = 256 << 20
"""Of a transcript, an interception log or a verifier's folder; a trial with more is not to be trusted."""
HEADERS_BYTES = 1 << 30
"""Of an archive, for what is not the content of files: names, modes, padding."""
SHOWN_BYTES = 1 << 20
"""Of the agent's output, what judges are shown."""
_MODEL_VARIABLES = "HARBOR_PACK_MODEL_"


class DockerSandbox:
    """A trial in a container: the phases of `trial.Sandbox`."""

    def __init__(
        self, container: Container, plan: TrialPlan, manifest: BuildManifest, caller: Mapping[str, str],
        warnings: list[str],
    ) -> None:  # fmt: skip
        self._container, self._plan, self._manifest, self._caller = container, plan, manifest, caller
        self._warnings = warnings
        self._workspace = manifest.sandbox.workdir
        self._sealed = manifest.sandbox.sealed
        self._user = AGENT if self._sealed else container.default_user()
        self._toml = read_toml(plan.task / "task.toml")
        self._logged = 0
        self.log = plan.folder / "interceptions.jsonl"
        self.settings: Mapping[str | None, dict[str, Any]] = {}

    @property
    def _line(self) -> Line:
        return self._container.line

    # ------------------------------------------------------------------------------------------- before the agent

    def stage(self, stop: Stop) -> None:
        """Put the task in, let its setup stage and seal it, and look whether it did."""
        self._container.start(stop)
        with Outgoing() as archive:
            expected = archive.tree(self._plan.task / "environment", self._workspace)
            archive.folder(AGENT_HOME)
            for program in self._plan.agent.programs:
                archive.tree(resource("interceptor", program), f"{AGENT_HOME}/{program}")
            file = archive.finish()
            self._line.put(file, archive.size)
        _compare(expected, self._line.listing(self._workspace, expected), "did not arrive in the container")
        self._setup()
        self._check_staged(expected)
        self.settings = self._registered()
        close_names(self._line, self._container.access)
        check_network(self._line, self._container.access, self._container.python, self._user)

    def _setup(self) -> None:
        """The health check of task.toml, as Harbor runs it: it stages, and seals where the image can."""
        command = self._toml["environment"]["healthcheck"]["command"]
        given = self._toml["environment"].get("env", {})
        env = {name: fill_in(value, self._caller) for name, value in given.items() if name.startswith(_MODEL_VARIABLES)}
        self._as_root(command, env, "setup")
        if self._sealed and not self._line.listing(SANDBOX_HOME, ["sealed"]):
            raise SandboxError("setup did not seal the sandbox: the image lacks the users or sudo (sandbox.sealed)")

    def _as_root(self, command: str, env: dict[str, str], what: str) -> None:
        said = bytearray()
        ended = self._line.run(
            ("/bin/sh", "-c", command), out=said.extend, err=said.extend, env=env, cwd=self._workspace,
            timeout=SETUP_SECONDS,
        )  # fmt: skip
        if ended.why != "exited" or ended.exit_code:
            how = f"exit code {ended.exit_code}" if ended.why == "exited" else ended.why
            raise SandboxError(f"{what} failed ({how}): {said.decode('utf-8', 'replace').strip()[-600:]}")

    def _check_staged(self, expected: Mapping[str, tuple[int, int]]) -> None:
        """The case's files are in the workspace, the policy and the answers are not."""
        policy = [*POLICY_FILES, "setup", *([".claude/settings.json"] if self._sealed else [])]
        files: dict[str, tuple[int, int]] = {
            name[6:]: info for name, info in expected.items() if name.startswith("files/")
        }
        found = self._line.listing(self._workspace, [*policy, *files])
        left = [name for name in policy if name in found and name not in files]
        if left:
            raise SandboxError(f"setup left the policy in the workspace: {', '.join(left)}")
        _compare(files, found, "is not in the workspace after setup", modes=False)

    def _registered(self) -> dict[str | None, dict[str, Any]]:
        """The settings that hold, of the task or of each step, as root finds them before the agent starts."""
        whole = self._json(MANAGED if self._sealed else f"{self._workspace}/.claude/settings.json")
        steps = [step.id for step in self._manifest.steps]
        if self._sealed or not steps:  # a step's managed settings differ in their variables only
            return dict.fromkeys(steps or (None,), whole)
        return {step: self._of_step(step) or whole for step in steps}

    def _of_step(self, step: str) -> dict[str, Any]:
        return self._json(f"{SANDBOX_HOME}/steps/{step}/settings.json")

    def _json(self, path: str) -> dict[str, Any]:
        content = bytearray()
        if self._line.read(path, content.extend, limit=LOG_BYTES) is None:
            return {}
        try:
            data: dict[str, Any] = json.loads(content)
        except ValueError as error:
            raise SandboxError(f"{path} in the sandbox is no JSON: {error}") from None
        return data

    def self_test(self) -> None:
        """The registered commands, as the agent's user and in the way in which the agent program starts them."""
        if self._sealed:
            self._users_apart()
        for settings in {json.dumps(one): one for one in self.settings.values()}.values():
            hooks = _Hooks(self, settings)
            self_test(settings, hooks, cwd=self._workspace, home=None if self._sealed else SANDBOX_HOME)

    def _users_apart(self) -> None:
        """What the model runs is another user's than the agent program: a user of the same could end the hook."""
        said = bytearray()
        self._line.run((PREFIX, "id -un"), out=said.extend, err=said.extend, user=self._user, timeout=SECONDS)
        who = said.decode("utf-8", "replace").strip()
        if who != WORKER:
            hint = "; the engine must allow setuid programs (sudo)" if "privileges" in who or "setuid" in who else ""
            raise SelfTestError(f"the model's commands would not run as {WORKER}: {who[-300:]}{hint}")

    def open(self) -> None:
        """Setup's last touch was the mark."""

    # -------------------------------------------------------------------------------------- the agent, the verifier

    def agent(self, part: Part, seconds: float) -> Ended:
        """The agent's program as its user, its output to disk as it comes; then the end of all other processes."""
        places = self._places(part)
        instruction = self._plan.task / (f"steps/{part.id}" if part.id is not None else ".") / "instruction.md"
        self._step_settings(part)
        self._give(part, places, instruction)
        launch = self._plan.agent.launch(places)
        self._line.folder(AGENT_LOGS, self._user, 0o700)
        given = instruction.read_bytes() if launch.stdin is not None else b""
        with _output(part.folder / "stdout.txt") as out, _output(part.folder / "agent.log") as err:
            ended = self._line.run(
                launch.argv, out=out, err=err, user=self._user, cwd=self._workspace, timeout=seconds, given=given,
                env=self._agent_env(part, launch), umask=0o002 if self._sealed else 0o022,
            )  # fmt: skip
        if self._plan.agent.transcript_from == "file":
            with File(part.transcript, LOG_BYTES) as sink:
                self._fetch(f"{AGENT_LOGS}/transcript.jsonl", sink)
        sessions = launch.sessions
        if sessions is not None and self._line.listing(str(sessions.parent), [sessions.name]):
            (part.folder / "sessions").mkdir(exist_ok=True)
            self._warnings += record_not_kept(self._unpack(str(sessions), part.folder / "sessions", LOG_BYTES))
        with File(self.log, LOG_BYTES) as sink:
            self._logged = self._fetch(INTERCEPTION_LOG, sink, self._logged)
        return ended

    def verify(self, part: Part, log: Path, seconds: float) -> Ended:
        """tests/test.sh as root, put in place only now."""
        task = self._plan.task
        # with a scripted agent nothing is paid for
        model = None if self._plan.model else judge_model(self._manifest, self._caller, in_sandbox=True)
        with Outgoing() as archive:
            archive.tree(task / "tests" if part.id is None else task / "steps" / part.id / "tests", TESTS)
            archive.folder(RUN, 0o700)
            archive.content(f"{RUN}/run.json", run_record(part, f"{RUN}/stdout.txt"))
            archive.content(f"{RUN}/stdout.txt", _head(part.folder / "stdout.txt"))
            if model is not None:  # the verifier removes it before it starts anything
                archive.content(f"{RUN}/model.json", model, 0o600)
            for source, name in ((log, "interceptions.jsonl"), (part.transcript, "transcript.jsonl")):
                if source.is_file():
                    archive.tree(source, f"{RUN}/{name}")
            file = archive.finish()
            self._line.put(file, archive.size, clear=(TESTS, RUN, SOLUTION))
        self._line.folder(VERIFIER_LOGS, "", 0o700)
        argv = (
            "sh", f"{TESTS}/test.sh", "--transcript", f"{RUN}/transcript.jsonl",
            "--interceptions", f"{RUN}/interceptions.jsonl", "--run", f"{RUN}/run.json",
            *(("--model", f"{RUN}/model.json") if model is not None else ()),
        )  # fmt: skip
        with File(part.folder / "verifier.log", 2 * OUTPUT_BYTES) as shown:
            ended = self._line.run(argv, out=shown, err=shown, cwd=self._workspace, timeout=seconds)
        self._unpack(VERIFIER_LOGS, part.folder / "verifier", LOG_BYTES)
        return ended

    def collect(self) -> None:
        """Copy the workspace into the trial's folder."""
        target = self._plan.folder / "workspace"
        target.mkdir()
        self._warnings += not_kept(self._unpack(self._workspace, target, KEPT_BYTES))

    def _places(self, part: Part) -> Places:
        agent, root = self._plan.agent, Path(SANDBOX_HOME)
        settings = MANAGED if self._sealed else f"{self._workspace}/.claude/settings.json"
        return Places(
            workspace=Path(self._workspace), home=root, settings=Path(settings),
            transcript=Path(AGENT_LOGS, "transcript.jsonl"), instruction=Path(RUN, "instruction.md"),
            solution=Path(SOLUTION if agent.solution_files is None else RUN), step=part.id,
            mcp_config=Path(RUN, "mcp.json") if self._manifest.mcp_servers else None,
            python=self._container.python, programs=Path(AGENT_HOME), sealed=self._sealed, budget_usd=part.budget,
        )  # fmt: skip

    def _give(self, part: Part, places: Places, instruction: Path) -> None:
        """What the agent works from, readable by it and, in a sealed sandbox, by nothing that the model runs."""
        agent, gid = self._plan.agent, AGENT_GID if self._sealed else 0
        solution = solution_dir(self._plan.task, part.id)
        with Outgoing() as archive:
            archive.folder(RUN, 0o750 if self._sealed else 0o755, gid=gid)
            if instruction.is_file():
                archive.tree(instruction, str(places.instruction))
            if places.mcp_config is not None:
                config = mcp_config(self._manifest, SANDBOX_HOME, self._caller)
                if self._sealed:
                    config, own = _apart(config)
                    archive.content(SERVERS_FILE, json.dumps(own).encode(), 0o640, gid=SERVICES_GID)
                archive.content(str(places.mcp_config), json.dumps(config).encode())
            if agent.needs_solution and agent.solution_files is None:
                archive.folder(SOLUTION)
                archive.tree(solution, SOLUTION)
            elif agent.needs_solution:
                for name in agent.solution_files or ():
                    archive.tree(solution / name, str(places.solution / name))
            file = archive.finish()
            self._line.put(file, archive.size, clear=(SOLUTION, RUN, TESTS, VERIFIER_LOGS))

    def _agent_env(self, part: Part, launch: Launch) -> dict[str, str]:
        """The eval's variables, then the step's, and of the caller's only those of the model: the program's alone."""
        own = {**self._manifest.execution.env, **(part.step.env if part.step is not None else {})}
        env = {name: resolve_value(value, self._caller) for name, value in own.items()}
        agent = self._plan.agent
        if self._sealed:
            env["CLAUDE_CODE_SHELL_PREFIX"] = PREFIX
        if self._plan.model is not None:
            base = self._caller[MODEL_URL[self._manifest.runner.type]]
            env |= self._plan.model.variables(self._plan.expected.trial, self._plan.task, part.id, base)
        else:  # hooks may ask a model, as on this machine; in a sealed sandbox theirs has a file of its own
            hooks = MODEL if agent.asks_hooks and not self._sealed else ()
            known = (*hooks, *agent.model_variables)
            env |= {name: self._caller[name] for name in known if name in self._caller}
        return {**env, **launch.env}

    def _step_settings(self, part: Part) -> None:
        """A step's own settings, put in place as Harbor does it: by the health check of the step."""
        for table in self._toml.get("steps", []):
            if part.id is not None and table.get("name") == part.id and "healthcheck" in table:
                self._as_root(table["healthcheck"]["command"], {}, f"the set-up of the step {part.id}")

    # ------------------------------------------------------------------------------------------------------- files

    def _fetch(self, path: str, sink: File, offset: int = 0) -> int:
        """A file of the container from an offset on; its size. One that does not end is not to be trusted."""
        size = self._line.read(path, sink, limit=LOG_BYTES, offset=offset)
        if size is not None and size - offset > LOG_BYTES:
            raise SandboxError(f"{path} in the sandbox has grown beyond {LOG_BYTES >> 20} MB")
        return offset if size is None else size

    def _unpack(self, path: str, target: Path, limit: int) -> list[str]:
        with tempfile.TemporaryFile() as archive:
            left_out = self._line.pack(path, File(archive, limit + HEADERS_BYTES), limit=limit)
            archive.seek(0)
            return [*left_out, *unpack(archive, target)]

    def run_hook(self, command: str, settings: dict[str, Any], payload: bytes) -> tuple[int, bytes, bytes]:
        """A registered command as the agent program starts it."""
        out, err = bytearray(), bytearray()
        env = {**script_module("replay").settings_env(settings), "CLAUDE_PROJECT_DIR": self._workspace}
        own = self._manifest.execution.env.items()
        env = {**{name: resolve_value(value, self._caller) for name, value in own}, **env}
        argv = (PREFIX, command) if self._sealed else ("/bin/sh", "-c", command)
        ended = self._line.run(
            argv, out=out.extend, err=err.extend, user=self._user, cwd=self._workspace, timeout=SECONDS, given=payload,
            env=env,
        )  # fmt: skip
        if ended.why != "exited" or ended.exit_code is None:
            raise SelfTestError(f"the hook did not end ({ended.why})")
        return ended.exit_code, bytes(out), bytes(err)

    def read_log(self) -> Iterable[dict[str, Any]]:
        """The lines of the interceptor's log."""
        content = bytearray()
        self._line.read(INTERCEPTION_LOG, content.extend, limit=LOG_BYTES)
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            return list(json_lines(Path(file.name)))

    def remove_log(self) -> None:
        """The log of the self-test goes."""
        self._as_root(f"rm -f {INTERCEPTION_LOG}", {}, "removing the log of the self-test")


@dataclass(frozen=True)
class _Hooks:
    """Hooks that run in the container (`selftest.Hooks`)."""

    sandbox: DockerSandbox
    settings: dict[str, Any]

    def call(self, command: str, payload: bytes) -> tuple[int, bytes, bytes]:
        return self.sandbox.run_hook(command, self.settings, payload)

    def logged(self) -> Iterable[dict[str, Any]]:
        return self.sandbox.read_log()

    def forget(self) -> None:
        self.sandbox.remove_log()


def _apart(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the agent program is told of its MCP servers, and what the user `services` starts them with."""
    told, own = {}, {}
    for name, server in config["mcpServers"].items():
        told[name] = server
        if server["type"] == "stdio":
            own[name] = {key: server[key] for key in ("command", "args", "env")}
            command, *args = server_command(name)
            told[name] = {"type": "stdio", "command": command, "args": args, "env": {}}
    return {"mcpServers": told}, own


def _compare(
    expected: Mapping[str, tuple[int, int]], found: Mapping[str, tuple[int, int]], what: str, *, modes: bool = True
) -> None:
    """SandboxError that names the first thing that is missing, of another kind or size, or has another mode.

    Without ``modes`` only a file's executable bit counts: setup hands the files to the agent's users.
    """
    for name, (mode, size) in expected.items():
        got = found.get(name)
        mask = 0o777 if modes else 0o100
        if got is None or stat.S_IFMT(got[0]) != stat.S_IFMT(mode):
            raise SandboxError(f"{PurePosixPath(name)} {what}")
        if got[0] & mask != mode & mask or (stat.S_ISREG(mode) and got[1] != size):
            raise SandboxError(f"{PurePosixPath(name)} {what} as it was: mode {got[0] & 0o777:o}, {got[1]} bytes")


def _output(path: Path) -> File:
    return File(path, OUTPUT_BYTES)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(SHOWN_BYTES)
    except OSError:
        return b""
