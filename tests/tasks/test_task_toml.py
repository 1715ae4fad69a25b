"""task.toml: what an eval's keys become in Harbor's schema, and that every text survives."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.tasks.plan import TaskName
from harbor_tasks.tasks.task_toml import TOOL, TaskToml

if TYPE_CHECKING:
    from tests.tasks.conftest import Author

HARD = "tri \"\"\" ''' back\\ slash \\( jq \\n tab\t del\x7f \x00 \u2028 \ud7ff 😀 end\\".replace("\x00", "")


def toml(author: Author, **keys: Any) -> dict[str, Any]:
    author.eval(**keys)
    author.case("c1")
    author.build()
    return tomllib.loads(author.text("task.toml"))


def test_texts_of_the_eval_and_the_case_id_survive(author: Author) -> None:
    author.eval(name="dq\"uo'te", description=HARD, version="1.10")
    author.case('it\'s "q" $HOME \\ [x]')
    author.build()
    (task,) = [path for path in author.out.iterdir() if not path.name.startswith(".")]
    data = tomllib.loads(author.text("task.toml", task.name))
    assert data["task"] == {"name": f"dq-uo-te/{task.name}", "description": HARD, "version": "1.10"}
    assert data["metadata"] == {"case_id": 'it\'s "q" $HOME \\ [x]', "eval": "dq\"uo'te", "tool": TOOL}
    assert data["schema_version"] == "1.4"


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(description: str, case_id: str) -> None:
    shared = TaskToml.of({"schema_version": "1.4"}, {"description": description}, {"eval": description}, {"agent": {}})
    name = TaskName(case_id, "d", "org/d")
    assert tomllib.loads(shared.text(name)) == shared.data(name)
    assert "\r" not in shared.text(name)


def test_limits_and_places_stand_where_harbor_looks(author: Author) -> None:
    sandbox = {"cpus": 2, "memory_mb": 512, "workdir": "/srv/work", "network": "none"}
    data = toml(author, execution={"prompt": "x", "timeout": 77}, sandbox=sandbox)
    environment = data["environment"]
    assert data["agent"] == {"timeout_sec": 77.0, "user": "agent"}
    assert data["verifier"]["user"] == "root"
    assert {key: environment[key] for key in ("cpus", "memory_mb", "workdir", "network_mode")} == {
        "cpus": 2, "memory_mb": 512, "workdir": "/srv/work", "network_mode": "no-network",
    }  # fmt: skip
    assert "sh /srv/work/setup" in environment["healthcheck"]["command"]
    assert "workspace=${1:-/srv/work}" in author.text("environment/setup")


def test_a_sandbox_that_is_not_sealed_has_no_users_of_ours(author: Author) -> None:
    ask = {"tools": [{"match": "AskUserQuestion"}]}
    data = toml(author, sandbox={"image": "some/image:1", "sealed": False}, inputs=ask)
    assert "agent" not in data
    assert "user" not in data["verifier"]
    assert "env" not in data["environment"]


def test_the_key_of_the_hooks_model_is_asked_for_only_where_questions_are_answered(author: Author) -> None:
    names = {"HARBOR_PACK_MODEL_BASE_URL": "${ANTHROPIC_BASE_URL:-}", "HARBOR_PACK_MODEL_KEY": "${ANTHROPIC_API_KEY:-}"}
    asked = toml(author, inputs={"tools": [{"match": "AskUserQuestion"}]})
    assert asked["environment"]["env"] == names
    other = toml(author, inputs={"tools": [{"match": "WebFetch"}]})
    assert "env" not in other["environment"]


def test_the_network_for_the_model_alone_is_an_allowlist(author: Author) -> None:
    ask = {"tools": [{"match": "AskUserQuestion"}]}
    data = toml(author, sandbox={"network": "model"}, runner={"type": "codex"}, inputs=ask)
    assert data["environment"]["network_mode"] == "allowlist"
    assert data["environment"]["allowed_hosts"] == ["api.anthropic.com", "api.openai.com"]


def test_references_are_written_and_never_their_values(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOK", "hunter2-in-the-environment")
    env = {"TOK": "$TOK", "B": "${TOK}", "C": "${GONE:-a b}", "D": "plain $x"}
    data = toml(author, execution={"prompt": "x", "env": env})
    assert data["environment"]["env"] == {"TOK": "${TOK}", "B": "${TOK}", "C": "${GONE:-a b}", "D": "plain $x"}
    assert author.json("environment/.claude/settings.json") == {"env": {"D": "plain $x"}}
    for path in author.out.rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes()


def test_a_literal_that_harbor_would_take_for_a_reference_is_an_error(author: Author) -> None:
    author.eval(execution={"prompt": "x", "env": {"A": "${a b:-x} y}"}})
    author.case("c1")
    assert "execution.env.A" in author.refused()[0]


def test_judges_that_may_take_long_get_the_time(author: Author) -> None:
    judges = [{"name": f"j{number}", "check": "return True", "timeout": 400} for number in range(3)]
    assert toml(author, judges=judges)["verifier"]["timeout_sec"] == 1260.0


class TestServers:
    def test_commands_and_urls_become_servers(self, author: Author) -> None:
        servers = [
            {"name": "a", "command": "npx", "args": ["-y", "server"]},
            {"name": "b", "url": "https://mcp.example/v1", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            {"name": "c", "url": "https://mcp.example/sse"},
        ]
        assert toml(author, mcp_servers=servers)["environment"]["mcp_servers"] == [
            {"name": "a", "transport": "stdio", "command": "npx", "args": ["-y", "server"]},
            {"name": "b", "transport": "streamable-http", "url": "https://mcp.example/v1",
             "headers": {"Authorization": "Bearer ${TOKEN}"}},
            {"name": "c", "transport": "sse", "url": "https://mcp.example/sse"},
        ]  # fmt: skip

    def test_variables_of_a_server_reach_it(self, author: Author) -> None:
        env = {"MODE": "a b", "KEY": "$KEY"}
        data = toml(author, mcp_servers=[{"name": "a", "command": "srv", "args": ["x"], "env": env}])
        (server,) = data["environment"]["mcp_servers"]
        assert (server["command"], server["args"]) == ("env", ["MODE=a b", "srv", "x"])
        assert data["environment"]["env"] == {"KEY": "${KEY}"}

    def test_one_name_with_two_values_is_warned_of(self, author: Author) -> None:
        author.eval(
            execution={"prompt": "x", "env": {"KEY": "$KEY"}},
            mcp_servers=[{"name": "a", "command": "srv", "env": {"KEY": "${OTHER}"}}],
        )
        author.case("c1")
        assert any("another value of KEY" in said for said in author.warned())

    def test_a_secret_in_a_header_is_refused(self, author: Author) -> None:
        author.eval(mcp_servers=[{"name": "a", "url": "https://x.example", "headers": {"X-Api-Key": "abcdefgh1234"}}])
        author.case("c1")
        said = author.refused()
        assert any("X-Api-Key" in one for one in said)
        assert not any("abcdefgh1234" in one for one in said)


JUDGE = {"name": "quality", "prompt": "Rate {{ outputs }}."}
KEYS = {
    "HARBOR_PACK_JUDGE_BASE_URL": "${ANTHROPIC_BASE_URL:-}", "HARBOR_PACK_JUDGE_KEY": "${ANTHROPIC_API_KEY:-}",
    "HARBOR_PACK_JUDGE_TOKEN": "${ANTHROPIC_AUTH_TOKEN:-}",
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "given"),
    [
        ({}, KEYS),
        ({"judges": [{"name": "j", "check": "return True"}]}, None),
        ({"sandbox": {"sealed": False}}, None),
        ({"sandbox": {"network": "none"}, "judges": [JUDGE]}, None),
        ({"sandbox": {"network": "model"}}, KEYS),
        ({"sandbox": {"network": "model"}, "runner": {"type": "codex"}}, None),
    ],
    ids=["a model judge", "no model judge", "not sealed", "no network", "network: model", "another model's network"],
)
def test_the_verifier_gets_a_key_only_where_a_model_judge_can_use_it(author: Author, keys: Any, given: Any) -> None:
    data = toml(author, **{"judges": [JUDGE], **keys})
    assert data["verifier"].get("env") == given
    assert "JUDGE" not in str(data["environment"])


def test_each_step_has_the_variables_of_the_verifier(author: Author) -> None:
    steps = [{"id": "a", "prompt": "p"}, {"id": "b", "prompt": "q"}]
    data = toml(author, execution={"steps": steps}, judges=[JUDGE])
    assert [step["verifier"]["env"] for step in data["steps"]] == [KEYS, KEYS]
