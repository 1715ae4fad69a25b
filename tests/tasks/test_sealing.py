"""What a build writes into `setup` for the seal: data for sudo, the agent program and the launchers."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.policy.handlers import handlers_of
from harbor_tasks.tasks.sealing import Seal, seal_of

if TYPE_CHECKING:
    from tests.tasks.conftest import Author

HOOK = (
    "/usr/bin/python3 -I -S -E /opt/harbor-pack/hooks/tools.py --sealed --log /var/log/harbor-pack/interceptions.jsonl"
)


def seal(author: Author, **keys: Any) -> Seal:
    """The seal of the eval with these keys."""
    author.case("c1")
    ev = author.load(**keys)
    return seal_of(ev, handlers_of(ev, Problems()), ev.spec.mcp_servers)


def kept(sealed: Seal, user: str) -> set[str]:
    """The variables that sudo lets through to a user."""
    return set(re.findall(rf'^Defaults>{user} env_keep \+= "(\w+)"$', sealed.sudoers, re.MULTILINE))


def handlers(author: Author, text: str) -> None:
    """A tool_handlers.yaml of the author's."""
    author.write("tool_handlers.yaml", text)


def test_managed_settings_hold_the_only_hooks_the_permissions_and_the_variables(author: Author) -> None:
    sealed = seal(
        author, inputs={"tools": [{"match": "WebFetch"}]}, permissions={"deny": ["WebSearch"]},
        execution={"prompt": "x", "env": {"A": "1", "B": "$B"}},
    )  # fmt: skip
    managed = json.loads(sealed.managed)
    assert managed["allowManagedHooksOnly"] is managed["disableWorkflows"] is True
    assert managed["permissions"]["deny"][0] == "WebSearch"
    assert managed["env"]["A"] == "1"
    assert "B" not in managed["env"]
    (group,) = managed["hooks"]["PreToolUse"]
    (hook,) = group["hooks"]
    assert hook["command"] == sealed.registered
    assert hook["command"].startswith(f"/usr/bin/sudo -n -u interceptor {HOOK} || {{ echo ")
    assert hook["command"].endswith(" >&2; exit 2; }")
    assert "\n" not in sealed.managed


def test_only_the_handlers_own_tools_are_covered(author: Author) -> None:
    """What protects a policy within reach has nothing to do where it is out of reach."""
    managed = json.loads(seal(author, inputs={"tools": [{"match": "WebFetch"}]}).managed)
    assert managed["hooks"]["PreToolUse"][0]["matcher"] == "WebFetch"


def test_variables_that_would_undo_the_seal_are_pinned(author: Author) -> None:
    """As settings of a project may bring them; the eval's own are refused where eval.yaml is read."""
    env = json.loads(seal(author).managed)["env"]
    assert env["CLAUDE_CODE_SHELL_PREFIX"] == "/usr/local/lib/harbor-pack/prefix"
    assert env["LD_PRELOAD"] == env["BASH_ENV"] == ""


def test_what_is_the_agent_programs_own_is_closed_to_its_tools(author: Author) -> None:
    """They work as the agent's user: its transcript, its start-up files, its variables by /proc."""
    deny = json.loads(seal(author).managed)["permissions"]["deny"]
    assert {"Edit(//logs/**)", "Edit(//home/agent/**)", "Read(//proc/self/**)"} <= set(deny)


def test_nothing_is_registered_where_nothing_is_intercepted(author: Author) -> None:
    sealed = seal(author)
    assert sealed.registered is None
    assert "hooks" not in json.loads(sealed.managed)


def test_sudo_lets_the_agent_start_the_hook_by_one_command_and_the_worker_nothing(author: Author) -> None:
    lines = seal(author, inputs={"tools": [{"match": "WebFetch"}]}).sudoers.splitlines()
    rules = [line for line in lines if not line.startswith("Defaults")]
    assert rules == [f"agent ALL=(interceptor) NOPASSWD: {HOOK}", "agent ALL=(worker) NOPASSWD: ALL"]


def test_a_step_is_begun_as_root_by_its_own_command(author: Author) -> None:
    steps = [{"id": "plan", "prompt": "p", "env": {"A": "1"}}, {"id": "write", "prompt": "w"}]
    sealed = seal(author, execution={"steps": steps})
    assert "agent ALL=(root) NOPASSWD: /bin/sh /opt/harbor-pack/setup --step plan" in sealed.sudoers.splitlines()
    assert json.loads(sealed.steps["plan"])["env"]["A"] == "1"
    assert "A" not in json.loads(sealed.steps["write"])["env"]


def test_each_user_gets_the_variables_that_are_meant_for_it(author: Author) -> None:
    handlers(
        author,
        """
handlers:
- {match: m, patterns: [WebFetch], env_checks: {JIRA_SERVER: {equals: x}, LD_PRELOAD: {equals: x}}}
""",
    )
    env = {"MODE": "fast", "TOKEN_OF_TRACKER": "$T", "ANTHROPIC_API_KEY": "$K", "OPENAI_API_KEY": "$O"}
    sealed = seal(author, execution={"steps": [{"id": "a", "prompt": "x", "env": {"STEP": "1"}}], "env": env})
    assert kept(sealed, "interceptor") == {"JIRA_SERVER"}
    assert kept(sealed, "worker") == {"MODE", "TOKEN_OF_TRACKER", "STEP"}


@pytest.mark.parametrize(
    ("pattern", "offered"), [("AskUserQuestion", True), ("Task", False), ('"*"', False)], ids=["named", "other", "glob"]
)
def test_questions_are_offered_only_where_a_handler_answers_them(author: Author, pattern: str, offered: bool) -> None:
    handlers(author, f"handlers: [{{match: m, patterns: [{pattern}], prompt: p}}]\n")
    sealed = seal(author, runner={"permission_mode": "dontAsk"})
    assert sealed.agent_env.splitlines() == (["questions=yes"] if offered else []) + ["permission_mode=dontAsk"]


def test_codex_has_managed_hooks_of_its_own(author: Author) -> None:
    sealed = seal(author, runner={"type": "codex"}, inputs={"tools": [{"match": "AskUserQuestion"}]})
    assert sealed.codex_hooks is not None
    hooks = json.loads(sealed.codex_hooks)["hooks"]
    assert set(hooks) == {"PreToolUse", "PostToolUse"}
    assert {hook["command"] for groups in hooks.values() for group in groups for hook in group["hooks"]} == {
        sealed.registered
    }
    assert seal(author, runner={"type": "claude-code"}).codex_hooks is None


@pytest.mark.engine
def test_sudo_takes_the_rules(author: Author, engine: str, base_image: str) -> None:
    handlers(author, "handlers: [{match: m, patterns: [WebFetch], env_checks: {J: {equals: x}}}]\n")
    steps = [{"id": "_a-B9", "prompt": "x", "env": {"S": "1"}}]
    sealed = seal(author, execution={"steps": steps, "env": {"A": "1"}})
    check = "useradd agent; useradd worker; useradd interceptor; cat >/rules; chmod 440 /rules; visudo -scf /rules"
    done = subprocess.run(
        [engine, "run", "--rm", "-i", "--network", "none", base_image, "sh", "-c", check],
        input=sealed.sudoers + "\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
