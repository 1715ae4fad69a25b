"""No eval.yaml whatever gives a traceback: any value may stand at any key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import load_eval

TRACKER = Path(__file__).parent / "evals" / "tracker"
WHOLE = yaml.safe_load((TRACKER / "eval" / "eval.yaml").read_text(encoding="utf-8"))
WHOLE |= {
    "mcp_servers": [{"name": "a", "command": "x", "args": ["y"], "env": {"A": "b"}}],
    "probes": [{"name": "p", "tool": "Bash", "expect": "deny", "input": {"command": "ls"}, "answers": {}}],
    "sandbox": {"image": "debian", "workdir": "/work", "network": "model", "cpus": 2},
}

# As JSON, so that each draw is a value of its own.
odd = st.sampled_from(
    [
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "1" + "0" * 30,
        '""',
        '"x"',
        '"\\u0000"',
        '".."',
        '"/"',
        '"a\\nb"',
        '"\\u2028"',
        "[]",
        "[null]",
        "[[]]",
        "{}",
        '{"": ""}',
        '{"a": {"b": []}}',
        '["x", {"path": 1}]',
        '{"name": 5, "tool": null}',
        '{"*": 1}',
        '[{"name": "x"}, {"name": "x"}]',
    ]
)


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A whole eval with one to three of its values replaced by something odd, or an odd key added."""
    data = json.loads(json.dumps(WHOLE))
    for _ in range(draw(st.integers(1, 3))):
        node = data
        for _ in range(draw(st.integers(0, 3))):
            below = [
                value
                for value in (node.values() if isinstance(node, dict) else node)
                if value and isinstance(value, (dict, list))
            ]
            if not below:
                break
            node = draw(st.sampled_from(below))
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = draw(st.sampled_from([*keys, "odd key", "naem", "network"] if isinstance(node, dict) else keys or [0]))
        if isinstance(node, dict) or keys:
            node[key] = json.loads(draw(odd))
    return data


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("project") / "tracker"
    shutil.copytree(TRACKER, project)
    (project / ".git").mkdir()
    return project


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=spoilt())
def test_any_eval_is_loaded_or_has_problems(project: Path, data: Any) -> None:
    file = project / "eval" / "eval.yaml"
    file.write_text(json.dumps(data), encoding="utf-8")
    problems = Problems()
    ev = load_eval(file, problems)
    assert ev is not None or problems.errors
    assert all(problem.where.path is not None and str(problem) for problem in problems)
