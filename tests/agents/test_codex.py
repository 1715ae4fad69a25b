"""What the agent codex needs of its program and its eval, and how the program is started."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harbor_tasks.agents.codex import CodexAgent
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.resources import resource

from .kit import EVERYTHING, QUESTIONS, places
from .kit import codex as agent


def test_a_program_that_lets_the_model_type_into_commands_is_said(on_path: Callable[[str, str], str]) -> None:
    caller = {"PATH": on_path("codex", "echo 'codex-cli 0.98.0'"), "OPENAI_API_KEY": "k"}
    says = r"type into running commands, unseen by hooks; npm install -g @openai/codex@0\.17"
    with pytest.raises(MachineError, match=says):
        agent().prepare("local", caller, scripted=True)


def test_harbor_needs_the_name_of_a_model() -> None:
    with pytest.raises(AuthorError, match=r"set models\.skill in eval\.yaml"):
        agent(model=None).prepare("harbor", {"OPENAI_API_KEY": "k"}, scripted=False)


def settings_of(made: CodexAgent) -> dict[str, Any]:
    argv = made.launch(places(sealed=True)).argv
    found: dict[str, Any] = json.loads(argv[argv.index("--settings") + 1])
    return found


@pytest.mark.parametrize(
    ("sealed", "user", "hooks"),
    [
        (True, None, None), (False, None, "/w/.codex/hooks.json"), (False, Path("/u"), "/h/hooks.json"),
    ],
)  # fmt: skip
def test_its_hooks_are_managed_or_given_to_its_own_home(sealed: bool, user: Path | None, hooks: str | None) -> None:
    launch = agent(QUESTIONS).launch(places(sealed, user))
    assert ("--hooks" in launch.argv, "--dangerously-bypass-hook-trust" in launch.argv) == (not sealed, not sealed)
    assert hooks is None or launch.argv[launch.argv.index("--hooks") + 1] == hooks
    home = "/logs/codex" if user is None else "/u/.codex"
    assert (launch.argv[launch.argv.index("--home") + 1], launch.sessions) == (home, Path(home, "sessions"))
    assert f"--mcp-config /m {'--bridge ' if sealed else ''}" in " ".join(launch.argv)
    assert launch.stdin == Path("/i")


def test_model_effort_and_system_prompt_are_the_evals() -> None:
    found = settings_of(agent(effort="low", system_prompt="Be brief."))
    wanted = {"model": "m-1", "model_reasoning_effort": "low", "developer_instructions": "Be brief."}
    assert found.items() >= wanted.items()
    assert found["features"]["unified_exec_tty"] is False


@pytest.mark.parametrize(("handler", "answers"), [(QUESTIONS, True), (EVERYTHING, False)])
def test_questions_work_only_when_a_handler_names_them(handler: Any, answers: bool) -> None:
    assert settings_of(agent(handler))["features"]["default_mode_request_user_input"] is answers


@pytest.mark.parametrize(
    ("made", "search"),
    [
        (agent(QUESTIONS), "live"),
        (agent(EVERYTHING), "disabled"),
        (agent(SimpleNamespace(patterns=("WebFetch",))), "disabled"),
        (agent(deny=("WebSearch",)), "disabled"),
        (agent(network="model"), "disabled"),
    ],
)
def test_the_search_that_no_hook_sees_is_off_where_something_is_said_of_it(made: CodexAgent, search: str) -> None:
    assert settings_of(made)["web_search"] == search


def test_secrets_of_servers_stand_in_a_private_file_and_texts_arrive(tmp_path: Path) -> None:
    """Through the script that starts the program, here another one."""
    odd = 'a "quoted" \\ \t line\nof ünïcödé \x7f\x1f and 😀'
    servers = {
        "my-desk": {"type": "stdio", "command": "c", "args": [odd], "env": {"TOKEN": odd}},
        "far": {"type": "http", "url": "http://x", "headers": {"Authorization": odd}},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    home = tmp_path / "home"
    argv = [sys.executable, "-I", "-S", str(resource("interceptor", "codex_start.py")), "--home", str(home)]
    argv += ["--mcp-config", str(tmp_path / "mcp.json"), "--settings", json.dumps({"told": odd, "a": {"b": [1, True]}})]
    argv += ["/bin/sh", "-c", "echo $CODEX_HOME $0 $1", "-C", "--home"]
    env = {"OPENAI_BASE_URL": "http://here/v1", "CODEX_API_KEY": "k"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(home), "-C", "--home"]
    written = tomllib.loads((home / "config.toml").read_text(encoding="utf-8"))
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert (written["told"], written["a"]) == (odd, {"b": [1, True]})
    assert written["mcp_servers"] == {
        "my-desk": {"command": "c", "args": [odd], "env": {"TOKEN": odd}, "required": True},
        "far": {"url": "http://x", "http_headers": {"Authorization": odd}, "required": True},
    }
    chosen = written["model_providers"][written["model_provider"]]
    assert (chosen["base_url"], chosen["env_key"]) == ("http://here/v1", "CODEX_API_KEY")


def test_a_program_that_is_not_there_is_said_without_a_traceback(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", str(resource("interceptor", "codex_start.py")), "--home", str(tmp_path)]
    done = subprocess.run([*argv, "--settings", "{}", "/nowhere"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("codex cannot be started: ")) == (1, True)


def test_servers_of_a_home_that_is_filled_already_are_put_behind_the_bridge(tmp_path: Path) -> None:
    """As Harbor fills it; how they are started another file says."""
    harbors = """model_provider = "openai"
openai_base_url = "http://here/v1"
[mcp_servers.desk]
command = "as-harbor-has-it"
args = [ "x",]

[mcp_servers.far]
url = "http://far"
[mcp_servers.far.env_http_headers]
Authorization = "FAR_TOKEN"
"""
    (tmp_path / "config.toml").write_text(harbors)
    argv = [sys.executable, "-I", "-S", str(resource("interceptor", "codex_start.py")), "--home", str(tmp_path)]
    argv += ["--adopt", str(tmp_path / "mcp.json"), "/bin/sh", "-c", "echo $CODEX_HOME"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "does not say how to start the MCP server desk" in done.stderr
    assert (tmp_path / "config.toml").read_text() == harbors
    own = {"desk": {"type": "stdio", "command": "sudo", "args": ["serve", "desk"]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": own}))
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}\n"
    written = tomllib.loads((tmp_path / "config.toml").read_text())
    assert (tmp_path / "config.toml").stat().st_mode & 0o077 == 0
    assert (written["model_provider"], written["openai_base_url"]) == ("openai", "http://here/v1")
    desk = written["mcp_servers"]["desk"]
    assert set(desk) == {"url", "http_headers", "required"}
    assert desk["url"].startswith("http://127.0.0.1:")
    assert written["mcp_servers"]["far"] == {"url": "http://far", "env_http_headers": {"Authorization": "FAR_TOKEN"}}
