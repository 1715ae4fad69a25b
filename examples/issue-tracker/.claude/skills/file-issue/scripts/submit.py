#!/usr/bin/env python3
"""Files the issue of triage.json in the tracker at $TRACKER_URL and prints its key.

usage: submit.py PROJECT [triage.json]

Every request is written to tracker/requests.jsonl before it is sent, so that one can see what left this machine.
"""

from __future__ import annotations

import json
import os
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

TRACKER = Path("tracker")


def connection(url: str) -> HTTPConnection:
    """A connection to the tracker. The test tracker on this machine says in tracker/port where it listens."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError(f"TRACKER_URL is not an address: {url!r}")
    port = parts.port
    if port is None and parts.hostname in ("localhost", "127.0.0.1") and (TRACKER / "port").exists():
        port = int((TRACKER / "port").read_text(encoding="utf-8"))
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return kind(host, port, timeout=10)


def submit(url: str, issue: dict) -> str:
    """Post the issue; returns its key."""
    to = connection(url)
    TRACKER.mkdir(exist_ok=True)
    with (TRACKER / "requests.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"host": urlsplit(url).hostname, "issue": issue}, sort_keys=True) + "\n")
    to.request("POST", "/issues", json.dumps(issue), {"Content-Type": "application/json"})
    answer = to.getresponse()
    body = answer.read().decode("utf-8", "replace")
    if answer.status != 201:
        raise ValueError(f"the tracker answered {answer.status}: {body}")
    return json.loads(body)["key"]


def main() -> int:
    """The exit code."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    source = Path(sys.argv[2] if len(sys.argv) > 2 else "triage.json")
    try:
        triage = json.loads(source.read_text(encoding="utf-8"))
        fields = {name: triage[name] for name in ("title", "body", "component", "severity") if name in triage}
        print(submit(os.environ.get("TRACKER_URL", ""), {"project": sys.argv[1], **fields}))
    except (OSError, ValueError, KeyError, HTTPException) as error:
        print(f"submit.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
