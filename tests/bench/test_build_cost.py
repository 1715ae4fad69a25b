"""What a build of 1,000 cases costs, and a rebuild of the same, as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CASES = 1000
CPU_MS_A_TASK = 3.0
PEAK_MIB = 120
REBUILD_SHARE = 0.2
BUILD = """
import sys
from pathlib import Path
from harbor_tasks.tasks.build import build
report = build(Path(sys.argv[1]), Path(sys.argv[2]))
print(report.written, report.unchanged)
"""
EVAL = """
name: bench
dataset: {path: cases}
execution:
  prompt: "{{ input.prompt }}"
  timeout: 300
inputs:
  tools:
    - match: Questions to the user via AskUserQuestion.
    - match: The tracker, mcp__tracker__*
permissions:
  deny: [WebFetch]
outputs:
  - path: out.md
judges:
  - name: written
    check: |
      return bool(outputs["files"].get("out.md"))
  - name: words
    feedback_type: float
    check: |
      return min(1, len(outputs["main_content"].split()) / annotations["words"])
reward:
  weights: {words: 1}
"""


class Cost(NamedTuple):
    """CPU seconds of the process and its children, the peak of one process in MiB, what it printed."""

    cpu: float
    peak: float
    said: str


def measured_build(source: Path, out: Path) -> Cost:
    return measured(BUILD, source, out)


_PEAK = r"""
import atexit, re
atexit.register(lambda: print("peak kB", re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]))
"""


def measured(code: str, *arguments: Path) -> Cost:
    """What a Python program costs, as a process of its own.

    Its peak is asked of itself: what `wait4` says begins with the size of this process, of which it was forked.
    """
    command = [sys.executable, "-c", _PEAK + code, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    said, _, peak = said.rstrip().rpartition("peak kB ")
    return Cost(usage.ru_utime + usage.ru_stime, int(peak) / 1024, said.strip())


def write_cases(root: Path, count: int = CASES) -> None:
    (root / "eval.yaml").write_text(EVAL, encoding="utf-8")
    for number in range(count):
        case = root / "cases" / f"case-{number:04}"
        (case / "files" / "src").mkdir(parents=True)
        (case / "solution").mkdir()
        (case / "input.yaml").write_text(f"prompt: Describe module {number}.\npriority: {number % 3}\n")
        (case / "answers.yaml").write_text(f"Which format?: Markdown\nHow long?: {number}\n")
        (case / "annotations.yaml").write_text(f"words: {50 + number}\ntags: [a, b]\n")
        (case / "files" / "src" / "main.py").write_text(f"VALUE = {number}\n" * 20)
        (case / "solution" / "solve.sh").write_text("#!/bin/sh\necho done > out.md\n")
        (case / "replay.yaml").write_text(
            json.dumps([{"tool": "Write", "input": {"file_path": "out.md", "content": "x"}}])
        )


def test_a_thousand_cases_are_built_quickly_and_rebuilt_quicker(tmp_path: Path) -> None:
    write_cases(tmp_path)
    first = measured_build(tmp_path, tmp_path / "tasks")
    again = measured_build(tmp_path, tmp_path / "tasks")
    a_task = first.cpu * 1000 / CASES
    print(f"\nbuild: {a_task:.2f} ms CPU a task (limit {CPU_MS_A_TASK}), peak {first.peak:.0f} MiB (limit {PEAK_MIB})")
    print(f"rebuild without changes: {again.cpu / first.cpu:.2f} of the first (limit {REBUILD_SHARE})")
    assert (first.said, again.said) == (f"{CASES} 0", f"0 {CASES}")
    assert a_task <= CPU_MS_A_TASK
    assert first.peak <= PEAK_MIB
    assert again.cpu <= REBUILD_SHARE * first.cpu
