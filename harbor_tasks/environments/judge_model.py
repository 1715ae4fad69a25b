"""Whether the verifier of a trial may ask models itself, and with what; else `harbor-pack score` does, afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping

from harbor_tasks.environments.variables import MODEL
from harbor_tasks.tasks.manifest import BuildManifest
from harbor_tasks.tasks.task_toml import reaches_anthropic


def judge_model(manifest: BuildManifest, caller: Mapping[str, str], *, in_sandbox: bool) -> bytes | None:
    """The content of the verifier's ``--model`` file; None when nobody is to be asked there.

    The key goes into no sandbox that is not sealed: what the agent changed in it as root would get it.
    """
    if not any(judge.needs_model for judge in manifest.judges):
        return None
    sandbox = manifest.sandbox
    if in_sandbox and not (
        sandbox.sealed and reaches_anthropic(sandbox.network, manifest.runner.type, handlers=bool(manifest.handlers))
    ):
        return None
    key, token, url = (caller.get(name) or "" for name in MODEL)
    if not key and not token:
        return None
    return json.dumps({"base_url": url, "api_key": key, "auth_token": token}).encode()
