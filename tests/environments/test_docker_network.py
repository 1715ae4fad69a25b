"""What can be reached from a sandbox: with `network: model` the endpoint and nothing else, shown before the agent."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harbor_tasks.environments import docker
from harbor_tasks.environments.base import Stop
from harbor_tasks.environments.docker_container import Access, Container, Recipe
from harbor_tasks.environments.docker_proxy import (
    Endpoint,
    endpoints_of,
    model_access,
    proxy_config,
    proxy_image,
    through_proxy,
)
from harbor_tasks.environments.engine import find_engine
from harbor_tasks.environments.evidence import calls_of
from harbor_tasks.errors import MachineError
from harbor_tasks.evalspec.schema import Sandbox
from harbor_tasks.tasks.manifest import BuildManifest

from .kit import DEPLOY, HookModel

REACH = """
for where in 1.1.1.1:443 GATEWAY:PORT model.harbor-pack.internal:22; do
  python3 -c 'import socket, sys; a, p = sys.argv[1].rsplit(":", 1); socket.create_connection((a, int(p)), 2)' $where \
    2>/dev/null && echo "$where open" || echo "$where shut"
done
getent hosts example.com || echo "no names"
echo yes > done.txt
"""


def manifest(runner: str = "claude-code", handlers: tuple[str, ...] = ()) -> BuildManifest:
    """As much of one as the endpoints depend on."""
    return cast(BuildManifest, SimpleNamespace(runner=SimpleNamespace(type=runner), handlers=handlers))


def places(*args: Any, **caller: str) -> list[tuple[str, str, int, bool]]:
    return [(one.name, one.host, one.port, one.tls) for one in endpoints_of(manifest(*args), caller)]


def test_the_endpoints_are_those_of_the_agent_and_of_the_hook() -> None:
    assert places() == [("api.anthropic.com", "api.anthropic.com", 443, True)]
    assert [name for name, *_ in places("codex", ("questions",))] == ["api.anthropic.com", "api.openai.com"]
    assert places(ANTHROPIC_BASE_URL="http://gate.lan:8080/v1") == [("gate.lan", "gate.lan", 8080, False)]


def test_an_address_gets_a_name_that_the_containers_use_in_its_place() -> None:
    caller = {"ANTHROPIC_BASE_URL": "http://10.1.2.3:8080/team", "OTHER": "x"}
    found = endpoints_of(manifest(), caller)
    assert [(one.name, one.host, one.port) for one in found] == [("model.harbor-pack.internal", "10.1.2.3", 8080)]
    assert through_proxy(caller, found) == {
        "ANTHROPIC_BASE_URL": "http://model.harbor-pack.internal:8080/team", "OTHER": "x",
    }  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8080",
        "http://127.0.0.1",
        "https://10.1.2.3",
        "ftp://gate.lan",
        "gate.lan",
        "http://[::1]",
    ],
)
def test_an_endpoint_that_no_container_could_reach_is_said(url: str) -> None:
    with pytest.raises(MachineError, match="ANTHROPIC_BASE_URL"):
        places(ANTHROPIC_BASE_URL=url)


def test_two_endpoints_on_one_port_must_both_speak_tls() -> None:
    with pytest.raises(MachineError, match="port 443"):
        places("codex", ("questions",), OPENAI_BASE_URL="http://gate.lan:443")


@pytest.mark.engine
def test_with_network_model_the_hook_reaches_its_model_and_the_agent_nothing_else(
    engine_author: Callable[[], Any], gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-key")
    author = engine_author()
    author.spec["sandbox"] = {"network": "model"}
    author.handlers({"match": "Questions", "patterns": ["AskUserQuestion"]})
    with HookModel("0.0.0.0") as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://{gateway}:{model.server_port}")
        reach = REACH.replace("GATEWAY", gateway).replace("PORT", str(model.server_port))
        calls = [
            {"tool": "AskUserQuestion", "input": {"questions": [DEPLOY]}},
            {"tool": "Bash", "input": {"command": reach}},
        ]
        author.case(replay=calls)
        ran = author.run("replay", environment="docker")
    assert (ran.trial.status, ran.trial.reward, ran.trial.error) == ("scored", 1, None)
    assert (ran.trial.calls.answered, ran.trial.calls.guessed) == (1, 0)
    assert '=\\"Production' in ran.kept("transcript.jsonl")
    [_answer, reached] = [call.result for call in calls_of(ran.trial_folder / "transcript.jsonl")]
    assert [line.split()[-1] for line in str(reached).splitlines()] == ["shut", "shut", "shut", "names"]
    assert ran.trial.duration_s < 30  # a name that nobody knows is no wait
    for kind in (["ps", "-aq"], ["network", "ls", "-q"]):
        asked = ["docker", *kind, "--filter", f"label=harbor-pack.job={ran.job.id}"]
        assert subprocess.run(asked, capture_output=True, check=True).stdout == b""


class Listener(threading.Thread):
    """Takes connections and keeps what is sent first on each."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_server(("0.0.0.0", 0))
        self.port: int = self.socket.getsockname()[1]
        self.heard: list[bytes] = []
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                self.heard.append(connection.recv(4096))

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.join()


