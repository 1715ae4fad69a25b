"""An endpoint, the variables that lead to it, and an eval."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint
from harbor_tasks.proving.calls import Forced
from harbor_tasks.resources import script_module

from . import kit


@pytest.fixture(scope="module")
def served() -> Iterator[Endpoint]:
    with Endpoint() as one:
        yield one


@pytest.fixture
def endpoint(served: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Endpoint:
    """An endpoint that has been asked nothing; the SDK is led to it, with a key."""
    served.remove(kit.NAME)
    for name in list(os.environ):
        if name.startswith("ANTHROPIC_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", kit.replies(served, kit.answer()))
    monkeypatch.setenv("ANTHROPIC_API_KEY", kit.KEY)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return served


@pytest.fixture
def really() -> None:
    """Probes go through the registered hook, each in a process of its own."""


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that is not what is tested, the interceptor decides in this process."""
    if "really" in request.fixturenames:
        return
    tools = script_module("tools")

    def decided(
        built: Path, variables: Mapping[str, str], _caller: Mapping[str, str], forced: Sequence[Forced]
    ) -> dict[str, Any]:  # fmt: skip
        config = tools.load_handlers((built / "tool_handlers.yaml").read_bytes())
        found = {}
        for one in forced:
            call = tools.new_call(log=None)
            call.update(tool=one.probe.tool, input=one.probe.input)
            tools.decide(call, config, {**variables, **one.probe.env}, None, lambda *_: ([None], None, []))
            told = {"got": call["decision"], "reason": call["reason"] or "", "updated_input": call["updated"]}
            found[one.id] = {**told, "notes": [], "tier": call["tier"], "handler": call["handler"]}
        return found

    monkeypatch.setattr("harbor_tasks.proving.resolving.ask_policy", decided)


@pytest.fixture
def eval_dir(tmp_path: Path) -> Path:
    (tmp_path / "eval").mkdir()
    return kit.write_eval(tmp_path / "eval")
