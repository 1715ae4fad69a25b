"""An agent attacks its sealed sandbox, in containers and under real Harbor: nothing works, or the trial is void."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from .kit import FORBIDDEN, NO_BASH, NO_WRITE, Played, bash, built_eval, play, spec

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module", params=["docker", pytest.param("harbor", marks=pytest.mark.harbor)])
def place(request: pytest.FixtureRequest) -> tuple[str, Path | None]:
    """Where the attack is made."""
    found: str = request.param
    return found, request.getfixturevalue("harbor_bin") if found == "harbor" else None


@pytest.fixture(scope="module")
def played(
    attacks: Path, place: tuple[str, Path | None], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Played]:
    """The attacks, made."""
    return play(attacks, place[0], tmp_path_factory.mktemp("jobs"), place[1])


@pytest.fixture(scope="module")
def stepped(attacks_in_steps: Path, place: tuple[str, Path | None], tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The attack from one step to the next, made."""
    return play(attacks_in_steps, place[0], tmp_path_factory.mktemp("jobs"), place[1])["steps"]


def assert_denied(found: Played) -> None:
    """The forbidden calls are denied, each with its line in the log, and had no effect."""
    for text, reason in (("forbidden-by-bash", NO_BASH), ("forbidden-by-write", NO_WRITE)):
        calls = found.of(text)
        assert calls
        for call in calls:
            assert (call.is_error, call.result) == (True, reason)
            assert (found.log[call.id]["decision"], found.log[call.id]["reason"]) == ("deny", reason)
    assert found.made == set()


def assert_true_reward(found: Played) -> None:
    """What the judges found, not what was planted."""
    assert found.trial.error is None
    assert (found.trial.status, found.trial.sealed, found.trial.reward) == ("scored", True, 0.25)
    kept = [judge for judge in found.trial.judges if judge.name == "kept"]
    assert [(judge.passed, judge.error) for judge in kept] == [(True, None)], kept


def test_nothing_that_the_agent_tries_at_once_gets_it_anywhere(played: dict[str, Played]) -> None:
    assert played["attack"].broke() == [{}]


def test_while_its_processes_kill_and_plant_the_forbidden_calls_stay_denied(played: dict[str, Played]) -> None:
    assert_denied(played["attack"])
    [answer] = [call for call in played["attack"].calls if call.tool == "AskUserQuestion"]
    assert '"Which?"="Tin"' in str(answer.result)


def test_the_reward_is_the_true_one(played: dict[str, Played]) -> None:
    assert_true_reward(played["attack"])


def test_the_log_holds_what_the_agent_program_asked_and_nothing_else(played: dict[str, Played]) -> None:
    found = played["attack"]
    covered = {call.id for call in found.calls if call.tool in ("Bash", "Write", "AskUserQuestion")}
    assert set(found.log) == covered
    assert not any("interception log" in warning for warning in found.trial.warnings)


def test_used_up_processes_leave_the_hook_its_own(played: dict[str, Played]) -> None:
    """A hook that finds no process to start in fails open in the agent program."""
    assert played["exhaustion"].of("attack.py exhaust")
    assert_denied(played["exhaustion"])
    assert_true_reward(played["exhaustion"])


def test_hundreds_of_busy_processes_do_not_make_the_hook_too_late(played: dict[str, Played]) -> None:
    """After its limit, 45 s, the agent program would let the call through."""
    found = played["starvation"]
    assert_denied(found)
    assert_true_reward(found)
    denied = [datetime.fromisoformat(line["time"]) for line in found.log.values() if line["decision"] == "deny"]
    assert (max(denied) - min(denied)).total_seconds() < 15  # three hooks


def test_calls_that_ran_without_the_hook_void_the_trial(
    sandboxes: None, place: tuple[str, Path | None], tmp_path: Path
) -> None:
    """As if somebody had found a way: the agent program of this trial knows of no hook."""
    with built_eval(tmp_path, spec(), {"unhooked": [bash("date"), *FORBIDDEN]}) as built:
        [setup] = built.glob("*/environment/setup")
        text = setup.read_text()
        assert text.count('{"PreToolUse":') == 1
        setup.write_text(text.replace('{"PreToolUse":', '{"Stop":'))
        found = play(built, place[0], tmp_path / "jobs", place[1])["unhooked"]
    assert found.made
    assert (found.trial.status, found.trial.reward) == ("error", None)
    assert found.trial.error is not None
    assert found.trial.error.kind == "tampered"
    assert found.trial.error.message.count("without passing the interceptor") == 3


@pytest.mark.parametrize("broken", ["hooks/tools.py", "tool_handlers.yaml"])
def test_a_sandbox_whose_hook_cannot_decide_is_an_environment_error_and_no_score(
    sandboxes: None, place: tuple[str, Path | None], broken: str, tmp_path: Path
) -> None:
    with built_eval(tmp_path, spec(), {"broken": [bash("date")]}) as built:
        [file] = built.glob(f"*/environment/{broken}")
        file.write_text("raise SystemExit(1)\n")
        found = play(built, place[0], tmp_path / "jobs", place[1])["broken"]
    assert (found.trial.status, found.trial.reward) == ("error", None)
    assert found.trial.error is not None
    assert found.trial.error.kind == "environment"
    assert "setup: the hook" in found.trial.error.message
    assert found.calls == []


def test_what_a_step_leaves_behind_does_nothing_to_the_next(stepped: Played) -> None:
    assert stepped.broke() == [{}]
    assert_denied(stepped)
    assert_true_reward(stepped)
    [listing] = stepped.of("ls /logs/verifier")
    assert listing.is_error
    assert "cannot access '/logs/verifier': Permission denied" in str(listing.result)
    assert "judges.json" not in str(listing.result)


def test_a_steps_own_variables_reach_its_commands_and_its_hook(stepped: Played) -> None:
    assert [call.result for call in stepped.of("echo $MODE")] == ["first", "second"]
    deploys = [call for call in stepped.calls if call.tool == "mcp__desk__deploy"]
    assert [stepped.log[call.id]["decision"] for call in deploys] == ["deny", "none"]
    assert [call.is_error for call in deploys] == [True, False]
