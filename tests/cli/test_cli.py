"""The command as a process: one JSON document with `--json` whatever happens, exit codes, no traceback, signals."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from harbor_tasks import commands
from harbor_tasks.cli import answer
from harbor_tasks.output import documents, print_json
from harbor_tasks.resources import resource

NOWHERE = "unix:///nowhere.sock"
COMMANDS = sorted(typer.main.get_group(commands.app).commands)

Answer = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def eval_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small eval in the current folder, named `e`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    shutil.copytree(resource("examples") / "starter", tmp_path / "e")
    (tmp_path / "e" / ".git").mkdir()
    return tmp_path / "e"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Answer:
    """Run a command line with `--json`: exit code, the one document, what was said on standard error."""

    def run(*arguments: str) -> tuple[int, Any, str]:
        code = answer([*arguments, "--json"])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, json.loads(out), err

    return run


def test_the_document_is_json_whatever_numbers_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    documents.clear()
    print_json({"a": [float("nan"), 1.5], "b": (float("-inf"), 10**400, True)})
    documents.clear()

    def refuse(word: str) -> None:
        raise AssertionError(word)

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == {"a": [None, 1.5], "b": [None, 10**400, True]}


@pytest.mark.parametrize("arguments", [["check", "e"], ["check", "e", "--json"], ["--help"]], ids=" ".join)
def test_output_that_cannot_be_written_is_named(eval_dir: Path, arguments: list[str]) -> None:
    assert eval_dir.is_dir()
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "harbor_tasks.cli", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "error: standard output cannot be written (No space left on device): what was to be printed is lost"
    )


def break_eval(eval_dir: Path) -> None:
    with (eval_dir / "eval.yaml").open("a") as file:
        file.write("judgs: []\nmodles: {}\n")


# ---- JSON ----


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_json_and_a_wrong_command_line_is_a_document_too(ask: Answer, command: str) -> None:
    code, document, err = ask(command, "--no-such-option")
    assert code == document["exit_code"] == 2
    [problem] = document["problems"]
    assert problem["code"] == "usage"
    assert "--no-such-option" in problem["message"]
    assert "--no-such-option" in err


def test_what_was_asked_for_is_one_document(eval_dir: Path, ask: Answer) -> None:
    asked = {
        ("init", "new"): "files",
        ("check", "e"): "matches",
        ("build", "e", "-o", "tasks"): "written",
        ("run", "e"): "trials",
        ("run", "tasks", "--attempts", "2", "-n", "2"): "trials",
        ("run", "e", "--dry-run"): "dry_run",
        ("probe", "e"): "probes",
        ("doctor",): "python",
    }
    for arguments, key in asked.items():
        code, document, _ = ask(*arguments)
        assert code == 0, arguments
        assert f'"{key}"' in json.dumps(document), arguments
    [job, *_] = Path("jobs").iterdir()
    assert ask("report", str(job))[1]["job"] == job.name
    code, document, _ = ask("clean", "--job", job.name)
    assert (code, document["removed"]) == (0, [])


def test_check_shows_the_routes_of_an_eval_without_errors(
    eval_dir: Path, ask: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {route["tool"]: route for route in ask("check", "e")[1]["routes"]}
    assert (found["Bash"]["state"], found["Bash"]["also_by"]) == ("partly guarded", ["WebFetch"])
    assert answer(["check", "e"]) == 0
    out = capsys.readouterr().out
    assert "also reached by" in out
    assert "1 note" in out
    with (eval_dir / "eval.yaml").open("a") as file:
        file.write("nonsense: [\n")
    code, document, _ = ask("check", "e")
    assert (code, document["routes"]) == (2, [])


def test_a_job_of_which_there_is_nothing_is_said(eval_dir: Path, ask: Answer) -> None:
    code, document, err = ask("clean", "--job", "nope")
    assert code == document["exit_code"] == 2
    assert "nothing of a job nope was found, not in jobs" in document["problems"][0]["message"]
    assert "--jobs-dir" in err


def test_what_stands_after_two_dashes_is_in_the_help_of_runner(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["runner", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "runner [OPTIONS] [REF]... " in shown
    assert "What stands after -- is for `harbor run` itself" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "e"), ("build", "e", "-o", "tasks"), ("run", "e"), ("run", "e", "--dry-run"), ("probe", "e"),
        ("image", "e"),
    ],
)  # fmt: skip
def test_the_authors_errors_are_one_document(eval_dir: Path, ask: Answer, arguments: tuple[str, ...]) -> None:
    break_eval(eval_dir)
    code, document, err = ask(*arguments)
    assert code == 2
    errors = [one for one in document["problems"] if one["level"] == "error"]
    assert {Path(one["path"]).name for one in errors} == {"eval.yaml"}
    assert len(errors) == 2
    assert arguments[0] == "check" or "eval.yaml" in err
    assert not Path("jobs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "none"), ("build", "none", "-o", "tasks"), ("run", "none"), ("run", "none", "--dry-run"),
        ("run", "e", "--resume", "none"), ("probe", "none"), ("image", "none"), ("report", "none"), ("init", "e"),
        ("run", "e", "--agent", "orcale"), ("run", "e", "--case", "none"), ("run", "e", "--env", "moon"),
        ("build", "e", "-o", "e"),
    ],
)  # fmt: skip
def test_what_is_not_there_or_in_the_way_is_one_document(
    eval_dir: Path, ask: Answer, arguments: tuple[str, ...]
) -> None:
    code, document, _ = ask(*arguments)
    assert code == 2
    assert document["problems"][-1]["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("image", "e", "--host", NOWHERE), ("clean", "--host", NOWHERE),
        ("run", "e", "--env", "docker", "--host", NOWHERE),
        ("run", "e", "--jobs-dir", "e/eval.yaml"), ("report", "job", "-o", "e/eval.yaml/report.html"),
    ],
)  # fmt: skip
def test_what_this_machine_cannot_do_is_one_document(eval_dir: Path, ask: Answer, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "report":
        ask("run", "e")
        next(Path("jobs").iterdir()).rename("job")
    code, document, err = ask(*arguments)
    assert code == document["exit_code"] == 3
    [problem] = document["problems"]
    assert (problem["level"], problem["code"]) == ("error", "machine")
    assert f"error: {problem['message']}" in err


def test_without_json_nothing_but_the_report_goes_to_standard_output(
    eval_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(["run", "e", "--dry-run", "--attempts", "2"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert all(line.startswith("would run ") for line in out.splitlines())
    assert "a new job: 4 trials" in err
    break_eval(eval_dir)
    assert answer(["run", "e"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("2 errors\n")


def test_json_behind_two_hyphens_is_harbors(eval_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["run", "e", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_the_last_lines_say_where_a_job_and_what_failed_in_it_are_kept(
    eval_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (eval_dir / "cases" / "ada" / "solution" / "solve.sh").write_text("exit 7\n")
    assert answer(["run", "e", "--agent", "oracle"]) == 1
    failed, kept = capsys.readouterr().err.splitlines()[-2:]
    label, _, folder = failed.partition(": its logs are in ")
    assert label == "ada"
    assert (Path(folder) / "agent.log").is_file()
    [job] = Path("jobs").iterdir()
    assert kept == f"kept in {job}; as a page: harbor-pack report {job}"


def test_a_job_is_gone_on_with_by_the_agent_that_it_had(eval_dir: Path, ask: Answer) -> None:
    first = ask("run", "e", "--agent", "oracle", "--case", "ada")[1]
    code, again, _ = ask("run", "e", "--resume", first["folder"], "--attempts", "2")
    assert (code, again["job"], again["agent"], again["expected"]) == (0, first["job"], "oracle", 2)
    code, other, _ = ask("run", "e", "--resume", first["folder"], "--agent", "replay")
    assert (code, other["exit_code"]) == (2, 2)


def test_what_fails_after_the_report_adds_no_second_document(
    eval_dir: Path, ask: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", "somewhere")

    monkeypatch.setattr(commands.jobs, "print_place", fails)
    code, document, err = ask("run", "e")
    assert code == 3
    assert document["expected"] == 2
    assert err.endswith("error: somewhere: Input/output error\n")


# ---- signals ----


class Command:
    """`run e --json` as a process of its own, whose own handlers of signals are in place."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        command = [sys.executable, "-m", "harbor_tasks.cli", *arguments]
        env = {**os.environ, "PYTHONPATH": str(Path(commands.__file__).parents[2])}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **options
        )
        until = time.monotonic() + 30
        while not self.has("SigCgt", signal.SIGTERM):  # SIGINT is caught by Python itself before
            assert time.monotonic() < until
            time.sleep(0.001)

    def has(self, mask: str, number: signal.Signals) -> bool:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith(f"{mask}:")]
        return bool(int(line.split()[1], 16) & 1 << (number - 1))

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.mark.parametrize("seconds", [0.0, 0.03, 0.06, 0.1, 0.2, 0.3, 0.4])
def test_an_early_ctrl_c_is_one_line_and_leaves_nothing(eval_dir: Path, seconds: float) -> None:
    slow_down(eval_dir)
    started = Command("run", "e", "--json")
    time.sleep(seconds)
    code, out, err = started.end(signal.SIGINT)
    assert code == 130
    assert err.splitlines()[-1:] == ["interrupted"]
    assert "Traceback" not in err
    assert json.loads(out)["problems"][0]["code"] == "interrupted"
    assert not Path("jobs").exists()


