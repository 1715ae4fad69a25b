"""The bridge between an agent program that knows URLs only and MCP servers that are programs."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from harbor_tasks.resources import resource

SERVER = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "end":
        sys.exit()
    if request.get("method") == "ask":  # the client, which nobody can reach
        print(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "roots/list"}), flush=True)
        asked = request["id"]
    elif "method" in request and "id" in request:
        print("noise", flush=True)
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress"}), flush=True)
        result = {"pid": os.getpid(), "key": os.environ.get("OPENAI_API_KEY")}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
    elif "method" not in request:
        print(json.dumps({"jsonrpc": "2.0", "id": asked, "result": request}), flush=True)
"""
PARENT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import mcp_bridge
print(json.dumps(mcp_bridge.start({"none": ["/nowhere"], "desk": [sys.executable, "-c", sys.argv[2]]})), flush=True)
sys.stdin.read()
"""
INIT = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}


class Client:
    """As much of an agent program as speaks to one server."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.url, self.headers = urlsplit(told["url"]), dict(told["http_headers"])

    def post(self, message: Any, **more: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.url.netloc, timeout=10)
        headers = {**self.headers, **{name.replace("_", "-"): text for name, text in more.items()}}
        connection.request("POST", self.url.path, json.dumps(message), headers)
        answer = connection.getresponse()
        body, session = answer.read(), answer.getheader("mcp-session-id")
        connection.close()
        if session and "mcp-session-id" not in self.headers:
            self.headers["mcp-session-id"] = session
        return answer.status, json.loads(body) if body else None


@pytest.fixture
def parent() -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The agent program, and what it was told."""
    argv = [sys.executable, "-I", "-S", "-c", PARENT, str(resource("interceptor")), SERVER]
    env = {"OPENAI_API_KEY": "k"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process, json.loads(process.stdout.readline())
        process.stdin.close()


def test_requests_get_their_answers_and_each_session_has_its_own_server(parent: Any) -> None:
    first, second = Client(parent[1]["desk"]), Client(parent[1]["desk"])
    status, one = first.post(INIT)
    assert (status, one["id"], one["result"]["key"]) == (200, 0, None)
    assert first.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) == (202, None)
    again = first.post({"jsonrpc": "2.0", "id": "x", "method": "tools/list"})[1]
    assert (again["id"], again["result"]["pid"]) == ("x", one["result"]["pid"])
    assert second.post(INIT)[1]["result"]["pid"] != one["result"]["pid"]


def test_who_has_no_token_gets_nothing(parent: Any) -> None:
    client = Client(parent[1]["desk"])
    for given in ("", "Bearer ", "Bearer x", "Bearer é"):
        client.headers["Authorization"] = given.encode().decode("latin-1")
        assert client.post(INIT) == (401, None)


@pytest.mark.parametrize(
    ("name", "message", "status"),
    [("none", INIT, 500), ("desk", [INIT], 400), ("desk", {**INIT, "method": "tools/list"}, 404)],
)
def test_what_cannot_be_done_is_refused(parent: Any, name: str, message: Any, status: int) -> None:
    assert Client(parent[1][name]).post(message) == (status, None)


def test_a_request_of_the_servers_own_is_refused_so_that_it_does_not_wait(parent: Any) -> None:
    client = Client(parent[1]["desk"])
    client.post(INIT)
    refused = client.post({"jsonrpc": "2.0", "id": 1, "method": "ask"})[1]["result"]
    assert (refused["id"], refused["error"]["code"]) == (7, -32601)


def test_nobody_waits_for_a_server_that_has_ended(parent: Any) -> None:
    client = Client(parent[1]["desk"])
    client.post(INIT)
    for number in (1, 2):
        said = client.post({"jsonrpc": "2.0", "id": number, "method": "end"})[1]
        assert said["error"]["message"] == "the server has ended"


def test_it_ends_with_the_agent_program(parent: Any) -> None:
    process, told = parent
    client = Client(told["desk"])
    client.post(INIT)
    process.stdin.close()
    process.wait(10)
    until = time.monotonic() + 10
    with pytest.raises(OSError):  # it may take a moment
        while time.monotonic() < until:
            client.post(INIT)
            time.sleep(0.1)
