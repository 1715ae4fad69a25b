"""Probes on this machine: the built policy, staged as for a trial here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.environments.scratch import scratch_folder
from harbor_tasks.environments.selftest import LocalHooks, SelfTestError, self_test
from harbor_tasks.environments.staging import POLICY_FILES, copy_tree, staged_settings
from harbor_tasks.environments.variables import MACHINE
from harbor_tasks.errors import MachineError
from harbor_tasks.proving.calls import Forced, Outcome, set_variables
from harbor_tasks.resources import script_module
from harbor_tasks.tasks.manifest import BuildManifest


def ask_here(
    built: Path, manifest: BuildManifest, caller: Mapping[str, str], forced: Sequence[Forced]
) -> dict[str, Outcome]:  # fmt: skip
    """The outcomes on this machine, by the id of the call."""
    return ask_policy(built, set_variables(manifest, caller), caller, forced)


def ask_policy(
    built: Path, variables: Mapping[str, str], caller: Mapping[str, str], forced: Sequence[Forced]
) -> dict[str, Outcome]:  # fmt: skip
    """The same, of the policy files in a folder, with the eval's ``variables`` (values, no references)."""
    with scratch_folder() as scratch:
        policy = _Policy(built, scratch, variables, caller)
        return {one.id: policy.ask(one) for one in forced}


class _Policy:
    """The eval's own policy (no case's overrides), staged in a temporary home and ready to be asked."""

    def __init__(
        self, built: Path, scratch: Path, variables: Mapping[str, str], caller: Mapping[str, str]
    ) -> None:  # fmt: skip
        self.replay, self.prober = script_module("replay"), script_module("prober")
        self.workspace, self.log = scratch / "workspace", scratch / "interceptions.jsonl"
        home = scratch / "home"
        self.workspace.mkdir()
        home.mkdir()
        for name in POLICY_FILES:
            if (built / name).is_file():
                (home / name).parent.mkdir(exist_ok=True)
                copy_tree(built / name, home / name)
        written = built / ".claude" / "settings.json"
        text = staged_settings(written, home, self.log) if written.is_file() else "{}"
        self.settings = self.replay.json.loads(text)
        self.env = _hook_env(variables, scratch, caller) | {"CLAUDE_PROJECT_DIR": str(self.workspace)}
        try:
            hooks = LocalHooks(self.settings, self.log, self.workspace, self.env)
            self_test(self.settings, hooks, cwd=str(self.workspace), home=str(home))
        except SelfTestError as error:
            raise MachineError(f"the policy of {built} does not work here: {error}") from None

    def ask(self, forced: Forced) -> Outcome:
        """Ask the hooks and the deny rules about one call."""
        workspace = str(self.workspace)
        outcome: dict[str, Any] = self.prober.force(self.replay, forced.call, self.settings, workspace, self.env)
        line = next((line for line in json_lines(self.log) if line.get("tool_use_id") == forced.id), {})
        return {**outcome, "tier": line.get("tier"), "handler": line.get("handler")}


def _hook_env(variables: Mapping[str, str], scratch: Path, caller: Mapping[str, str]) -> dict[str, str]:
    """What the hook of a trial would see; a variable that nobody set is left out, since probes bring their own.

    No key of a model: a probe shows the policy, and a question that only a model can answer shows as guessed.
    """
    env = {name: caller[name] for name in MACHINE if name in caller}
    env |= {"HOME": str(scratch), "TMPDIR": str(scratch), "LANG": env.get("LANG", "C.UTF-8")}
    return env | dict(variables)
