"""Answers of the hook's model in a whole job: its budget, its cost, its key, and the job that needs it no more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harbor_tasks.commands import app
from harbor_tasks.endpoint import Endpoint, Replies, Reply, fails, uses
from harbor_tasks.environments import plan
from harbor_tasks.environments.base import RunOptions, read_job, read_trials
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.errors import AuthorError
from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.freeze import freeze
from harbor_tasks.results.questions import question_table
from harbor_tasks.results.report import job_json, report_html

KEY = "sk-ant-TELLTALE-0123456789"
HANDLER = {"match": "Questions", "patterns": ["AskUserQuestion"], "prompt": "Answer from the case."}
PLACE = ("Deploy where?", "Staging", "Production")
SIZE = ("How big?", "Small", "Large, red")


def question(text: str, *labels: str, **more: Any) -> dict[str, Any]:
    options = [{"label": label, "description": ""} for label in labels]
    return {"question": text, "header": "H", "multiSelect": False, "options": options, **more}


def ask(*questions: tuple[str, ...]) -> dict[str, Any]:
    return {"tool": "AskUserQuestion", "input": {"questions": [question(*one) for one in questions]}}


def last_option(body: Mapping[str, Any]) -> Reply:
    """Answers every question with its last option."""
    properties = body["tools"][0]["input_schema"]["properties"]
    given = {name: one["enum"][-1] for name, one in properties.items()}
    return uses("answer", given, usage={"input_tokens": 1000, "output_tokens": 200})


class Model:
    """What stands in for the hook's model: by default it takes the last option."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.choose: Callable[[Mapping[str, Any]], Reply] = last_option
        self.url = endpoint.add("hook", Replies(choose=lambda body: self.choose(body)))

    @property
    def requests(self) -> list[Mapping[str, Any]]:
        return [one.body for one in self.endpoint.recorded("hook")]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    with Endpoint() as endpoint:
        found = Model(endpoint)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", found.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield found


@pytest.fixture
def asking(author: Any, model: Model) -> Any:
    """An author whose cases ask, and whose handler answers."""
    author.handlers(HANDLER)
    author.spec["judges"] = [{"name": "any", "check": "return True"}]
    return author


def log_of(ran: Any, trial: str) -> list[dict[str, Any]]:
    path = ran.folder / "trials" / trial / "interceptions.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---- from a job to the next that needs no model ----


def test_what_a_model_answered_is_frozen_and_the_next_job_needs_no_model(
    asking: Any, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.case("a", replay=[ask(PLACE, SIZE), ask(PLACE)], answers_yaml="# mine\nColour?: red  # kept\n")
    asking.case("b", replay=[ask(("Name? Say: yes", "1.10", "no"))])
    asking.write()
    folder = run_job(asking.eval, RunOptions(agent="replay", jobs_dir=asking.jobs))
    assert len(model.requests) == 3, "one request for all questions of a call"
    assert read_job(folder).eval == str(asking.eval.resolve())
    found = collect_job(folder)
    assert {(one.question, one.answer, one.tier, one.shared) for one in found.questions} == {
        ("Deploy where?", "Production", "model", 2), ("How big?", "Large, red", "model", 2),
        ("Deploy where?", "Production", "model", 1), ("Name? Say: yes", "no", "model", 1),
    }  # fmt: skip

    report = freeze(folder)
    assert (len(report.written), report.exit_code, report.warnings) == (3, 0, [])
    kept = (asking.eval / "cases" / "a" / "answers.yaml").read_text()
    assert kept.startswith("# mine\nColour?: red  # kept\n")
    assert kept.endswith('"Deploy where?": "Production"\n"How big?": "Large, red"\n')
    assert '"Name? Say: yes": "no"\n' in (asking.eval / "cases" / "b" / "answers.yaml").read_text()

    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name)
    again = run_job(asking.eval, RunOptions(agent="replay", jobs_dir=asking.jobs))
    assert {(one.question, one.answer, one.tier) for one in collect_job(again).questions} == {
        ("Deploy where?", "Production", "override"), ("How big?", "Large, red", "override"),
        ("Name? Say: yes", "no", "override"),
    }  # fmt: skip
    assert len(model.requests) == 3
    second = freeze(again)
    assert (second.written, second.kept, second.exit_code) == ([], [], 0)


