"""Which engine is taken, and what is said when none answers: engines of our own on sockets of our own."""

from __future__ import annotations

import hashlib
import json
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.engine import DEFAULT_ENDPOINT, find_endpoint, find_engine
from harbor_tasks.errors import MachineError


class Answer(BaseHTTPRequestHandler):
    """An engine that knows its version and nothing else."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        data = {"Version": self.server.named, "ApiVersion": "1.41", "MinAPIVersion": "1.12"}  # type: ignore[attr-defined]
        body = json.dumps({"Name": "here"} if self.path.endswith("/info") else data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "local"

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    named = ""


@pytest.fixture
def here() -> Iterator[Path]:
    """A folder with a short name: the path of a socket may have 107 bytes only."""
    with tempfile.TemporaryDirectory(prefix="hp") as folder:
        yield Path(folder)


@pytest.fixture
def serve(here: Path) -> Iterator[Callable[[str], str]]:
    """Starts an engine of that name; returns its address."""
    servers: list[Server] = []

    def start(name: str, path: Path | None = None) -> str:
        place = path or here / f"{name}.sock"
        place.parent.mkdir(parents=True, exist_ok=True)
        server = Server(str(place), Answer)
        server.named = name
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        return f"unix://{place}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def config(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Docker configuration of our own, and none of the caller's variables."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(here / "docker"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(here / "run"))
    (here / "docker").mkdir()
    return here / "docker"


def context_folder(config: Path, kind: str, name: str) -> Path:
    folder = config / "contexts" / kind / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    return folder


def add_context(config: Path, name: str, address: str, *, current: bool = False) -> None:
    """What `docker context create` (and `use`) writes."""
    meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": address, "SkipTLSVerify": False}}}
    (context_folder(config, "meta", name) / "meta.json").write_text(json.dumps(meta))
    if current:
        (config / "config.json").write_text(json.dumps({"currentContext": name, "credsStore": "not-there"}))


def taken(host: str | None = None) -> tuple[str, str]:
    """The engine that answered, and what named it."""
    with find_engine(host) as engine:
        return engine.version, engine.endpoint.source


def test_the_first_of_option_variables_and_contexts_that_is_set_is_taken(
    serve: Callable[[str], str], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option, host, named, current = (serve(name) for name in ("option", "host", "named", "current"))
    add_context(config, "named", named)
    add_context(config, "current", current, current=True)
    assert taken() == ("current", "context 'current' (the current context)")
    monkeypatch.setenv("DOCKER_CONTEXT", "named")
    assert taken() == ("named", "context 'named' (DOCKER_CONTEXT)")
    monkeypatch.setenv("DOCKER_HOST", host)
    assert taken() == ("host", "DOCKER_HOST")
    assert taken(option) == ("option", "--host")


def test_without_any_of_them_it_is_the_default_socket(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_endpoint().address == DEFAULT_ENDPOINT
    (config / "config.json").write_text('{"auths": {}}')
    assert find_endpoint().source == "the default socket"
    add_context(config, "lab", "unix:///nowhere", current=True)
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    assert find_endpoint().address == DEFAULT_ENDPOINT


@pytest.mark.parametrize("by", ["DOCKER_CONTEXT", "the current context"])
def test_a_context_that_does_not_exist_is_an_error_and_no_way_to_another_engine(
    by: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "DOCKER_CONTEXT":
        monkeypatch.setenv("DOCKER_CONTEXT", "lba")
    else:
        (config / "config.json").write_text('{"currentContext": "lba"}')
    with pytest.raises(MachineError, match=rf"context 'lba' \({by}\) does not exist.*docker context ls"):
        find_engine()


@pytest.mark.parametrize("content", ["{", "[]", "\udcff"])
def test_a_configuration_that_cannot_be_read_is_an_error(
    content: str, config: Path, serve: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (config / "config.json").write_text(content, errors="surrogateescape")
    with pytest.raises(MachineError, match=r"config\.json: .*DOCKER_HOST"):
        find_engine()
    monkeypatch.setenv("DOCKER_HOST", serve("host"))
    if content == "[]":
        with pytest.raises(MachineError, match=r"config\.json: the Docker SDK cannot use it"):
            find_engine()
    else:
        assert taken() == ("host", "DOCKER_HOST")


@pytest.mark.parametrize("auths", ["[1]", '{"x": 1}', '{"x": {"auth": 5}}', '{"x": {"auth": "bm8="}}'])
def test_credentials_that_the_sdk_cannot_use_are_not_said_to_be_a_missing_engine(
    auths: str, config: Path, serve: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", serve("host"))
    (config / "config.json").write_text(f'{{"auths": {auths}}}')
    with pytest.raises(MachineError, match=r"config\.json: the Docker SDK cannot use it"):
        find_engine()


@pytest.mark.parametrize("meta", ["{}", "nonsense", '{"Endpoints": {"docker": {"Host": ""}}}', '{"Endpoints": []}'])
def test_a_context_that_names_no_engine_is_an_error(meta: str, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (context_folder(config, "meta", "odd") / "meta.json").write_text(meta)
    monkeypatch.setenv("DOCKER_CONTEXT", "odd")
    with pytest.raises(MachineError, match=r"'odd'.*names no engine"):
        find_engine()


def test_when_nobody_answers_the_message_names_what_was_tried_and_where_an_engine_may_be(
    here: Path, config: Path, serve: Callable[..., str]
) -> None:
    add_context(config, "lab", f"unix://{here}/lab/docker.sock", current=True)
    with pytest.raises(MachineError) as nobody:
        find_engine()
    said = str(nobody.value)
    assert f"unix://{here}/lab/docker.sock (from context 'lab' (the current context))" in said
    assert "No such file" in said
    assert f"rootless Podman would be at unix://{here}/run/podman/podman.sock" in said
    assert "engine.sh start" in said
    assert "\n" not in said
    serve("podman", here / "run/podman/podman.sock")
    with pytest.raises(MachineError, match=rf"DOCKER_HOST=unix://{here}/run/podman/podman\.sock takes it"):
        find_engine()


def test_a_socket_that_is_there_but_dead_says_so(here: Path) -> None:
    with socketserver.UnixStreamServer(str(here / "dead.sock"), Answer):
        pass
    with pytest.raises(MachineError, match="Connection refused"):
        find_engine(f"unix://{here}/dead.sock")


@pytest.mark.parametrize("host", ["nonsense", "unix://", "tcp://127.0.0.1:1", "ssh://nobody@127.0.0.1"])
def test_an_address_that_leads_nowhere_is_one_line(host: str) -> None:
    with pytest.raises(MachineError, match=r"no container engine answers at .* \(from --host\)") as nobody:
        find_engine(host)
    assert "\n" not in str(nobody.value)


def test_the_certificates_of_a_context_and_of_the_environment_are_found(
    config: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_context(config, "far", "tcp://engine.example.test:2376", current=True)
    tls = context_folder(config, "tls", "far") / "docker"
    tls.mkdir()
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tls / name).write_text("x")
    found = find_endpoint().tls
    assert found is not None
    assert (found.ca, found.cert, found.key, found.verify) == (tls / "ca.pem", tls / "cert.pem", tls / "key.pem", True)
    monkeypatch.setenv("DOCKER_HOST", "tcp://other.example.test:2376")
    assert find_endpoint().tls is None
    (here / "own").mkdir()
    (here / "own/ca.pem").write_text("x")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(here / "own"))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    found = find_endpoint().tls
    assert found is not None
    assert (found.ca, found.cert, found.verify) == (here / "own/ca.pem", None, True)


def test_the_docker_command_is_led_to_the_same_engine(
    serve: Callable[[str], str], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_context(config, "lab", serve("lab"), current=True)
    with find_engine() as engine:
        assert engine.environ["DOCKER_CONTEXT"] == "lab"
        assert "DOCKER_HOST" not in engine.environ
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    address = serve("option")
    with find_engine(address) as engine:
        assert engine.environ["DOCKER_HOST"] == address
        assert "DOCKER_CONTEXT" not in engine.environ


@pytest.mark.engine
def test_the_machines_own_engine_is_found_and_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with find_engine() as engine:
        assert engine.version
        assert engine.info["OSType"] == "linux"
