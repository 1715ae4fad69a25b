"""A Harbor server whose answers are given, and a job of its that a test moves on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "hush-0815"
Answer = tuple[int, dict[str, str], bytes]


class Fake:
    """A server whose answers are given; what it was asked is kept."""

    def __init__(self, answer: Callable[[str, str], Answer]) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                fake.asked.append((f"{self.command} {self.path}", dict(self.headers)))
                status, headers, body = answer(self.command, self.path)
                self.send_response(status)
                for name, text in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


MakeFake = Callable[[Callable[[str, str], Answer]], Fake]


def problem(status: int, detail: str, **more: str) -> Answer:
    return status, {"Content-Type": "application/problem+json"}, json.dumps({"detail": detail, **more}).encode()


def fine(data: Any) -> Answer:
    return 200, {}, json.dumps(data).encode()


class FakeJob:
    """A job at a fake server: its state, and its rollouts by name, of which each runs a task."""

    def __init__(self, tasks: dict[str, str]) -> None:
        """``tasks``: digest by the id of our trial."""
        self.state = "running"
        self.silent = False
        self.resumed = 0
        self.submitted: list[dict[str, Any]] = []
        self.digests = tasks
        self.trials = {f"r-{trial}": trial for trial in tasks}
        """By rollout: which of ours it is."""
        self.rollouts = {
            f"r-{trial}": {
                "id": f"r-{trial}", "name": f"{trial}__x", "state": "queued", "retry_ids": [f"r-{trial}"],
                "started_at": None, "error_type": None,
            }
            for trial in tasks
        }  # fmt: skip

    def finish(self, trial: str, state: str = "finished", error: str | None = None) -> None:
        """Let a trial end."""
        self.rollouts[f"r-{trial}"].update(state=state, started_at="now", error_type=error)

    def answer(self, method: str, path: str) -> Answer:
        """What the server says."""
        if self.silent:
            return problem(503, "The service is shutting down.")
        if path == "/jobs/submit":
            return fine({"job_id": "j"})
        if path.endswith("/resume"):
            self.resumed += 1
            self.state = "running"
        elif path.endswith("/cancel"):
            self.state = "cancelled"
        if path.startswith("/jobs/"):
            return fine({"job": {"state": self.state, "lock_uri": "file:///lock"}})
        if path.startswith("/download"):
            return fine({"harbor": {"version": "0.26.0"}})
        if path.startswith("/rollouts?"):
            return fine({"items": list(self.rollouts.values()), "next_page_token": ""})
        return fine({"rollout": self._detail(path.rpartition("/")[2])})

    def _detail(self, rollout: str) -> dict[str, Any]:
        trial = self.trials[rollout]
        task = {"path": f"/somewhere/tasks/{trial}", "digest": f"sha256:{self.digests[trial]}"}
        result = {"id": rollout, "finished_at": "2031-01-01T00:00:00Z", "config": {"task": task}, "trial_uri": None}
        done = self.rollouts[rollout]["started_at"] is not None and self.rollouts[rollout]["state"] != "running"
        return {"id": rollout, "lock": {"task": task}, "result": result if done else None, "artifacts": {}}