def test_trials_that_do_not_agree_are_said_and_one_is_taken_when_told(asking: Any, model: Model) -> None:
    count = iter(range(9))
    model.choose = lambda _: uses("answer", {"answer_1": PLACE[1 + next(count) % 2]})
    asking.case("a", replay=[ask(PLACE)])
    ran = asking.run("replay", attempts=2, parallel=1)
    with pytest.raises(AuthorError, match="--eval EVAL"):
        freeze(ran.folder)
    report = freeze(ran.folder, asking.eval)
    assert (report.written, report.exit_code) == ([], 1)
    [one] = report.differing
    assert (one.answers, one.attempts) == (("Staging", "Production"), (1, 2))
    assert "'Staging' or 'Production'" in "\n".join(report.lines())
    assert not (asking.eval / "cases" / "a" / "answers.yaml").exists()

    dry = freeze(ran.folder, asking.eval, attempt=2, dry_run=True)
    assert [one.answers for one in dry.written] == [("Production",)]
    assert not (asking.eval / "cases" / "a" / "answers.yaml").exists()
    assert freeze(ran.folder, asking.eval, attempt=2).exit_code == 0
    kept = freeze(ran.folder, asking.eval, attempt=1)
    assert ([one.answers for one in kept.kept], kept.written) == ([("Staging",)], [])
    assert "Production" in (asking.eval / "cases" / "a" / "answers.yaml").read_text()
    for more, said in (({"attempt": 3}, "no attempt 3"), ({"cases": ["zz"]}, "no case 'zz'")):
        with pytest.raises(AuthorError, match=said):
            freeze(ran.folder, asking.eval, **more)


def test_guesses_are_left_out_unless_told_and_changed_cases_are_warned_of(asking: Any, model: Model) -> None:
    model.choose = lambda _: fails(401)
    asking.case("a", replay=[ask(PLACE)])
    ran = asking.run("replay")
    assert ran.trial.calls.guessed == 1
    report = freeze(ran.folder, asking.eval)
    assert ([one.answers for one in report.guessed], report.written, report.exit_code) == ([("Staging",)], [], 0)
    (asking.eval / "cases" / "a" / "input.yaml").write_text("prompt: do something else\n")
    report = freeze(ran.folder, asking.eval, guessed=True)
    assert [one.tier for one in report.written] == ["guessed"]
    assert "case a has changed since this job" in report.warnings[0]
    other = asking.folder / "other"
    (asking.eval).rename(other)
    (other / "eval.yaml").write_text((other / "eval.yaml").read_text().replace('"desk"', '"bench"'))
    with pytest.raises(AuthorError, match="one of the eval 'desk', not of 'bench'"):
        freeze(ran.folder, other)


# ---- the budget ----


def test_the_budget_of_a_trial_holds_in_each_of_its_trials(asking: Any, model: Model) -> None:
    asking.spec["models"] = {"hook_budget": {"calls": 2}}
    asking.case("a", replay=[ask(PLACE), ask(SIZE), ask(("Third?", "x", "y")), ask(("Fourth?", "x", "y"))])
    ran = asking.run("replay", attempts=2)
    assert len(model.requests) == 4
    for trial in ran.trials:
        lines = [line for line in log_of(ran, trial.id) if line["tool"] == "AskUserQuestion"]
        assert [line["tier"] for line in lines] == ["model", "model", "guessed", "guessed"]
        assert "model" not in lines[2]
        assert "model: not asked: the budget of this trial, 2 calls, is used up" in lines[2]["notes"]
        assert (trial.calls.answered, trial.calls.guessed) == (4, 2)


# ---- what it cost ----


