"""The command `resolve` as a process or called: exit codes, one document with `--json`, what is asked at a terminal."""

from __future__ import annotations

import codecs
import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.cli import answer
from harbor_tasks.endpoint import Endpoint, fails, says
from harbor_tasks.policy.resolve.model import DEFAULT_MODEL

from . import kit

NAME = "tool_handlers.yaml"


@pytest.fixture(autouse=True)
def _here(eval_dir: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The eval is `e`, in the current folder."""
    monkeypatch.chdir(eval_dir.parent)
    eval_dir.rename("e")


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error; none of them tells a secret or shows a traceback."""
    code = answer(["resolve", "e", *arguments])
    out, err = capsys.readouterr()
    for secret in (kit.KEY, "hunter2", "Traceback", "the-secret"):
        assert secret not in out + err
    return code, out, err


def test_written_once_and_unchanged_the_second_time(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys)
    assert code == 2
    assert "pass --yes" in err
    assert "+  - match: Questions by AskUserQuestion" in out
    assert "16 probes, 0 missed" in out
    assert "…" in out.partition("16 probes")[0], "a reason that is cut says so"
    assert not Path("e", NAME).exists()

    code, document, _ = ran(capsys, "--yes", "--json")
    first = json.loads(document)
    assert (code, first["written"], first["holds"], len(first["probes"])) == (0, True, True, 16)
    content = Path("e", NAME).read_bytes()

    code, out, err = ran(capsys, "--yes")
    assert (code, out) == (0, "")
    assert err == f"e/{NAME}: nothing changed\n"
    assert Path("e", NAME).read_bytes() == content
    assert len(kit.asked(endpoint)) == 2

    code, document, _ = ran(capsys, "--json")
    assert (code, json.loads(document)["changed"], json.loads(document)["requests"]) == (0, False, 0)


def test_a_proposal_that_does_not_hold(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    kit.replies(endpoint, kit.answer(r1={"patterns": ["*"]}, r2={"input_filters": ["nc"]}))
    code, out, err = ran(capsys, "--yes")
    assert code == 1
    assert "catches every tool: '*'" in err
    assert "within longer words" in err
    assert "nothing was written" in err
    assert "+    patterns: ['*']" in out
    code, document, err = ran(capsys, "--yes", "--json")
    found = json.loads(document)
    assert (code, found["holds"], found["written"], found["requests"]) == (1, False, False, 2)
    assert {problem["code"] for problem in found["problems"]} >= {"proposal"}
    assert not Path("e", NAME).exists()


def test_probes_that_miss_are_shown(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    kit.replies(endpoint, kit.answer(r1={"input_checks": [{"field": "amount", "op": "lt", "value_json": "50"}]}))
    code, out, err = ran(capsys, "--yes")
    assert code == 1
    assert "MISSED" in out
    assert "16 probes, 1 missed" in out
    assert "error: the probe 'at it' (mcp__desk__refund): expected none, got deny" in err
    assert "does not hold" in err


@pytest.mark.parametrize(
    ("reply", "says_"),
    [
        (fails(401, "invalid x-api-key"), "(401)"), (fails(404, "model: m"), "(404)"),
        (fails(400, "max_tokens: too many"), "(400)"), (says("no", stop_reason="refusal"), "refused"),
        (fails(429, headers={"retry-after": "7200"}), "(429)"), (fails(529, headers={"retry-after": "7200"}), "(529)"),
        (says("{", stop_reason="max_tokens"), "max_tokens"), (says(json.dumps(kit.PROPOSAL), cut=500), "broke off"),
    ],
)  # fmt: skip
def test_what_the_endpoint_does_not_give_is_one_line_and_exit_3(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str], reply: Any, says_: str
) -> None:
    kit.replies(endpoint, reply)
    code, document, err = ran(capsys, "--yes", "--json")
    assert code == json.loads(document)["exit_code"] == 3
    assert says_ in err
    assert len([line for line in err.splitlines() if line.startswith("error:")]) == 1
    assert not Path("e", NAME).exists()


def test_no_key(endpoint: Endpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    code, out, err = ran(capsys, "--yes")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert "by hand" in err
    assert not Path("e", NAME).exists()


def test_a_name_that_is_none_and_an_eval_that_is_none(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "--model", "a b")[0] == 2
    assert answer(["resolve", "nowhere"]) == 2
    assert kit.asked(endpoint) == []


def test_the_commands_of_the_page(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str], repo_root: Path
) -> None:  # fmt: skip
    Path("e").rename("my-eval")
    page = (repo_root / "docs" / "resolve.md").read_text()
    blocks = page.split("```sh\n")[1:]
    lines = [line for block in blocks for line in block.partition("```")[0].splitlines()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("harbor-pack ")]
    assert [answer(command) for command in commands] == [2, 0, 0]
    assert f"`{DEFAULT_MODEL}`" in page
    capsys.readouterr()


class Terminal:
    """The command at a terminal."""

    def __init__(self, *arguments: str) -> None:
        self.main, end = pty.openpty()
        command = [sys.executable, "-m", "harbor_tasks.cli", "resolve", "e", *arguments]
        root = str(Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": root, "TERM": "dumb"}
        self.process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=env, start_new_session=True)
        os.close(end)
        self.text = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode  # a character may come in two parts

    def until(self, words: str, seconds: float = 60) -> str:
        """What was shown until these words; a failure when they do not come."""
        end = time.monotonic() + seconds
        while words not in self.text:
            ready, _, _ = select.select([self.main], [], [], max(0, end - time.monotonic()))
            assert ready, self.text
            try:
                part = os.read(self.main, 65536)
            except OSError:  # the other end is closed
                part = b""
            assert part, self.text
            self.text += self._decode(part)
        return self.text

    def ends(self) -> int:
        code = self.process.wait(60)
        os.close(self.main)
        return code


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"\x04", 1)])
def test_at_a_terminal_somebody_is_asked(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, typed: bytes, code: int
) -> None:  # fmt: skip
    monkeypatch.setenv("ANTHROPIC_LOG", "debug")
    terminal = Terminal()
    shown = terminal.until(f"write e/{NAME}? [y/N] ")
    assert "16 probes, 0 missed" in shown
    for secret in (kit.KEY, "Ada", "uthorization", "api-key"):  # the log is asked for, and tells nothing
        assert secret not in shown
    assert not Path("e", NAME).exists()
    os.write(terminal.main, typed)
    terminal.until("written")
    assert terminal.ends() == code
    assert Path("e", NAME).exists() is (code == 0)


def test_without_an_input_there_is_no_terminal(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert ran(capsys)[0] == 2


def test_ctrl_c_while_the_model_thinks(endpoint: Endpoint) -> None:
    kit.replies(endpoint, says("{}", delay_s=30))
    terminal = Terminal("--yes")
    terminal.until("asking ")
    end = time.monotonic() + 20
    while not kit.asked(endpoint) and time.monotonic() < end:
        time.sleep(0.05)
    began = time.monotonic()
    terminal.process.send_signal(signal.SIGINT)
    terminal.until("interrupted")
    assert terminal.ends() == 130
    assert time.monotonic() - began < 10
    assert not Path("e", NAME).exists()
