"""From the judges of an eval.yaml to what its tasks' verifiers get."""

from __future__ import annotations

import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval, load_eval, read_case
from harbor_tasks.resources import script_module
from harbor_tasks.tasks.build import check
from harbor_tasks.tasks.judging import BUILTIN_ARGUMENTS, Judging, judges_config, judging_of

EVAL = """\
name: demo
dataset: {path: cases}
execution: {prompt: do it}
"""
STEPS = """\
name: demo
dataset: {path: cases}
execution:
  steps:
    - {id: draft, prompt: write}
    - {id: review, prompt: read}
"""


class Project:
    """An author's project with one case."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / ".git").mkdir()
        self.write("eval/cases/c1/input.yaml", "prompt: hello\n")
        self.write("eval/cases/c1/annotations.yaml", "kind: plain\nversion: 1.10\n")

    def write(self, path: str, content: str | bytes) -> Path:
        """A file of the project."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target

    def load(self, judges: str, base: str = EVAL, problems: Problems | None = None) -> Eval:
        """The eval with these judges (and what else follows)."""
        path = self.write("eval/eval.yaml", base + textwrap.dedent(judges))
        found = Problems()
        ev = load_eval(path, found if problems is None else problems)
        assert ev is not None and not found.errors, [str(p) for p in found]
        return ev

    def judging(self, judges: str, base: str = EVAL) -> tuple[Judging, list[str]]:
        """What is made of the judges, and the errors and warnings as they are printed."""
        problems = Problems()
        made = judging_of(self.load(judges, base, problems), problems)
        return made, [f"{p.level}: {p}" for p in problems]

    def config(self, judges: str, base: str = EVAL, step: str | None = None, **more: Any) -> dict[str, Any]:
        """judges.json of the case."""
        ev, problems = self.load(judges, base), Problems()
        case = read_case(ev, self.root / "eval" / "cases" / "c1", problems)
        assert case is not None and not problems.errors
        made = judges_config(ev, case, step, **more)
        assert json.loads(json.dumps(made)) == made
        return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with an eval and a case."""
    return Project(tmp_path)


def test_the_configuration_holds_what_the_verifier_needs(project: Project) -> None:
    config = project.config(
        """\
        sandbox: {workdir: /srv/work}
        outputs: [{path: out}, {tool: "mcp__x__*"}]
        judges:
          - name: long
            if: annotations["kind"] == "plain"
            check: |
              return len(outputs["main_content"]) / arguments["most"]
            arguments: {most: 10}
            feedback_type: float
            score_range: [0, 5]
            timeout: 7
          - name: made
            command: test -d out
          - name: cheap
            builtin: cost_budget
            arguments: {max_cost_usd: 0.5}
        reward: {weights: {long: 2}, gate: false}
        """,
        patterns=["Bash", "mcp__x__*", "Bash"],
    )
    assert config == {
        "workspace": "/srv/work",
        "final": True,
        "annotations": {"kind": "plain", "version": 1.1},
        "input": {"prompt": "hello"},
        "outputs": [{"path": "out"}, {"tool": "mcp__x__*"}],
        "judges": [
            {
                "name": "long", "kind": "check", "code": 'return len(outputs["main_content"]) / arguments["most"]\n',
                "if": 'annotations["kind"] == "plain"', "arguments": {"most": 10}, "feedback_type": "float",
                "score_range": [0, 5], "timeout": 7,
            },
            {"name": "made", "kind": "command", "command": "test -d out", "timeout": 60},
            {
                "name": "cheap", "kind": "builtin", "builtin": "cost_budget", "arguments": {"max_cost_usd": 0.5},
                "timeout": 60,
            },
        ],
        "reward": {"weights": {"long": 2}, "gate": False, "judge": None},
        "handlers": ["Bash", "mcp__x__*"],
    }  # fmt: skip


def test_the_case_id_is_not_in_it(project: Project) -> None:
    project.write("eval/cases/secret-id/input.yaml", "prompt: x\n")
    ev, problems = project.load("judges: [{name: a, command: 'true'}]"), Problems()
    case = read_case(ev, project.root / "eval" / "cases" / "secret-id", problems)
    assert case is not None
    assert "secret-id" not in json.dumps(judges_config(ev, case))


# ---- prompts ----


def test_a_prompt_file_is_read_from_the_evals_folder_or_the_project(project: Project) -> None:
    project.write("eval/near.md", b"\xef\xbb\xbfJudge\r\n{{ conversation }}.\r\n")
    project.write("prompts/far.md", "Judge {{ outputs }}.")
    made, said = project.judging(
        """\
        models: {judge: model-a}
        judges:
          - {name: near, prompt_file: near.md, model: model-b, samples: 3}
          - {name: far, prompt_file: prompts/far.md}
        """
    )
    assert said == []
    assert [(j["prompt"], j["model"], j["samples"]) for j in made.judges] == [
        ("Judge\n{{ conversation }}.\n", "model-b", 3), ("Judge {{ outputs }}.", "model-a", 1),
    ]  # fmt: skip
    assert {path.name for path in made.inputs} == {"near.md", "far.md"}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.md", None, "none.md"),
        ("latin.md", "Größe".encode("latin-1"), "not UTF-8"),
        ("big.md", b"x" * 300_000, "larger than 256 KiB"),
        ("folder/x.md", b"", "is not a file"),
    ],
)
def test_a_prompt_file_that_cannot_be_used_is_an_error_with_its_line(
    project: Project, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        project.write(f"eval/{name}", content)
    wanted = "folder" if name.startswith("folder") else name
    _, errors = project.judging(f"judges:\n  - name: a\n    prompt_file: {wanted}\n")
    assert len(errors) == 1
    assert "eval.yaml:6" in errors[0]
    assert said in errors[0]


def test_the_model_is_the_judges_own_or_the_evals_or_a_default(project: Project) -> None:
    base = EVAL + "models: {judge: model-a}\n"
    judges = """\
        judges:
          - {name: own, prompt: "{{ outputs }}", model: model-b}
          - {name: any, prompt: "{{ outputs }}"}
        """
    assert [j["model"] for j in project.judging(judges, base)[0].judges] == ["model-b", "model-a"]
    assert [j["model"] for j in project.judging(judges)[0].judges] == ["model-b", script_module("judge").DEFAULT_MODEL]


def test_what_a_prompt_may_not_name_is_an_error_with_its_line(project: Project) -> None:
    project.write("eval/rate.md", "Fine: {{ outputs }}\n\nNot: {{ outpts }}\n{% if x %}\n")
    _, said = project.judging(
        """\
        judges:
          - name: a
            prompt: |
              {{ outputs.files["a b.md"] }} {{ annotations.x }} {{input}} {{ arguments.n[0] }} {{- conversation -}}
              {{ outputs.fles }}
              {{ outputs | tojson }} and {{ score * 2 }}
              {{"score": 5}} {{ open
          - {name: b, prompt_file: rate.md}
        """
    )
    errors = [line.removeprefix("error: ").removeprefix(f"{project.root}/eval/") for line in said]
    some = "{{ outputs }}, {{ annotations }}, {{ conversation }}, {{ input }}, {{ arguments }}"
    parts = f"it may name {some}, and parts of them as {{{{ annotations.x }}}}"
    filters = "leave the filter out: values are sent as JSON, long texts cut"
    assert errors == [
        "eval.yaml:8: judge 'a': outputs has no 'fles'; did you mean files?",
        f"eval.yaml:9: judge 'a': {{{{ outputs | tojson }}}} is no name of a value; {filters}",
        f"eval.yaml:9: judge 'a': {{{{ score * 2 }}}} is no name of a value; {parts}",
        f"eval.yaml:10: judge 'a': {{{{\"score\": 5}}}} is no name of a value; {parts}",
        "eval.yaml:10: judge 'a': {{ is no name of a value; close it with }}, or write a single brace",
        "rate.md:3: judge 'b': {{ outpts }} is unknown to judges; did you mean outputs?",
        f"rate.md:4: judge 'b': {{% is no name of a value; a judge's prompt has no logic; it puts in {some}",
    ]


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        ("{name: a, prompt: Is it good?}", "the prompt names nothing of the run"),
        (
            "{name: a, prompt: 'Rate {{ outputs }} from 1 to 5.'}",
            "the prompt speaks of 1 to 5, but the score is from 0",
        ),
        ("{name: a, prompt: 'Rate {{ outputs }}, 1-10.', feedback_type: int}", "the prompt speaks of 1-10"),
        ("{name: a, prompt: 'Rate {{ outputs }} from 1 to 5.', score_range: [1, 5]}", None),
        ("{name: a, prompt: 'Are {{ outputs }} 1 to 5 pages?', feedback_type: bool}", None),
        ("{name: a, prompt: 'Rate {{ outputs }} from 0 to 1; 12-50 lines.'}", None),
    ],
    ids=["nothing named", "a scale", "another scale", "with its range", "bool", "no scale"],
)
def test_a_prompt_that_cannot_be_meant_so_is_a_warning(project: Project, judge: str, said: str | None) -> None:
    _, found = project.judging(f"judges:\n  - {judge}\n")
    assert len(found) == (said is not None)
    assert said is None or (found[0].startswith("warning: ") and said in found[0] and "eval.yaml:5" in found[0])


def test_a_threshold_beyond_the_scale_of_a_model_judge_is_a_warning(project: Project) -> None:
    judges = "judges:\n  - {name: a, prompt: 'Rate {{ outputs }}.'RANGE}\nthresholds:\n  a: {min_mean: 3.5}\n"
    _, said = project.judging(judges.replace("RANGE", ""))
    assert len(said) == 1
    assert (
        "eval.yaml:7: thresholds.a.min_mean is 3.5, which can never be reached: the judge's scale ends at 1" in said[0]
    )
    assert "set the judge's score_range" in said[0]
    assert project.judging(judges.replace("RANGE", ", score_range: [1, 5]"))[1] == []


def test_an_argument_that_is_no_number_of_this_world_is_an_error(project: Project) -> None:
    _, [said] = project.judging(
        f"judges:\n  - {{name: a, builtin: cost_budget, arguments: {{max_cost_usd: {10**400}}}}}\n"
    )
    assert "arguments.max_cost_usd must be a number, 0 or more" in said


@pytest.mark.parametrize(
    ("judge", "more", "said"),
    [
        ("prompt: 'From 1 to 5: {{ outputs }}', score_range: [5, 1]", "", "judges[0].score_range must be [lowest"),
        ("prompt: 'From 1 to 5: {{ outputs }}', score_range: 5", "", "judges[0].score_range must be [lowest"),
        ("prompt: 'From 1 to 5: {{ outputs }}', feedback_type: boolean", "", "judges[0].feedback_type must be one of"),
        ("prompt: '{{ outputs }}', score_range: [1]", "thresholds: {a: {min_mean: 3}}", "judges[0].score_range must"),
        ("prompt: '{{ annotations.x }}', if: ''", "", "judges[0].if must not be empty"),
        ("prompt: '{{ arguments.x }}', arguments: 5", "", "judges[0].arguments must be a mapping, not 5"),
    ],
)
def test_what_follows_from_a_fault_that_was_said_is_not_said(
    project: Project, judge: str, more: str, said: str
) -> None:
    path = project.write("eval/eval.yaml", f"{EVAL}judges:\n  - {{name: a, {judge}}}\n{more}\n")
    [problem] = check(path).problems
    assert str(problem).startswith(f"{path}:5: {said}")


def test_annotations_that_cannot_be_read_are_said_once(project: Project) -> None:
    path = project.write("eval/eval.yaml", f"{EVAL}judges:\n  - {{name: a, prompt: '{{{{ annotations.x }}}}'}}\n")
    project.write("eval/cases/c1/annotations.yaml", "x: [\n")
    [problem] = check(path).problems
    assert "annotations.yaml:1 (case c1): is not valid YAML" in str(problem)
    (project.root / "eval" / "cases" / "c1" / "annotations.yaml").unlink()
    [problem] = check(path).problems
    assert "{{ annotations.x }} is not in this case's annotations" in str(problem)


# ---- modules ----

MODULE = "judges:\n  - name: a\n    module: {module}\n    function: judge\n"


def test_a_module_judge_comes_with_its_top_package(project: Project) -> None:
    for path in ("quality/__init__.py", "quality/sub/checks.py", "quality/words.txt"):
        project.write(path, "def judge(outputs): return True\n")
    for path in ("quality/.secret", "quality/__pycache__/a.pyc", "quality/out/.harbor-pack/build.json", "other.py"):
        project.write(path, "x")
    (project.root / "quality" / "linked.py").symlink_to(project.root / "other.py")
    (project.root / "quality" / "away").symlink_to("/etc/passwd")
    made, said = project.judging(MODULE.format(module="quality.sub.checks"))
    assert len(said) == 1
    assert "quality/away: is a link" in said[0]
    assert [(file.path, file.source) for file in made.lib] == [
        ("quality/__init__.py", project.root / "quality" / "__init__.py"),
        ("quality/linked.py", project.root / "quality" / "linked.py"),
        ("quality/sub/checks.py", project.root / "quality" / "sub" / "checks.py"),
        ("quality/words.txt", project.root / "quality" / "words.txt"),
    ]
    assert {file.source for file in made.lib} | {project.root / "quality"} <= set(made.inputs)


def test_a_module_beside_eval_yaml_comes_before_one_of_the_project(project: Project) -> None:
    near = project.write("eval/checks.py", "def judge(outputs): return True\n")
    project.write("checks.py", "def judge(outputs): return False\n")
    made, said = project.judging(MODULE.format(module="checks"))
    assert (said, [(file.path, file.source) for file in made.lib]) == ([], [("checks.py", near)])


def test_what_a_module_imports_of_the_project_comes_with_it_and_what_that_imports(project: Project) -> None:
    project.write(
        "eval/quality.py", "import json, yaml, near\nfrom far.deep import name\ndef judge(outputs): return 1\n"
    )
    project.write("eval/near.py", "def late():\n    import last\n")
    project.write("last.py", "import quality, near\n")
    project.write("far/deep.py", "from . import other\n")
    project.write("far/other.py", "x = 1\n")
    project.write("eval/json.py", "shadows = 'nothing'\n")
    project.write("eval/unused.py", "x = 1\n")
    made, said = project.judging(MODULE.format(module="quality"))
    assert said == []
    assert {file.path: file.source for file in made.lib} == {
        "quality.py": project.root / "eval/quality.py", "near.py": project.root / "eval/near.py",
        "last.py": project.root / "last.py", "far/deep.py": project.root / "far/deep.py",
        "far/other.py": project.root / "far/other.py",
    }  # fmt: skip


def test_a_package_comes_with_the_siblings_that_it_imports(project: Project) -> None:
    project.write("quality/__init__.py", "")
    project.write("quality/checks.py", "import common\ndef judge(outputs): return True\n")
    project.write("common/__init__.py", "from common.words import *\n")
    project.write("common/words.py", "")
    made, said = project.judging(MODULE.format(module="quality.checks"))
    assert said == []
    assert [file.path for file in made.lib] == [
        "common/__init__.py", "common/words.py", "quality/__init__.py", "quality/checks.py",
    ]  # fmt: skip


def test_a_sibling_that_is_found_only_from_its_own_folder_is_refused_by_name(project: Project) -> None:
    project.write("quality/checks.py", "x = 1\nimport words\ndef judge(outputs): return True\n")
    project.write("quality/words.py", "")
    (said,) = project.judging(MODULE.format(module="quality.checks"))[1]
    assert said.startswith(f"error: {project.root}/quality/checks.py:2: judge 'a': imports 'words'")
    assert "write: from quality import words" in said
    both = "try:\n    from . import words\nexcept ImportError:\n    import words\ndef judge(outputs): return True\n"
    project.write("quality/checks.py", both)
    assert project.judging(MODULE.format(module="quality.checks"))[1] == []


def test_the_cases_are_no_part_of_a_package_that_holds_the_eval(project: Project) -> None:
    project.write("eval/checks.py", "def judge(outputs): return True\n")
    made, said = project.judging(MODULE.format(module="eval.checks"))
    assert said == []
    assert [file.path for file in made.lib] == ["eval/checks.py", "eval/eval.yaml"]


@pytest.mark.parametrize(
    "source",
    [
        "judge = print",
        "from os import *",
        "from other import something as judge",
        "try:\n    import fast as judge\nexcept ImportError:\n    def judge(outputs): return 1",
        "class judge: pass",
        "judge: object = 1",
        "(a, judge) = 1, 2",
    ],
)
def test_a_function_may_be_bound_in_any_way(project: Project, source: str) -> None:
    project.write("checks.py", source)
    assert project.judging(MODULE.format(module="checks"))[1] == []


@pytest.mark.parametrize(
    ("module", "source", "said"),
    [
        ("missing", "", "eval.yaml:6: judge 'a': no module 'missing' in the project"),
        ("json", "", "no module 'json' in the project"),
        ("checks", "def other(outputs):\n    judge = 1\n", "eval.yaml:7: judge 'a': checks.py has no function 'judge'"),
        ("checks", "def judge(outputs):\n    return (\n", "checks.py:2: judge 'a': no valid Python"),
        ("checks", b"x = 1\0", "checks.py"),
    ],
)
def test_a_module_that_cannot_be_used_is_an_error_at_its_place(
    project: Project, module: str, source: str | bytes, said: str
) -> None:
    project.write("checks.py", source)
    _, errors = project.judging(MODULE.format(module=module))
    assert len(errors) == 1
    assert said in errors[0]


def test_a_module_outside_of_the_project_is_none(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    away = tmp_path_factory.mktemp("away") / "checks.py"
    away.write_text("def judge(outputs): return True\n", encoding="utf-8")
    (project.root / "checks.py").symlink_to(away)
    assert "no module" in project.judging(MODULE.format(module="checks"))[1][0]


def test_a_package_that_is_too_big_for_every_task_is_an_error(project: Project) -> None:
    project.write("quality/checks.py", "def judge(outputs): return True\n")
    with (project.root / "quality" / "model.bin").open("wb") as file:
        file.truncate(17 << 20)
    assert "too big" in project.judging(MODULE.format(module="quality.checks"))[1][0]


# ---- arguments ----


@pytest.mark.parametrize(
    ("builtin", "arguments", "said"),
    [
        ("cost_budget", "{}", "needs arguments.max_cost_usd"),
        ("cost_budget", "{max_cost_usd: -1}", "0 or more"),
        ("cost_budget", "{max_cost_usd: true}", "must be a number"),
        ("cost_budget", "{max_cost_usd: '5'}", "must be a number"),
        (
            "cost_budget",
            "{max_cost_usd: 5, max: 3}",
            "arguments.max is no argument of cost_budget; it takes max_cost_usd",
        ),
        ("documents_consulted", "{}", "needs arguments.paths or arguments.annotation"),
        ("documents_consulted", "{paths: a.md}", "list of texts"),
        ("documents_consulted", "{paths: []}", "not empty"),
        ("documents_consulted", "{paths: [a.md, 3]}", "list of texts"),
        ("documents_consulted", "{annotation: docs, min_coverage: 1.5}", "from 0 to 1"),
        ("tool_calls_valid", "{allow_denied: 1}", "true or false"),
    ],
)
def test_wrong_arguments_of_a_builtin_judge_are_errors(
    project: Project, builtin: str, arguments: str, said: str
) -> None:
    _, errors = project.judging(f"judges:\n  - name: a\n    builtin: {builtin}\n    arguments: {arguments}\n")
    assert len(errors) == 1
    assert said in errors[0]
    assert "eval.yaml:" in errors[0]


def test_the_arguments_known_at_build_are_those_of_the_verifier() -> None:
    builtins = script_module("verify").BUILTINS
    taken = {name: list(inspect.signature(judge).parameters)[1:] for name, judge in builtins.items()}
    assert taken == {name: list(arguments) for name, arguments in BUILTIN_ARGUMENTS.items()}


def test_a_command_gives_no_number(project: Project) -> None:
    _, errors = project.judging("judges:\n  - {name: a, command: 'true', feedback_type: float}\n")
    assert "true or false by its exit code" in errors[0]


# ---- steps ----

STEP_JUDGES = """\
judges:
  - {name: drafted, command: test -s draft.md, step: draft}
  - {name: whole, check: return 0.5}
  - {name: reviewed, check: return 1, step: review}
"""


def test_each_step_has_its_own_judges_and_the_last_those_of_no_step(project: Project) -> None:
    first = project.config(STEP_JUDGES, STEPS, "draft")
    last = project.config(STEP_JUDGES, STEPS, "review")
    assert ([j["name"] for j in first["judges"]], first["final"]) == (["drafted"], False)
    assert ([j["name"] for j in last["judges"]], last["final"]) == (["whole", "reviewed"], True)


def test_a_reward_of_an_earlier_steps_judge_is_an_error_its_weight_a_warning(project: Project) -> None:
    _, said = project.judging(STEP_JUDGES + "reward: {judge: drafted}\n", STEPS)
    assert "a judge of step 'draft', but the reward is the last step's" in said[0]
    assert said[0].startswith("error:")
    _, said = project.judging(STEP_JUDGES + "reward: {weights: {drafted: 2}}\n", STEPS)
    assert "has no effect" in said[0]
    assert said[0].startswith("warning:")


def test_a_steps_reward_names_only_judges_that_run_in_it(project: Project) -> None:
    weights = "reward: {weights: {drafted: 2, reviewed: 3}}\n"
    first = project.config(STEP_JUDGES + weights, STEPS, "draft")["reward"]
    last = project.config(STEP_JUDGES + weights, STEPS, "review")["reward"]
    assert (first["weights"], last["weights"]) == ({"drafted": 2}, {"reviewed": 3})
    single = project.config(STEP_JUDGES + "reward: {judge: reviewed}\n", STEPS, "draft")
    assert single["reward"]["judge"] is None