def test_costs_and_questions_are_in_every_report(asking: Any, model: Model) -> None:
    answers = iter([last_option, lambda _: fails(400), last_option])
    model.choose = lambda body: next(answers)(body)
    asking.case("a", replay=[ask(PLACE, SIZE), ask(("Third?", "x", "y")), ask(PLACE)], answers_yaml="How big?: Small\n")
    summary = collect_job(asking.run("replay").folder)
    rows = [(row.question, row.answer, row.tier, row.count, row.tokens) for row in question_table(summary.questions)]
    assert rows == [
        ("Deploy where?", "Production", "model", 2, 2400), ("How big?", "Small", "override", 1, None),
        ("Third?", "x", "guessed", 1, None),
    ]  # fmt: skip
    assert (summary.costs.agent.nothing, summary.costs.judges.nothing) == (True, True)
    assert summary.costs.hook.usd == pytest.approx(2 * (1000 * 1 + 200 * 5) / 1e6)
    data = job_json(summary)
    assert data["answers"] == {"overridden": 1, "modelled": 2, "guessed": 1}
    assert data["cost"]["hook"] == {
        "usd": 0.004,
        "tokens": {"input_tokens": 2000, "output_tokens": 400},
        "unpriced": [],
    }
    assert (data["cost"]["usd"], data["cost"]["agent"]["usd"]) == (0.004, 0)
    assert data["questions"][0]["model"] == "claude-haiku-4-5-20251001"
    page = report_html(summary)
    for text in ("Deploy where?", "claude-haiku-4-5-20251001", "0.0040", "2,000", "overridden", "modelled"):
        assert text in page


def test_a_model_without_a_known_price_shows_tokens_only(asking: Any, model: Model) -> None:
    asking.spec["models"] = {"hook": "house-model-1"}
    asking.case("a", replay=[ask(PLACE)])
    ran = asking.run("replay", max_cost=0.001)
    assert [str(e) for e in ran.events if "price" in str(e)] == [
        "warning: the price of house-model-1 is not known: --max-cost cannot count its tokens"
    ]
    cost = job_json(collect_job(ran.folder))["cost"]
    assert (cost["hook"]["usd"], cost["hook"]["unpriced"], cost["usd"]) == (None, ["house-model-1"], None)
    assert cost["hook"]["tokens"] == {"input_tokens": 1000, "output_tokens": 200}
    assert model.requests[0]["model"] == "house-model-1"


def test_no_trial_is_started_past_the_limit_and_a_new_limit_goes_on(asking: Any, model: Model) -> None:
    for name in "abcd":
        asking.case(name, replay=[ask(PLACE)])
    out = asking.build()
    ran = asking.run_built(out, "replay", max_cost=0.003, parallel=1)  # a trial costs 0.002
    assert (ran.job.status, len(model.requests)) == ("partial", 2)
    assert [trial.status for trial in ran.trials] == ["scored", "scored", "pending", "pending"]
    summary = collect_job(ran.folder)
    assert (summary.exit_code, summary.partial, summary.scored) == (1, True, 2)
    [fault] = summary.faults
    assert "partial: it has cost 0.004 USD, and may cost 0.003; 2 trials were not started" in fault
    assert "--resume" in fault

    again = asking.run_built(out, "replay", max_cost=0.004, resume=ran.folder)
    assert (again.job.status, len(model.requests)) == ("partial", 2), "what was spent before counts"
    done = asking.run_built(out, "replay", max_cost=0.1, resume=ran.folder)
    assert (done.job.status, len(model.requests)) == ("finished", 4)
    assert (collect_job(ran.folder).exit_code, collect_job(ran.folder).faults) == (0, ())
    assert job_json(collect_job(ran.folder))["cost"]["usd"] == pytest.approx(0.008)


def test_a_limit_that_is_met_by_the_last_trial_leaves_nothing_out(asking: Any, model: Model) -> None:
    asking.case("a", replay=[ask(PLACE)])
    ran = asking.run("replay", max_cost=0.001)
    assert (ran.job.status, collect_job(ran.folder).exit_code, len(model.requests)) == ("finished", 0, 1)


def test_what_a_trial_cost_that_is_run_again_still_counts(asking: Any, model: Model) -> None:
    asking.case("a", replay=[ask(PLACE)])
    asking.spec["judges"] = [{"name": "any", "check": "raise ValueError('later')"}]
    out = asking.build()
    ran = asking.run_built(out, "replay")
    assert ran.trial.status == "error"
    again = asking.run_built(out, "replay", resume=ran.folder)
    assert (again.job.earlier_usd, len(model.requests)) == (pytest.approx(0.002), 2)
    assert job_json(collect_job(ran.folder))["cost"]["usd"] == pytest.approx(0.004)
    third = asking.run_built(out, "replay", resume=ran.folder, max_cost=0.004)
    assert (third.job.status, len(model.requests)) == ("partial", 2)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_a_limit_must_be_one(author: Any, limit: float) -> None:
    author.case("a", replay=[])
    with pytest.raises(AuthorError, match="--max-cost"):
        author.run("replay", max_cost=limit)