LOSING = """
import time
from harbor_tasks import cli

class Loses:
    def __del__(self):
        print("now", flush=True)
        time.sleep(20)

def answer(arguments):
    Loses()
    time.sleep(20)

cli.answer = answer
cli.main()
"""
BEFORE = """
import os, signal, sys
from harbor_tasks import cli

install = signal.signal
def both(number, handler):
    install(number, handler)
    if number == signal.SIGTERM:
        os.kill(os.getpid(), number)

signal.signal = both
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_where_python_drops_what_is_raised_is_not_lost(number: signal.Signals) -> None:
    command = [sys.executable, "-c", LOSING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        started = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert time.monotonic() - started < 15  # of the 40 seconds that it would take


def test_a_signal_as_soon_as_it_is_listened_to_is_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", BEFORE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_ends_are_as_ctrl_c(eval_dir: Path, number: signal.Signals) -> None:
    slow_down(eval_dir)
    started = Command("run", "e")
    until = time.monotonic() + 20
    while not Path("jobs").exists():  # the build has begun
        assert time.monotonic() < until
        time.sleep(0.01)
    assert started.end(number) == (130, "", "interrupted\n")
    assert not Path("jobs").exists()


def test_a_signal_that_the_caller_ignores_stays_ignored(eval_dir: Path) -> None:
    slow_down(eval_dir)
    started = Command("run", "e", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert started.has("SigIgn", signal.SIGHUP)
    started.process.send_signal(signal.SIGHUP)
    assert started.end(signal.SIGINT)[0] == 130


def test_an_interrupted_job_is_one_document_and_its_last_line_goes_on_with_it(eval_dir: Path, tmp_path: Path) -> None:
    for script in eval_dir.glob("cases/*/solution/solve.sh"):
        script.write_text(f"until [ -e {tmp_path}/flag ]; do sleep 0.05; done\n{script.read_text()}")
    started = Command("run", "e", "--json", "--agent", "oracle", "--jobs-dir", "my jobs", "-n", "1")
    assert started.process.stderr is not None
    assert any(line.startswith("started") for line in iter(started.process.stderr.readline, ""))
    code, out, err = started.end(signal.SIGINT)
    document = json.loads(out)
    assert code == document["exit_code"] == 130
    assert document["status"] == "interrupted"
    said, _, go_on = err.splitlines()[-1].partition("; to go on: harbor-pack ")
    assert said == "interrupted: 0 of 2 trials are done"
    (tmp_path / "flag").touch()
    shutil.rmtree(eval_dir)  # the job has its tasks
    assert answer(shlex.split(go_on)) == 0
    [job] = Path("my jobs").iterdir()
    assert job.name == document["job"]


def slow_down(eval_dir: Path) -> None:
    """A staging command makes the build take long."""
    with (eval_dir / "eval.yaml").open("a") as file:
        file.write("hooks: {before_all: [{command: sleep 20}]}\n")


def test_a_reader_that_goes_away_is_no_fault_of_the_command(eval_dir: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        command = [sys.executable, "-m", "harbor_tasks.cli", "check", "e", "--json"]
        env = {**os.environ, "PYTHONPATH": str(Path(commands.__file__).parents[2])}
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, env=env, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_closed_streams_are_no_fault_and_mix_nothing_up(eval_dir: Path) -> None:
    def ran(closed: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "harbor_tasks.cli", "run", "e", "--dry-run", "--json"]
        env = {**os.environ, "PYTHONPATH": str(Path(commands.__file__).parents[2])}
        return subprocess.run(
            command, capture_output=True, text=True, env=env, check=False, preexec_fn=lambda: os.close(closed)
        )

    without_errors = ran(2)
    assert (without_errors.returncode, json.loads(without_errors.stdout)["dry_run"]) == (0, True)
    without_output = ran(1)
    assert without_output.returncode == 0
    assert "Traceback" not in without_output.stderr
