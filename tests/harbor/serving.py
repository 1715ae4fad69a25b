"""A real `harbor serve` with a key, started and ended by its process."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harbor_tasks.environments.harbor_command import OFFLINE
from harbor_tasks.environments.harbor_server import agents_folder


@dataclass
class Server:
    """A Harbor server; its data, and with them its jobs, outlive its process."""

    harbor: Path
    folder: Path
    host: str = "127.0.0.1"
    key: str = field(default_factory=lambda: f"key-{secrets.token_hex(8)}")
    env: Mapping[str, str] = field(default_factory=lambda: {"PYTHONPATH": agents_folder()})
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    def start(self) -> Server:
        """Start it, and wait until it answers."""
        self.folder.mkdir(exist_ok=True)
        if self.port:
            assert self._starts(), self._said()
            return self
        for _ in range(5):  # until it has a free port another program may take it
            self.port = free_port(self.host)
            if self._starts():
                return self
            assert "address already in use" in self._said(), self._said()
        raise AssertionError(self._said())

    def _starts(self) -> bool:
        """Does it come to answer on its port? Another server there does not take its key."""
        command: list[str | Path] = [
            self.harbor, "serve", "--host", self.host, "--port", str(self.port), "--data-dir", self.folder / "data"
        ]  # fmt: skip
        env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | OFFLINE
        with (self.folder / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**env, **self.env, "HARBOR_API_KEY": self.key}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd=self.folder,
            )  # fmt: skip
        until = time.monotonic() + 90
        while self.process.poll() is None:
            if self.answers():
                with contextlib.suppress(OSError):
                    self.jobs("none")
                    return True
            assert time.monotonic() < until, "harbor serve does not answer"
            time.sleep(0.2)
        return False

    def _said(self) -> str:
        return (self.folder / "serve.log").read_text()

    def answers(self) -> bool:
        """Does somebody listen there?"""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            connection.request("GET", "/docs")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM) -> None:
        """End its process; SIGKILL at once, another signal in good order."""
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def ask(self, path: str) -> Any:
        """What its API says."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def jobs(self, name: str) -> list[dict[str, Any]]:
        """Its jobs of this name, which is the id of ours."""
        found: list[dict[str, Any]] = self.ask(f"/jobs?name={name}")["items"]
        return found


def free_port(host: str) -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def own_address() -> str:
    """An address of this machine that is not its loopback: on the way to another network, nothing is sent there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.77", 9))
        address: str = probe.getsockname()[0]
        return address