NO_QUESTIONS = {"match": "All", "patterns": ["WebFetch"]}
PROMPT = {"name": "good", "prompt": "Is it good?", "feedback_type": "bool"}


@pytest.mark.parametrize(
    ("agent", "spec", "handler", "options", "says"),
    [
        ("replay", {}, NO_QUESTIONS, (), "the agent replay takes no budget"),
        ("claude-code", {}, NO_QUESTIONS, (), "set execution.max_budget_usd in eval.yaml"),
        ("claude-code", {"max_budget_usd": 1}, {**NO_QUESTIONS, "patterns": ["AskUserQuestion"]}, (),
         "a model may be asked for answers to questions"),
        ("claude-code", {"max_budget_usd": 1, "judge": True}, NO_QUESTIONS, (), "asked for judge 'good'"),
        ("claude-code", {"max_budget_usd": 1}, NO_QUESTIONS, ("--max-retries", "3"), "with --max-retries 3 it may run"),
    ],
)  # fmt: skip
def test_where_all_trials_start_at_once_nothing_may_be_left_open(
    author: Any, agent: str, spec: dict[str, Any], handler: dict[str, Any], options: tuple[str, ...], says: str
) -> None:
    author.spec["judges"] += [PROMPT] if spec.pop("judge", False) else []
    author.spec["execution"].update(spec)
    author.handlers(handler)
    author.case("a", replay=[])
    with pytest.raises(AuthorError, match="Harbor takes all trials of a job at once") as refused:
        author.dry_run(agent=agent, environment="harbor", max_cost=1.0, harbor_options=options)
    assert says in str(refused.value)


@pytest.mark.parametrize(("steps", "attempts", "limit"), [(0, 1, 1.0), (2, 2, 4.0)])
def test_where_all_trials_start_at_once_their_budgets_are_summed(
    author: Any, monkeypatch: pytest.MonkeyPatch, steps: int, attempts: int, limit: float
) -> None:
    """Before Harbor, which is not needed here, is told of any."""
    harbor = SimpleNamespace(name="harbor", sealed=True, prepare=lambda: None, not_enforced=lambda: ())
    monkeypatch.setattr(plan, "_environment", lambda *_: harbor)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    author.spec["models"] = {"skill": "claude-haiku-4-5"}
    author.spec["execution"]["max_budget_usd"] = 0.5
    if steps:
        author.spec["execution"] |= {"steps": [{"id": f"s{n}", "prompt": "go"} for n in range(steps)]}
        del author.spec["execution"]["prompt"]
    for case in "ab":
        author.case(case)
    options = {"agent": "claude-code", "environment": "harbor", "attempts": attempts}
    assert len(author.dry_run(**options, max_cost=limit).todo) == 2 * attempts
    with pytest.raises(
        AuthorError, match=f"{2 * attempts} of at most {0.5 * max(1, steps):g} USD each .*: {limit:g} USD"
    ):
        author.dry_run(**options, max_cost=limit - 0.01)
    assert len(author.dry_run(**options, max_cost=limit / 2, cases=("a",)).todo) == attempts


def test_a_trial_over_its_budget_is_said(asking: Any) -> None:
    asking.spec["execution"]["max_budget_usd"] = 0.001
    asking.case("a", replay=[ask(PLACE)])
    ran = asking.run("replay")
    assert ran.trial.warnings == (
        "execution.max_budget_usd 0.001 was passed: 0 USD for the agent and 0.002 USD for answers",
    )


# ---- secrets ----

FAULTS: dict[str, Callable[[Mapping[str, Any]], Reply]] = {
    "answers": last_option, "401": lambda _: fails(401, f"bad key {KEY}", headers={"x-echo": KEY}),
    "a key in the reply": lambda _: uses("answer", {"answer_1": KEY}),
    "a key in the usage": lambda _: uses("answer", {"answer_1": "Staging"}, usage={"input_tokens": KEY}),
}  # fmt: skip


