"""eval.yaml's keys: each mistake is said with its key, its value and what is right, and all are said at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Load = Callable[..., Any]

JUDGE = {"name": "j", "check": "return True"}


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"execution": {"mode": "prompt", "skill": "s"}},
            "execution.mode must be one of 'case' or 'batch', not 'prompt'",
        ),
        ({"execution": {}}, "execution must set one of skill, prompt, steps"),
        ({"execution": None}, "execution must set one of skill, prompt, steps"),
        ({"execution": {"skill": "s", "prompt": "p"}}, "execution.prompt is mutually exclusive with execution.skill"),
        (
            {"execution": {"skill": "s", "steps": [{"id": "a", "prompt": "p"}]}},
            "execution.steps is mutually exclusive with execution.skill",
        ),
        (
            {"execution": {"mode": "batch", "steps": [{"id": "a", "prompt": "p"}]}},
            "execution.steps is only supported in mode: case",
        ),
        ({"execution": {"skill": "s", "timeout": "abc"}}, "execution.timeout must be a positive integer, not 'abc'"),
        ({"execution": {"skill": "s", "timeout": 1.5}}, "execution.timeout must be a positive integer, not 1.5"),
        ({"execution": {"skill": "s", "timeout": True}}, "execution.timeout must be a positive integer, not true"),
        (
            {"execution": {"skill": "s", "max_budget_usd": 0}},
            "execution.max_budget_usd must be a positive number, not 0",
        ),
        (
            {"models": {"hook_budget": {"calls": -1}}},
            "models.hook_budget.calls must be a whole number from 0 on, not -1",
        ),
        (
            {"models": {"hook_budget": {"tokens": 1.5}}},
            "models.hook_budget.tokens must be a whole number from 0 on, not 1.5",
        ),
        ({"models": {"hook_budget": 5}}, "models.hook_budget must be a mapping"),
        ({"models": {"judge": ""}}, "eval.yaml:1: models.judge must not be empty"),
        ({"models": {"skill": " "}}, "models.skill must not be empty"),
        ({"models": {"subagent": ""}}, "models.subagent must not be empty"),
        ({"models": {"hook": ""}}, "models.hook must not be empty"),
        ({"models": {"judge": "claude\n"}}, r"models.judge must be the name of a model, without white space, not 'cl"),
        ({"models": {"skill": "an opus"}}, "models.skill must be the name of a model, without white space"),
        ({"judges": [{"name": "j", "prompt": "p", "model": ""}]}, "judges[0].model must not be empty"),
        ({"execution": {"prompt": " "}}, "execution.prompt must not be empty"),
        ({"dataset": {"path": "c", "workspace": {"files": [1]}}}, "dataset.workspace.files[0] must be a string, not 1"),
        (
            {"dataset": {"path": "c", "workspace": {"files": ["../x"]}}},
            "dataset.workspace.files[0] must not contain '..'",
        ),
        ({"outputs": [{"path": "a/../../b"}]}, "outputs[0].path must not contain '..', as 'a/../../b' does"),
        ({"outputs": [{"path": "/x"}]}, "outputs[0].path must be a relative path, not '/x'"),
        ({"outputs": [{}]}, "outputs[0] must set one of path, tool"),
        ({"outputs": [{"path": "a", "tool": "b"}]}, "outputs[0].tool is mutually exclusive with outputs[0].path"),
        ({"outputs": [{"path": "a", "batch_pattern": "R-{m}"}]}, "outputs[0].batch_pattern must hold {n}"),
        ({"permissions": ["Read"]}, "permissions must be a mapping, not a list"),
        ({"permissions": {"deny": [{"tools": ["Read"]}]}}, "permissions.deny[0].path is missing"),
        ({"permissions": {"deny": [{"path": "x"}]}}, "permissions.deny[0].tools is missing"),
        ({"permissions": {"deny": "Read"}}, "permissions.deny must be a list, not 'Read'"),
        ({"inputs": {"tools": [{"prompt": "p"}]}}, "inputs.tools[0].match is missing"),
        ({"reward": {"gate": "yes"}}, "reward.gate must be a boolean (true or false), not 'yes'"),
        (
            {"judges": [JUDGE], "reward": {"weights": {"j": -1}}},
            "reward.weights.j must be a non-negative number, not -1",
        ),
        ({"judges": [JUDGE], "reward": {"weights": {"k": 1}}}, "reward.weights.k is no judge of this eval"),
        ({"judges": [JUDGE], "reward": {"weights": {"j": 0}}}, "reward.weights must leave at least one judge"),
        ({"judges": [JUDGE], "reward": {"judge": "J"}}, "reward.judge names the unknown judge 'J'; did you mean 'j'?"),
        ({"judges": [JUDGE], "thresholds": {"q": {"min_mean": 1}}}, "thresholds.q is no judge of this eval"),
        ({"judges": [JUDGE], "thresholds": {"j": {}}}, "thresholds.j must set one of min_mean"),
        (
            {"judges": [JUDGE], "thresholds": {"j": {"min_pass_rate": 90}}},
            "thresholds.j.min_pass_rate must be a number from 0 to 1, not 90",
        ),
        (
            {"judges": [JUDGE], "thresholds": {"j": {"min_mean": 10**400}}},
            f"thresholds.j.min_mean must be a number, not 1{'0' * 56}...",
        ),
        ({"sandbox": {"network": False}}, "sandbox.network must be one of 'public', 'model' or 'none', not false"),
        ({"sandbox": {"image": "a", "dockerfile": "b"}}, "sandbox.dockerfile is mutually exclusive with sandbox.image"),
        ({"sandbox": {"image": "--privileged"}}, "sandbox.image must be the name of an image"),
        ({"runner": {"type": "codx"}}, "runner.type must be one of 'claude-code' or 'codex', not 'codx'"),
        (
            {"runner": {"settings": {"disableAllHooks": True}}},
            "runner.settings.disableAllHooks would switch the tool policy",
        ),
        (
            {"runner": {"settings": {"env": {"CLAUDE_CODE_SIMPLE": "1"}}}},
            "runner.settings.env.CLAUDE_CODE_SIMPLE may not",
        ),
        ({"execution": {"prompt": "p", "arguments": "--x"}}, "execution.arguments go with a skill; beside a prompt"),
        (
            {"execution": {"steps": [{"id": "a", "prompt": "p"}], "arguments": "--x"}},
            "execution.arguments go with a skill; beside a steps pipeline they would be dropped; give them to",
        ),
        ({"permissions": {"deny": [{"path": "x", "tools": "Read"}]}}, "deny[0].tools must be a list, not 'Read'"),
        (
            {"runner": {"permission_mode": "dontask"}},
            "runner.permission_mode must be one of 'default', 'manual', 'acceptEdits', 'plan', 'auto', 'dontAsk', "
            "'bypassPermissions', not 'dontask'; did you mean 'dontAsk'?",
        ),
        ({"runner": {"effort": "hgih"}}, "runner.effort must be one of 'low', "),
        ({"runner": {"effort": 3}}, "runner.effort must be a string, not 3"),
        ({"runner": {"type": "codex", "effort": "hgih"}}, "'max', 'ultra', not 'hgih'; did you mean 'high'?"),
        ({"runner": {"workspace_mode": "rpeo"}}, "runner.workspace_mode must be one of 'repo', not 'rpeo'"),
        ({"name": None}, "name is missing"),
        ({"dataset": {}}, "dataset.path is missing"),
        ({"hooks": {"before_all": [{}]}}, "hooks.before_all[0].command is missing"),
        ({"hooks": {"before_all": [{"comand": "x"}]}}, "unknown key 'comand' in hooks.before_all[0]; did you mean"),
    ],
)
def test_a_wrong_key_is_an_error(load: Load, keys: dict[str, Any], says: str) -> None:
    errors = load(**keys).errors
    assert any(says in error for error in errors), errors


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"id": "../a", "prompt": "p"}, "execution.steps[0].id cannot contain path separators"),
        ({"id": "a\\b", "prompt": "p"}, "execution.steps[0].id cannot contain path separators"),
        ({"id": "..", "prompt": "p"}, "execution.steps[0].id must not be a relative directory reference"),
        ({"id": "a.b", "prompt": "p"}, "execution.steps[0].id must be 1 to 63 letters"),
        ({"id": "a", "prompt": "p", "timeout": 0}, "execution.steps[0].timeout must be a positive integer, not 0"),
        ({"id": "a", "prompt": "p", "env": ["x"]}, "execution.steps[0].env must be a mapping, not a list"),
        ({"id": "a", "prompt": "p", "on_failure": "retry"}, "must be one of 'fail' or 'continue', not 'retry'"),
        ({"id": "a"}, "execution.steps[0] must set one of skill, prompt"),
        ({"id": "a", "prompt": "p", "skill": "s"}, "execution.steps[0].prompt is mutually exclusive"),
        (
            {"id": "a", "prompt": "p", "arguments": "--x"},
            "execution.steps[0].arguments go with a skill; beside a prompt",
        ),
    ],
)
def test_a_wrong_step_is_one_error(load: Load, step: dict[str, Any], says: str) -> None:
    (error,) = load(execution={"steps": [step]}).errors
    assert says in error


def test_steps_have_ids_of_their_own(load: Load) -> None:
    steps = [{"id": "plan", "prompt": "p"}, {"id": "Plan", "prompt": "q"}]
    (error,) = load(execution={"steps": steps}).errors
    assert "execution.steps[1].id is a duplicate step id" in error
    assert len(load(execution={"steps": [*steps[:1], {"id": "do", "skill": "s"}]}).ok.spec.execution.steps) == 2


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        ({}, "judges[0] must set one of check, prompt"),
        ({"check": "x", "prompt": "p"}, "judges[0] must set one of check, prompt, prompt_file, builtin, command"),
        ({"builtin": "nope"}, "judges[0].builtin is 'nope', an unknown builtin judge"),
        ({"builtin": "cost_bugdet"}, "did you mean 'cost_budget'?"),
        ({"module": "a.b"}, "judges[0].function is missing"),
        ({"module": "a/b", "function": "f"}, "judges[0].module must be the name of a Python module"),
        (
            {"prompt": "p", "feedback_type": "bool", "score_range": [0, 1]},
            "score_range has no meaning with feedback_type",
        ),
        ({"prompt": "p", "feedback_type": "int", "score_range": [0, 1.5]}, "score_range has a fractional bound"),
        ({"prompt": "p", "score_range": [5, 1]}, "judges[0].score_range must be [lowest, highest]"),
        ({"prompt": "p", "score_range": [0, 10**400]}, "judges[0].score_range must be [lowest, highest]"),
        ({"prompt": "p", "score_range": [-1e308, 1e308]}, "judges[0].score_range must be [lowest, highest]"),
        ({"prompt": "p", "samples": 0}, "judges[0].samples must be a whole number from 1 to 50 (each is"),
        ({"prompt": "p", "samples": 51}, "from 1 to 50 (each is a paid request), not 51"),
        ({"prompt": "p", "samples": True}, "judges[0].samples must be a whole number from 1 to 50"),
        ({"prompt": "p", "samples": 1.5}, "judges[0].samples must be a whole number from 1 to 50"),
        ({"check": "x", "step": "a"}, "judges[0].step requires an execution.steps pipeline"),
        ({"check": "if x\n  return 1"}, "judges[0].check is not valid Python"),
        ({"check": "# nothing but this"}, "judges[0].check is not valid Python: it holds no statement"),
        ({"check": "return 1", "if": "a b"}, "judges[0].if is not a Python expression"),
        ({"check": "return 1", "type": "prompt"}, "judges[0].type is prompt, but the judge sets check"),
    ],
)
def test_a_wrong_judge_is_one_error(load: Load, judge: dict[str, Any], says: str) -> None:
    (error,) = load(judges=[{"name": "j", **judge}]).errors
    assert says in error


def test_as_many_samples_as_may_be_are_no_error(load: Load) -> None:
    assert load(judges=[{"name": "j", "prompt": "p", "samples": 50}]).ok


def test_judges_have_names_of_their_own(load: Load) -> None:
    (error,) = load(judges=[JUDGE, JUDGE]).errors
    assert "judges[1].name is a duplicate judge name: 'j'" in error
    (error,) = load(judges=[{**JUDGE, "name": "reward"}]).errors
    assert "judges[0].name must not be 'reward'" in error


def test_a_judge_may_name_a_step_of_the_eval(load: Load) -> None:
    steps = {"steps": [{"id": "plan", "prompt": "p"}]}
    assert load(execution=steps, judges=[{**JUDGE, "step": "plan"}]).ok
    (error,) = load(execution=steps, judges=[{**JUDGE, "step": "pan"}]).errors
    assert "judges[0].step names the unknown step 'pan'; did you mean 'plan'?" in error


def test_python_errors_have_the_line_in_eval_yaml(load: Load) -> None:
    text = (
        "name: e\nexecution: {skill: s}\ndataset: {path: c}\njudges:\n- name: j\n  check: |\n    import re\n\n"
        "    if re\n      return 1\n- name: k\n  check: return (\n"
    )
    assert [error.partition(" ")[0] for error in load(text).errors] == ["eval.yaml:9:", "eval.yaml:12:"]


@pytest.mark.parametrize(
    ("probe", "says"),
    [
        (
            {"tool": "Bash", "expect": "denny"},
            "probes[0].expect must be one of 'deny', 'allow', 'none', 'answer' or 'rewrite'",
        ),
        ({"expect": "deny"}, "probes[0].tool is missing"),
        ({"tool": "mcp__*", "expect": "deny"}, "probes[0].tool must be the name of one tool"),
        ({"tool": "Bash", "expect": "answer"}, "probes[0].expect can be answer only for AskUserQuestion"),
        ({"tool": "Bash", "expect": "none", "reason_has": "x"}, "probes[0].reason_has goes with expect: deny"),
        (
            {"tool": "Bash", "expect": "deny", "input_after": {"a": 1}},
            "probes[0].input_after goes with expect: rewrite",
        ),
        ({"tool": "Bash", "expect": "deny", "env": {"PATH": "x"}}, "probes[0].env.PATH may not be set"),
    ],
)
def test_a_wrong_probe_is_one_error(load: Load, probe: dict[str, Any], says: str) -> None:
    (error,) = load(probes=[{"name": "p", **probe}]).errors
    assert says in error


def test_probes_are_data(load: Load) -> None:
    text = (
        "name: e\nexecution: {skill: s}\ndataset: {path: c}\nprobes:\n"
        "- {name: q, tool: AskUserQuestion, expect: answer, answers: {Version?: 1.10, Which?: [a, no]}}\n"
        "- {name: p, tool: Bash, expect: deny, reason_has: tracker, input: {command: ls, n: null}, env: {N: 08}}\n"
    )
    question, denied = load(text).ok.spec.probes
    assert question.answers == {"Version?": "1.10", "Which?": ["a", "no"]}
    assert (denied.reason_has, denied.input, denied.env) == (["tracker"], {"command": "ls", "n": None}, {"N": "08"})


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"exection": {"skill": "s"}}, "unknown key 'exection'; did you mean 'execution'?"),
        ({"naem": "x"}, "unknown key 'naem'; did you mean 'name'?"),
        ({"execution": {"skill": "s", "timout": 5}}, "unknown key 'timout' in execution; did you mean 'timeout'?"),
        (
            {"execution": {"skill": "s", "max-budget-usd": 5}},
            "'max-budget-usd' in execution; did you mean 'max_budget_usd'?",
        ),
        (
            {"judges": [{**JUDGE, "score-range": [1, 5]}]},
            "unknown key 'score-range' in judges[0]; did you mean 'score_range'?",
        ),
        (
            {"judges": [JUDGE], "thresholds": {"j": {"min_maen": 1}}},
            "'min_maen' in thresholds.j; did you mean 'min_mean'?",
        ),
        ({"models": {"hook_budgt": {"calls": 1}}}, "'hook_budgt' in models; did you mean 'hook_budget'?"),
        ({"models": {"hook_budget": {"call": 1}}}, "'call' in models.hook_budget; did you mean 'calls'?"),
        (
            {"permissions": {"deny": [{"path": "x", "tool": ["Read"]}]}},
            "'tool' in permissions.deny[0]; did you mean 'tools'?",
        ),
    ],
)
def test_a_misspelt_key_is_an_error_with_the_nearest_one(load: Load, keys: dict[str, Any], says: str) -> None:
    errors = load(**keys).errors
    assert any(says in error for error in errors), errors


@pytest.mark.parametrize(
    ("keys", "key", "right"),
    [
        ({"environment": {"allow_internet": False}}, "environment.allow_internet", "sandbox.network"),
        ({"sandbox": {"allow_internet": False}}, "sandbox.allow_internet", "sandbox.network"),
        ({"sandbox": {"network_mode": "none"}}, "sandbox.network_mode", "sandbox.network"),
        ({"network": "none"}, "network", "sandbox.network"),
        ({"execution": {"skill": "s", "allowed_hosts": []}}, "execution.allowed_hosts", "sandbox.network"),
        ({"permissions": {"denied": ["Bash"]}}, "permissions.denied", "permissions.deny"),
        ({"disallowed_tools": ["Bash"]}, "disallowed_tools", "permissions.deny"),
        ({"runner": {"disallowedTools": ["Bash"]}}, "runner.disallowedTools", "permissions.deny"),
        ({"execution": {"skill": "s", "max_cost": 5}}, "execution.max_cost", "execution.max_budget_usd"),
        ({"models": {"hook_budget": {"usd": 1}}}, "models.hook_budget.usd", "models.hook_budget.tokens"),
        ({"models": {"hook_budget": {"requests": 1}}}, "models.hook_budget.requests", "models.hook_budget.calls"),
        (
            {"inputs": {"tools": [{"match": "m", "input_filters": ["x"]}]}},
            "inputs.tools[0].input_filters",
            "tool_handlers.yaml",
        ),
        ({"handlers": []}, "handlers", "tool_handlers.yaml"),
    ],
)
def test_a_key_that_only_promises_protection_is_an_error(
    load: Load, keys: dict[str, Any], key: str, right: str
) -> None:
    (error,) = load(**keys).errors
    assert error.startswith(f"eval.yaml:1: {key} would protect nothing; use {right}")


def test_other_unknown_keys_are_warnings(load: Load) -> None:
    loaded = load(owner="me", timeout=5, execution={"skill": "s", "retries": 3})
    assert loaded.ok
    assert set(loaded.warnings) == {
        "eval.yaml:1: unknown key 'owner'; it has no effect",
        "eval.yaml:1: unknown key 'timeout'; did you mean execution.timeout?",
        "eval.yaml:1: unknown key 'retries' in execution; it has no effect",
    }
    assert {problem.code for problem in loaded.problems} == {"unknown-key"}
    loaded.problems.strict("unknown-key")
    assert len(loaded.problems.errors) == 3


def test_a_key_without_a_value_is_not_given(load: Load) -> None:
    text = (
        "name: e\ndescription:\nexecution: {skill: s}\ndataset: {path: c, schema: }\n"
        "permissions: {deny: }\njudges:\nhooks:\n"
    )
    spec = load(text).ok.spec
    assert (spec.description, spec.dataset.schema_, spec.permissions.deny, spec.judges) == ("", None, [], [])
    assert "unknown key 'timout'" in load("name: e\nexecution: {skill: s, timout: }\ndataset: {path: c}\n").errors[0]


def test_all_errors_are_said_at_once_each_with_its_line(load: Load) -> None:
    text = (
        "name: [x]\nexecution:\n  skill: s\n  timeout: soon\n  timout: 5\ndataset: {}\njudges:\n- {nam: a, check: x}\n"
        "- {name: b}\n- 5\n- {name: c, check: return 1, samples: no}\nreward: {gate: no}\nnetwork: none\n"
    )
    loaded = load(text)
    assert loaded.eval is None
    lines = {error.partition(" ")[2] and error.split(" ")[0] for error in loaded.errors}
    assert lines == {f"eval.yaml:{line}:" for line in (1, 4, 5, 6, 8, 9, 10, 11, 12, 13)}
    assert "eval.yaml:9: judges[1] must set one of check" in "\n".join(loaded.errors)


@pytest.mark.parametrize(
    ("body", "is_fine"),
    [
        ("outputs['files']", False),
        ("x = 1\nassert x", False),
        ("return", False),
        ("yield True", False),
        ("def own():\n    return True\nown()", False),
        ("f = lambda: 1\nf()", False),
        ("yield 1\nreturn True", False),
        ("raise RuntimeError('not yet')", True),
        ("if outputs:\n\treturn True", True),
        ("for f in outputs:\n    with f:\n        return 1, 'why'", True),
        ("try:\n    pass\nfinally:\n    return 0", True),
        ("def own():\n    yield 1\nreturn any(own())", True),
        ("return any((yield_ for yield_ in outputs))", True),
    ],
)
def test_a_check_that_never_returns_a_verdict_is_an_error(load: Load, body: str, is_fine: bool) -> None:
    errors = load(judges=[{"name": "j", "check": body}]).errors
    assert ["never returns a verdict" in error for error in errors] == ([] if is_fine else [True])


@pytest.mark.parametrize(
    ("judge", "limits", "says"),
    [
        ({}, {"min_mean": 3}, "min_mean is 3, which can never be reached: the judge's scale ends at 1; lower it, or"),
        ({"score_range": [1, 5]}, {"min_mean": 5.5}, "the judge's scale ends at 5; lower it"),
        ({"feedback_type": "bool"}, {"min_mean": 1.5}, "the judge's scale ends at 1; lower it"),
        ({"feedback_type": "int"}, {"min_pass_rate": 1}, "a judge with feedback_type: int gives numbers"),
        ({"feedback_type": "float"}, {"min_pass_rate": 0}, "a judge with feedback_type: float gives numbers"),
        ({"score_range": [1, 5]}, {"min_pass_rate": 0.5}, "a judge with score_range gives numbers"),
        ({"score_range": [1, 5]}, {"min_mean": 5, "max_error_rate": 1}, None),
        ({}, {"min_mean": 1, "min_pass_rate": 1, "max_error_rate": 0}, None),
        ({"feedback_type": "bool"}, {"min_mean": 0.5, "min_pass_rate": 1}, None),
    ],
)
def test_a_threshold_that_can_never_be_met_is_warned_of(
    load: Load, judge: dict[str, Any], limits: dict[str, float], says: str | None
) -> None:
    loaded = load(judges=[{**JUDGE, **judge}], thresholds={"j": limits})
    assert loaded.errors == []
    assert [says is not None and says in warning for warning in loaded.warnings] == ([True] if says else [])


def test_what_follows_from_a_fault_is_not_said_too(load: Load) -> None:
    assert load(execution={"skill": 5}).errors == [
        "eval.yaml:1: execution.skill must be a string, not 5; put it in quotes"
    ]
    judges = [{"name": 1, "check": "x"}]
    assert len(load(judges=judges, reward={"weights": {"j": 1}}, thresholds={"j": {"min_mean": 1}}).errors) == 1


@pytest.mark.parametrize("name", ["*", "AEH_*", "BAD-KEY", "1BAD", "A=B", "", "PATH\n", "Ä"])
def test_names_of_variables_are_checked(load: Load, name: str) -> None:
    (error,) = load(execution={"skill": "s", "env": {name: "x"}}).errors
    assert "is not the name of an environment variable" in error


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "PYTHONPATH", "PATH", "BASH_ENV", "CLAUDE_CODE_SIMPLE", "DYLD_LIBRARY_PATH"]
)
def test_loader_and_switch_variables_are_refused(load: Load, name: str) -> None:
    (error,) = load(execution={"skill": "s", "env": {name: "x"}}).errors
    assert f"execution.env.{name} may not be set" in error


def test_values_of_variables_are_texts_on_one_line(load: Load) -> None:
    text = "name: e\nexecution: {skill: s, env: {A: 1.10, B: 08, C: true, D: }}\ndataset: {path: c}\n"
    assert load(text).ok.spec.execution.env == {"A": "1.10", "B": "08", "C": "true", "D": ""}
    (error,) = load(execution={"skill": "s", "env": {"A": "one\ntwo"}}).errors
    assert "execution.env.A must not contain a newline" in error
    (error,) = load(execution={"skill": "s", "env": {"A": "${B:?gone}"}}).errors
    assert "execution.env.A looks like a reference but is none" in error


def test_a_reference_inside_a_text_is_warned_of_by_its_line(load: Load) -> None:
    text = (
        "name: e\ndataset: {path: c}\nexecution:\n  steps:\n  - {id: a, prompt: p, env: {S: '${HOME}/x'}}\n  env:\n"
        "    A: x-$VAR-y\n    B: ${ONE}-${TWO}\n    C: $HOME/x\n    D: $WHOLE\n    E: ${WHOLE:-a $b}\n"
        "    F: US$5, 2$$, $\n    G: \\$VAR\n"
    )
    loaded = load(text)
    assert loaded.ok
    assert {problem.code for problem in loaded.problems.warnings} == {"env-literal"}
    for line, key, name in (
        (7, "env.A", "$VAR"), (8, "env.B", "${ONE}"), (9, "env.C", "$HOME"), (5, "steps[0].env.S", "${HOME}"),
    ):  # fmt: skip
        said = (
            f":{line}: execution.{key} is taken as it is: {name} inside a text is no reference; only a whole value is"
        )
        assert sum(said in warning for warning in loaded.warnings) == 1, (said, loaded.warnings)
    assert len(loaded.warnings) == 4
    assert "write $VAR, ${VAR} or ${VAR:-default}" in loaded.warnings[0]


def test_a_reference_without_braces_inside_a_text_of_a_server_is_warned_of(load: Load) -> None:
    loaded = load(
        mcp_servers=[
            {"name": "a", "url": "http://$HOST/mcp", "headers": {"Authorization": "Bearer $KEY"}},
            {"name": "b", "url": "${URL}/mcp", "headers": {"Authorization": "$KEY", "X": "a ${B:-c}"}},
            {"name": "c", "command": "sh", "args": ["-c", "exec $HOME/x"], "env": {"A": "$HOME/x"}},
        ]
    )
    assert loaded.ok
    assert [warning.partition("mcp_servers")[2] for warning in sorted(loaded.warnings)] == [
        "[0].headers.Authorization is taken as it is: $KEY inside a text is no reference; write ${KEY}",
        "[0].url is taken as it is: $HOST inside a text is no reference; write ${HOST}",
        "[2].env.A is taken as it is: $HOME inside a text is no reference; write ${HOME}",
    ]


@pytest.mark.parametrize(
    "workdir",
    [
        "/work$(touch pwned)",
        "/work;rm -rf /",
        '/work"dir',
        "work",
        "/",
        "/a/../b",
        "/a b",
        "/etc/x",
        "/opt/harbor-pack/x",
        "/a\n",
    ],
)
def test_workdir_is_a_plain_path(load: Load, workdir: str) -> None:
    (error,) = load(sandbox={"workdir": workdir}).errors
    assert "sandbox.workdir must" in error


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ({"name": "a__b", "command": "x"}, "mcp_servers[0].name must be letters"),
        ({"name": "a"}, "mcp_servers[0] must set one of command, url"),
        ({"name": "a", "command": "x", "url": "http://y"}, "mcp_servers[0].url is mutually exclusive"),
        ({"name": "a", "url": "ftp://y"}, "mcp_servers[0].url must be an http or https URL"),
        ({"name": "a", "url": "http://y", "args": ["z"]}, "mcp_servers[0].args has no meaning with a url"),
        (
            {"name": "a", "command": "x", "type": "http"},
            "mcp_servers[0].type is http, which does not go with a command",
        ),
        ({"name": "a", "command": "x", "env": {"LD_PRELOAD": "y"}}, "mcp_servers[0].env.LD_PRELOAD may not be set"),
    ],
)
def test_a_wrong_server_is_one_error(load: Load, server: dict[str, Any], says: str) -> None:
    (error,) = load(mcp_servers=[server]).errors
    assert says in error


def test_literal_secrets_in_eval_yaml_are_warned_of(load: Load) -> None:
    loaded = load(
        execution={
            "skill": "s",
            "env": {"API_TOKEN": "hunter2-9", "OK_TOKEN": "$OK_TOKEN", "TOKEN_FILE": "/run/t", "MODE": "x"},
        },
        mcp_servers=[
            {"name": "a", "url": "http://y", "headers": {"Authorization": "Bearer abc-def-ghi"}},
            {"name": "b", "url": "http://y", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            {"name": "c", "command": "x", "args": ["--key", "sk-ant-abcdefghijk"]},
        ],
    )
    assert loaded.ok
    assert [problem.code for problem in loaded.problems.warnings] == ["secret"] * 3
    assert "execution.env.API_TOKEN looks like a secret" in loaded.warnings[0]
    assert not any("hunter2" in warning or "sk-ant" in warning for warning in loaded.warnings)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"execution": {"steps": []}}, "execution.steps must not be empty"),
        (
            {"execution": {"steps": []}, "judges": [{**JUDGE, "step": "a"}]},
            "execution.steps must not be empty",
        ),
        ({"execution": []}, "execution must be a mapping, not a list"),
        ({"execution": {"arguments": "x"}}, "execution must set one of skill, prompt, steps"),
        ({"dataset": None, "datset": {"path": "cases"}}, "unknown key 'datset'; did you mean 'dataset'?"),
        ({"dataset": {"pth": "cases"}}, "unknown key 'pth' in dataset; did you mean 'path'?"),
        ({"permissions": {"deny": [{"pth": "a", "tools": ["Read"]}]}}, "unknown key 'pth' in permissions.deny[0]"),
        ({"execution": {"promt": "p"}}, "unknown key 'promt' in execution; did you mean 'prompt'?"),
        (
            {"judges": [], "thresholds": {"a": {}}, "reward": {"judge": "a"}},
            "judges must not be empty: see reward.judge",
        ),
        ({"judges": "", "thresholds": {"a": {"min_mean": 1}}}, "judges must be a list, not ''"),
        ({"thresholds": {"a": {"min_mean": 1}, "b": {"min_mean": 1}}}, "thresholds names judges, but the eval has no"),
        ({"judge": [JUDGE], "thresholds": {"j": {"min_mean": 1}}}, "unknown key 'judge'; did you mean 'judges'?"),
        (
            {"runner": {"plugin_dirs": ["", "gone"]}},
            ["plugin_dirs[0] must not be empty", "plugin_dirs[1] does not exist"],
        ),
    ],
    ids=str,
)
def test_only_the_cause_is_said(load: Load, keys: dict[str, Any], says: str | list[str]) -> None:
    errors = load(**keys).errors
    wanted = [says] if isinstance(says, str) else says
    assert len(errors) == len(wanted), errors
    assert all(one in error for one, error in zip(wanted, errors, strict=True)), errors


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"sandbox": {"network": "none"}}, "sandbox.network is none, but the agent claude-code needs its model"),
        ({"runner": {"workspace_mode": "repo"}}, "runner.workspace_mode has no effect: each case has a workspace"),
        ({"runner": {"type": "codex", "permission_mode": "dontAsk"}}, "runner.permission_mode has no effect on codex"),
    ],
)
def test_what_is_valid_but_will_not_do_is_a_warning(load: Load, keys: dict[str, Any], says: str) -> None:
    loaded = load(**keys)
    assert loaded.ok
    (warning,) = loaded.warnings
    assert says in warning


@pytest.mark.parametrize("runner", [{"effort": "xhigh"}, {"type": "codex", "effort": "ultra"}, {"effort": None}])
def test_what_the_program_knows_is_taken(load: Load, runner: dict[str, Any]) -> None:
    assert load(runner=runner, execution={"skill": "s", "arguments": "--x"}).warnings == []
    assert load(runner=runner, execution={"prompt": "p", "arguments": ""}).ok.spec.runner.effort == runner["effort"]
