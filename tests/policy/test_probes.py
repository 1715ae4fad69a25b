from __future__ import annotations

from collections.abc import Callable

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval
from harbor_tasks.policy.handlers import handlers_of
from harbor_tasks.policy.lint import lint
from harbor_tasks.policy.probes import Probe, probes_of

MakeEval = Callable[..., Eval]


def test_the_probes_of_an_eval_are_data(make_eval: MakeEval) -> None:
    ev = make_eval(
        "probes:\n"
        "- {name: no push, tool: Bash, input: {command: git push}, expect: deny, reason_has: push}\n"
        "- {name: answers, tool: AskUserQuestion, input: {questions: []}, expect: answer, answers: {Q?: A}}\n"
    )
    first, second = probes_of(ev, None)
    assert first == Probe("no push", "Bash", {"command": "git push"}, "deny", reason_has=("push",))
    assert second.answers == {"Q?": "A"}


def test_probes_of_the_handlers_file_come_after_those_of_the_eval(make_eval: MakeEval) -> None:
    ev = make_eval(
        "probes:\n- {name: own, tool: Read, expect: none}\n",
        handlers="handlers: []\nprobes:\n- {name: brought, tool: Bash, input: {n: 1.50}, env: {V: 08}, expect: deny}\n",
    )
    problems = Problems()
    found = probes_of(ev, handlers_of(ev, problems))
    assert not problems.errors
    assert found[1] == Probe("brought", "Bash", {"n": 1.5}, "deny", env={"V": "08"})
    assert [one.name for one in found] == ["own", "brought"]


@pytest.mark.parametrize(
    ("probes", "says", "line"),
    [
        ("- {name: a, tool: Bash, expect: dney}\n", "probes[0].expect must be one of", 3),
        ("- {name: a, tool: Bash, expect: deny}\n- {name: a, tool: Bash, expect: deny}\n", "probe name", 4),
        ("- {name: a, tool: Bash, expect: deny, inptu: {}}\n", "inptu", 3),
        ("- {name: a, tool: Bash, expect: answer}\n", "only for AskUserQuestion", 3),
        ("  {}\n", "probes must be a list", 2),
        ("- {name: own, tool: Bash, expect: deny}\n", "has a probe 'own', as eval.yaml has one", None),
    ],
)  # fmt: skip
def test_faulty_probes_of_the_handlers_file(make_eval: MakeEval, probes: str, says: str, line: int | None) -> None:
    own = "probes:\n- {name: own, tool: Read, expect: none}\n"
    ev = make_eval(own, handlers=f"handlers: []\nprobes:\n{probes}")
    problems = Problems()
    lint(handlers_of(ev, problems), ev, problems)
    found = [one for one in problems.errors if says in one.message]
    assert [one.where.line for one in found] == [line], [str(one) for one in problems]
    assert found[0].where.path == ev.handlers_file