def test_no_key_is_in_any_file_of_a_job_and_answers_are_only_where_they_belong(asking: Any, model: Model) -> None:
    """Only answers.yaml, what is made of it for the hook, and the log of a question that it answers hold an answer."""
    replies = iter(FAULTS.values())
    model.choose = lambda body: next(replies)(body)
    given = [ask((f"Question {number}?", "Staging", "Production")) for number in range(len(FAULTS))]
    answers = "Never asked?: case-secret-0987\nAsked?: case-answer-1234\n"
    asking.case("a", replay=[*given, {"tool": "Bash", "input": {"command": "env"}}, ask(("Asked?", "x"))],
                answers_yaml=answers)  # fmt: skip
    asking.write()
    folder = run_job(asking.eval, RunOptions(agent="replay", jobs_dir=asking.jobs))
    freeze(folder)
    assert len(model.requests) == len(FAULTS)
    assert "case-secret-0987" in str(model.requests[0]["messages"]), "the hook's model is told the case's answers"
    (folder / "report.html").write_text(report_html(collect_job(folder)))
    (folder / "report.json").write_text(json.dumps(job_json(collect_job(folder))))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert {path.name for path in files if b"case-secret-0987" in path.read_bytes()} <= {
        "answers.yaml", "tool_handlers.yaml",
    }  # fmt: skip
    assert {path.name for path in files if b"case-answer-1234" in path.read_bytes()} >= {"interceptions.jsonl"}
    assert KEY not in (asking.eval / "cases" / "a" / "answers.yaml").read_text()


# ---- the commands ----


def test_the_commands(asking: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    asking.case("a", replay=[ask(PLACE)])
    asking.case("b", replay=[ask(PLACE)])
    asking.write()
    run = CliRunner()
    jobs = ["--jobs-dir", str(asking.jobs)]
    done = run.invoke(app, ["run", str(asking.eval), "--max-cost", "0.001", "-n", "1", *jobs])
    assert done.exit_code == 1
    for text in ("questions (1)", "Deploy where?", "modelled", "cost", "hook", "0.0020", "1,000", "the job is partial"):
        assert text in done.stdout, text
    [folder] = asking.jobs.glob("desk-*")
    shown = run.invoke(app, ["freeze", str(folder), "--dry-run", "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["written"][0]["answers"] == ["Production"]
    said = run.invoke(app, ["freeze", str(folder), "--case", "a"])
    assert "case a: wrote 'Deploy where?' → 'Production' (claude-haiku-4-5-20251001)" in said.stdout
    assert "1 answer in 1 file" in said.stdout
    assert read_trials(folder)[1].status == "pending"
    assert capsys.readouterr().out == ""


def test_the_folder_of_a_case_that_cannot_be_written(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.case("a", replay=[ask(PLACE)])
    ran = asking.run("replay")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(Exception, match=r"answers\.yaml: cannot be written \(No space left"):
        freeze(ran.folder, asking.eval)
    monkeypatch.undo()
    assert sorted(path.name for path in (asking.eval / "cases" / "a").iterdir()) == ["input.yaml", "replay.yaml"]


def test_the_commands_of_the_page_about_answers_do_what_it_says(
    tmp_path: Path, model: Model, repo_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    page = (repo_root / "docs" / "answers-and-cost.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in page.split("```sh\n")[1:]]
    lines = [line.partition("#")[0].split()[1:] for block in blocks for line in block.splitlines()]
    assert len(lines) == 5
    shutil.copytree(repo_root / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("jobs"))
    (tmp_path / ".git").mkdir()
    first, *others = sorted((tmp_path / "examples" / "skill-questions" / "cases").iterdir())
    (first / "answers.yaml").unlink()
    for path in others:  # one is enough
        shutil.rmtree(path)
    monkeypatch.chdir(tmp_path)
    said = []
    for words in lines:
        jobs = sorted((tmp_path / "jobs").glob("*"), key=lambda path: path.stat().st_mtime)
        done = CliRunner().invoke(app, [str(jobs[-1]) if word == "JOB" else word for word in words])
        assert done.exit_code == 0, (words, done.output)
        said.append(done.stdout)
    asked = len(model.requests)
    assert asked > 0
    assert "modelled" in said[0]
    assert said[1].replace("would write", "wrote").replace(" (dry run)", "") == said[2]
    assert "overridden" in said[3]
    assert "modelled" not in said[3], "the next job needed no model"