HELLO = """
import socket, ssl, sys
port = int(sys.argv[1])
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for name in ("elsewhere.test", None, "api.model.test"):
    try:
        with socket.create_connection(("api.model.test", port), 10) as plain:
            context.wrap_socket(plain, server_hostname=name)
    except (OSError, ValueError) as error:
        print(name, type(error).__name__)
"""


@pytest.mark.engine
def test_the_proxy_passes_on_only_what_is_for_the_endpoints_own_name(
    base_image: str, gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARBOR_PACK_BASE", base_image)
    listener = Listener()
    endpoint = Endpoint("ANTHROPIC_BASE_URL", "api.model.test", gateway, listener.port, tls=True)
    labels = {"harbor-pack": "1", "harbor-pack.job": "proxy-test"}
    with find_engine() as engine:
        image = proxy_image(engine, lambda _line: None)
        with model_access(engine, image, (endpoint,), "proxy-test", labels) as access:
            container = Container(Recipe(engine, base_image, Sandbox(sealed=False), labels, access), "proxytest")
            said = bytearray()
            try:
                container.create()
                container.start(Stop())
                argv = ("python3", "-c", HELLO, str(listener.port))
                container.line.run(argv, out=said.extend, err=said.extend, timeout=60)
            finally:
                container.remove()
        engine.client.api.remove_network(access.network)
    listener.close()
    assert len(listener.heard) == 1, said.decode()
    assert b"api.model.test" in listener.heard[0]


def test_names_are_looked_up_by_the_proxy_again_and_again_and_addresses_not() -> None:
    found = proxy_config((Endpoint("A", "api.model.test", "api.model.test", 443, tls=True),))
    assert "server model api.model.test:443 resolvers engine" in found
    found = proxy_config((Endpoint("A", "model.harbor-pack.internal", "fd00::1", 80, tls=False),))
    assert "server model [fd00::1]:80\n" in found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An engine that does not do what it is asked for: its containers have a network all the same."""
    monkeypatch.setattr(docker, "Access", lambda kind, _network: Access(kind, "bridge"))
    yield


@pytest.mark.engine
@pytest.mark.usefixtures("opened")
def test_an_open_network_is_found_before_the_agent_starts(engine_author: Callable[[], Any], base_image: str) -> None:
    author = engine_author()
    author.spec["sandbox"] = {"network": "none", "image": base_image, "sealed": False}
    author.case(solve="true")
    trial = author.run("oracle", environment="docker").trial
    assert trial.error is not None
    assert (trial.status, trial.error.kind, trial.reward) == ("error", "environment", None)
    assert "sandbox.network: none, but from inside there is a" in trial.error.message
