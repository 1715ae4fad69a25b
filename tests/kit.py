"""What tests of several rooms share: small evals, files and servers, and what became of the calls of a job."""

from __future__ import annotations

import io
import json
import os
import socket
import tarfile
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import read_trials, trial_dir
from harbor_tasks.environments.evidence import calls_of, json_lines

SOLVE = "echo yes > done.txt\n"
"""What solves a case of `small_eval`."""
_MCP_SERVER = """import getpass, json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    given = request.get("params", {})
    if request["method"] == "initialize":
        result = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "d", "version": "1"}
    elif request["method"] == "tools/list":
        result = {"tools": [{"name": "TOOL", "inputSchema": {"type": "object"}}]}
    else:
        assert request["method"] == "tools/call", request
        DOES
        result = {"content": [{"type": "text", "text": SAYS}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def small_eval(name: str) -> dict[str, Any]:
    """An eval.yaml whose judge wants a file that says yes."""
    return {
        "name": name,
        "dataset": {"path": "cases"},
        "execution": {"prompt": "do it"},
        "outputs": [{"path": "done.txt"}],
        "judges": [{"name": "done", "check": "return outputs['files'].get('done.txt', '').strip() == 'yes'"}],
    }


def mcp_server(tool: str, says: str, *, does: str = "pass") -> str:
    """The text of an MCP server of one tool, on standard input and output.

    ``says`` is what a call answers with, an expression; ``does`` is a statement before it. Both know ``given``, the
    parameters of the call: ``name`` and ``arguments``.
    """
    return _MCP_SERVER.replace("TOOL", tool).replace("SAYS", says).replace("DOES", does)


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Files below a folder, by their paths, with the folders that they need."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def put_special(path: Path, kind: str) -> None:
    """Something in a file's place that is no file: of this kind, or a link to it."""
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made, chdir(path.parent):  # a socket's path may not be long
            made.bind(path.name)
    elif kind == "folder":
        path.mkdir()
    elif kind == "full folder":
        path.mkdir()
        (path / "inner.yaml").write_text("a: b\n")
    else:
        path.symlink_to(kind)


def tar_of_one_file(text: str) -> bytes:
    """An archive of the file `said`: the layer of an image."""
    out = io.BytesIO()
    with tarfile.open(mode="w", fileobj=out) as tar:
        entry = tarfile.TarInfo("said")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def what_became(job: Path) -> dict[str, list[tuple[Any, ...]]]:
    """By case, of each call in order: the tool, what the interceptor decided, and whether it gave an error.

    Where the policy is within reach the matchers cover more, to protect it: that they have no objection is left out.
    """
    found = {}
    for trial in read_trials(job):
        folder = trial_dir(job, trial.id)
        logged = {line["tool_use_id"]: line for line in json_lines(folder / "interceptions.jsonl")}
        calls = calls_of(folder / "transcript.jsonl")
        found[trial.case_id] = [(call.tool, _decided(logged.get(call.id, {})), call.is_error) for call in calls]
    return found


def _decided(line: dict[str, Any]) -> tuple[Any, ...]:
    if line.get("decision", "none") == "none":
        return ("none",)
    answers = json.dumps(line.get("answers"), sort_keys=True)
    return (line["decision"], line.get("handler"), line.get("reason"), line.get("tier"), answers)
