"""Registries for tests: the real program in its three forms, and one in memory that can be made to misbehave."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

USER, PASSWORD = "tester", "only-for-tests"
_HTPASSWD = f"{USER}:$2b$04$abcdefghijklmnopqrstuuSOASZ5gFdIXxQU/MI4albXfVKBHc6R2\n"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@dataclass(frozen=True)
class Certificate:
    """A certificate for this machine's loopback addresses, which is its own authority."""

    cert: Path
    key: Path


def make_certificate(folder: Path, *names: str) -> Certificate:
    """One made with openssl."""
    made = Certificate(folder / "ca.crt", folder / "tls.key")
    alternatives = ",".join(["DNS:localhost", "IP:127.0.0.1", *names])
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=registry for tests",
         "-addext", f"subjectAltName={alternatives}", "-addext", "keyUsage=critical,digitalSignature,keyCertSign",
         "-keyout", str(made.key), "-out", str(made.cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


@contextmanager
def docker_registry(
    folder: Path, *, htpasswd: bool = False, tls: Certificate | None = None, auth: Mapping[str, Any] | None = None,
    address: str = "127.0.0.1",
) -> Iterator[str]:  # fmt: skip
    """The real program on a port that it takes itself; its host and port."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "version": 0.1, "log": {"level": "info", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"{address}:0", "secret": secrets.token_hex(8)},
    }  # fmt: skip
    if tls is not None:
        config["http"]["tls"] = {"certificate": str(tls.cert), "key": str(tls.key)}
    if htpasswd:
        (folder / "htpasswd").write_text(_HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    if auth is not None:
        config["auth"] = dict(auth)
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    program = shutil.which("docker-registry") or "docker-registry"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        yield f"{address}:{_port_of(process, folder / 'log')}"
    finally:
        process.kill()
        process.wait()


def _port_of(process: subprocess.Popen[bytes], log: Path) -> int:
    """Where it says that it listens, once it does."""
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        found = re.search(r"listening on \S*:(\d+)", log.read_text())
        if found is not None:
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError(f"docker-registry does not start: {log.read_text()}")


def docker_config(folder: Path, data: Mapping[str, Any]) -> Path:
    """A folder for DOCKER_CONFIG."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(data))
    return folder


def logged_in(host: str, auth: str = BASIC) -> dict[str, Any]:
    """What `docker login` leaves in config.json."""
    return {"auths": {host: {"auth": auth}}}


def credential_helper(folder: Path, name: str, script: str) -> None:
    """A credential helper in a folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"docker-credential-{name}"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


# ---- tokens ----


def _segment(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Tokens:
    """A token server that a real registry trusts; ``granted`` says what of an asked action it gives."""

    key: Certificate
    service: str = "tests"
    granted: Callable[[str], bool] = lambda action: True
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Scope and headers (and form, of a POST) of each request."""

    def token(self, scope: str) -> str:
        access = []
        if scope:
            kind, name, actions = scope.split(":")
            access = [{"type": kind, "name": name, "actions": [a for a in actions.split(",") if self.granted(a)]}]
        lines = self.key.cert.read_text().splitlines()
        head = {"typ": "JWT", "alg": "RS256", "x5c": ["".join(line for line in lines if "-----" not in line)]}
        now = int(time.time())
        claims = {
            "iss": "tests", "aud": self.service, "sub": USER, "exp": now + 300, "nbf": now - 10, "iat": now,
            "jti": secrets.token_hex(8), "access": access,
        }  # fmt: skip
        text = ".".join(_segment(json.dumps(part).encode()) for part in (head, claims))
        signed = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(self.key.key)],
            input=text.encode(), capture_output=True, check=True,
        )  # fmt: skip
        return f"{text}.{_segment(signed.stdout)}"

    def answer(self, handler: Handler) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
        if handler.command == "POST":
            query = {name: values[0] for name, values in parse_qs(handler.body().decode()).items()}
        self.asked.append((query.get("scope", ""), dict(handler.headers) | query))
        basic = handler.headers.get("Authorization")
        if basic not in {None, f"Basic {BASIC}"}:
            handler.reply(401, b'{"details": "incorrect username or password"}')
            return
        handler.reply(200, json.dumps({"token": self.token(query.get("scope", ""))}).encode())


# ---- a registry in memory ----


class Handler(BaseHTTPRequestHandler):
    """What answers one request."""

    protocol_version = "HTTP/1.1"
    answer: Callable[[Handler], None]

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status: int, data: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        given = {"Content-Length": str(len(data)), **(headers or {})}
        self.send_response(status)
        for name, value in given.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        try:
            type(self).answer(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815 - the names are the methods'

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(answer: Callable[[Handler], None], tls: Certificate | None = None) -> Iterator[str]:
    """A server on loopback; its host and port."""
    kind = type("Answering", (Handler,), {"answer": staticmethod(answer)})
    with _Server(("127.0.0.1", 0), kind) as server:
        if tls is not None:
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.cert, tls.key)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_args: Any) -> None:
        """A client that goes away is what some tests are about."""


@dataclass
class MemoryRegistry:
    """Speaks the distribution API for one repository. ``spoil`` may answer a request in its place (True)."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    spoil: Callable[[Handler], bool] = lambda _handler: False
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and headers of each request."""

    def answer(self, handler: Handler) -> None:
        self.seen.append((handler.command, handler.path, dict(handler.headers)))
        if self.spoil(handler):
            return
        path, _, query = handler.path.partition("?")
        kind, _, name = path.rpartition("/")
        if path == "/v2/":
            handler.reply(200, b"{}")
        elif handler.command == "POST":
            handler.reply(202, headers={"Location": f"/v2/x/blobs/uploads/{secrets.token_hex(4)}?state=a"})
        elif handler.command == "PUT" and "/uploads/" in path:
            digest, data = parse_qs(query)["digest"][0], handler.body()
            assert digest == digest_of(data)
            self.blobs[digest] = data
            handler.reply(201)
        elif handler.command == "PUT":
            data = handler.body()
            self.manifests[name] = self.manifests[digest_of(data)] = data
            handler.reply(201, headers={"Docker-Content-Digest": digest_of(data)})
        else:
            self.give(handler, kind.endswith("/manifests"), name)

    def give(self, handler: Handler, is_manifest: bool, name: str) -> None:
        found = (self.manifests if is_manifest else self.blobs).get(name)
        if found is None:
            handler.reply(404, b'{"errors":[{"code":"NOT_FOUND","message":"not known here"}]}')
            return
        headers = {"Docker-Content-Digest": digest_of(found)}
        if is_manifest:
            headers["Content-Type"] = "application/vnd.oci.image.manifest.v1+json"
        handler.reply(200, found, headers)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def own_address() -> str:
    """An address of this machine that is not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for somewhere in ("192.0.2.1", "172.17.0.9"):  # by the way out, else by an engine's bridge; nothing is sent
            try:
                probe.connect((somewhere, 9))
                return str(probe.getsockname()[0])
            except OSError:
                continue
    return socket.gethostname()


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of every file."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def environ(**changes: str) -> dict[str, str]:
    """This process's environment with changes."""
    return {**os.environ, **changes}
