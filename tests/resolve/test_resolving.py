"""The whole of `resolve` with a scripted model: what is sent, what holds, what is written, what stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint, Reply, fails, says, uses
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.policy.resolve.model import DEFAULT_MODEL
from harbor_tasks.proving import prove
from harbor_tasks.proving.resolving import Resolution, resolve
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build, check

from . import kit


def resolved(eval_dir: Path, **more: Any) -> Resolution:
    """Resolve and write."""
    found = resolve(eval_dir, **more)
    assert found.holds, [*map(str, found.problems), *(row for row in found.rows if not row.ok)]
    if found.changed:
        found.write()
    return found


def refused(eval_dir: Path, *given: Reply, endpoint: Endpoint) -> str:
    """What is wrong with these proposals; nothing is written."""
    kit.replies(endpoint, *given)
    found = resolve(eval_dir)
    assert not found.holds
    assert not found.changed
    assert not (eval_dir / "tool_handlers.yaml").exists()
    return "\n".join([*map(str, found.problems), *(f"{row.name}: {row.misses}" for row in found.rows if not row.ok)])


def test_a_proposal_becomes_a_file_that_check_build_and_probe_use(
    eval_dir: Path, endpoint: Endpoint, really: None, tmp_path: Path
) -> None:
    found = resolved(eval_dir)
    assert (found.asked, found.model, len(found.rows)) == (1, DEFAULT_MODEL, 16)
    assert not check(eval_dir).problems.errors
    assert not {problem.code for problem in check(eval_dir).problems} & {"outdated-handlers", "unfiltered-bash"}
    report = prove(build(eval_dir, tmp_path / "out").out)
    assert [row.name for row in report.rows] == [row.name for row in found.rows]
    assert report.exit_code == 0
    head = found.new.splitlines()[:5]
    assert head[1] == f"# model: {DEFAULT_MODEL}"
    assert head[2].startswith("# time: 20")
    assert head[3] == f"# prompt: sha256:{found.prompt}"
    assert head[4].startswith("# inputs.tools: sha256:")


@pytest.mark.parametrize(
    "empty", ["", " \n\n", "# mine\n", "\ufeff# mine\r\n", "---\n", "# mine\n---\n# mine, too\n...\n", "null\n"]
)
def test_a_file_that_holds_nothing_is_written_and_its_comments_stay(
    eval_dir: Path, endpoint: Endpoint, empty: str
) -> None:
    path = eval_dir / "tool_handlers.yaml"
    path.write_bytes(empty.encode())
    [said] = [str(one) for one in check(eval_dir).problems.errors]
    assert said.endswith("without the file inputs.tools counts, and harbor-pack resolve writes it")
    found = resolved(eval_dir)
    assert (found.asked, len(found.rows)) == (1, 16)
    assert not check(eval_dir).problems.errors
    text = path.read_text()
    for comment in ("# mine", "# mine, too"):
        assert text.count(f"\n{comment}\n") == empty.count(f"{comment}\n") + empty.count(f"{comment}\r\n")
    assert resolve(eval_dir).asked == 0, "and the second time there is nothing to ask"


def test_no_secret_no_answer_no_value_of_a_variable_is_sent(
    eval_dir: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOBODY_SET_THIS", "a-token-of-the-caller")
    (eval_dir / "cases" / "c1" / "solution").mkdir()
    (eval_dir / "cases" / "c1" / "solution" / "solve.sh").write_text("the-secret-solution\n")
    resolved(eval_dir)
    [body] = kit.asked(endpoint)
    text = json.dumps(body)
    for secret in ("hunter2", "sk-ant-", "the-secret", "localhost:1234", "a-token", kit.KEY):
        assert secret not in text
    data = json.loads(body["messages"][0]["content"])
    assert data["environment_variables"] == ["API_TOKEN", "TRACKER_URL"]
    assert data["sample_inputs"] == [{"customer": "Ada", "password": "(hidden)", "note": "key (hidden)"}]
    assert data["recorded_calls"] == {"Bash": [{"command": "python3 submit.py now"}]}
    assert "mcp__desk__*" in data["tools"]
    assert [one["tools_named"] for one in data["rules"]] == [
        ["AskUserQuestion"],
        ["mcp__desk__refund"],
        ["Bash"],
        ["Bash"],
    ]


def test_samples_are_bounded_and_rules_are_not_cut(eval_dir: Path, endpoint: Endpoint) -> None:
    case = eval_dir / "cases" / "c1"
    (case / "input.yaml").write_text(json.dumps({f"k{n}": "x" * 10_000 for n in range(500)}))
    text = "word " * 4000
    more = kit.EVAL.replace("prompt: Deny.", f"prompt: {text}the-end")
    (eval_dir / "eval.yaml").write_text(more)
    resolve(eval_dir)
    content = kit.asked(endpoint)[0]["messages"][0]["content"]
    assert "the-end" in content
    assert len(content) < len(text) + 10_000
    nested: Any = "x" * 200
    for _ in range(4):
        nested = [nested] * 12
    (case / "input.yaml").write_text(json.dumps({"a": nested}))
    calls = [{"tool": f"mcp__desk__t{n}", "input": {"a": nested}} for n in range(2)]
    (case / "replay.yaml").write_text(json.dumps(calls))
    resolve(eval_dir)
    assert len(kit.asked(endpoint)[1]["messages"][0]["content"]) < len(text) + 20_000
    (eval_dir / "eval.yaml").write_text(kit.EVAL.replace("prompt: Deny.", f"prompt: {text * 11}"))
    with pytest.raises(AuthorError, match="shorten the prompts"):
        resolve(eval_dir)


def test_the_second_time_nobody_is_asked_and_nothing_changes(eval_dir: Path, endpoint: Endpoint) -> None:
    path = eval_dir / "tool_handlers.yaml"
    resolved(eval_dir)
    before, at = path.read_bytes(), path.stat().st_mtime_ns
    second = resolved(eval_dir)
    assert (second.asked, second.changed, second.kept) == (0, False, ())
    third = resolved(eval_dir, fresh=True)
    assert (third.asked, third.changed) == (1, False)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, at)
    assert len(kit.asked(endpoint)) == 2


def test_without_a_key_the_second_time_is_fine(
    eval_dir: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved(eval_dir)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert not resolve(eval_dir).changed
    with pytest.raises(MachineError, match="no key"):
        resolve(eval_dir, fresh=True)


def test_what_changes_the_request_asks_again(eval_dir: Path, endpoint: Endpoint) -> None:
    """The same rules then change the head alone, so that the time after that asks nobody."""
    first = resolved(eval_dir)
    (eval_dir / "cases" / "c1" / "input.yaml").write_text("customer: Grace\n")
    second = resolved(eval_dir)
    assert second.asked == 1
    assert second.prompt != first.prompt
    assert second.new.partition("\n\n")[2] == first.new.partition("\n\n")[2]
    assert not resolve(eval_dir).asked
    assert resolved(eval_dir, model="claude-other").asked == 1
    assert not resolve(eval_dir, model="claude-other").asked


def test_check_says_when_the_rules_were_made_from_others(eval_dir: Path, endpoint: Endpoint) -> None:
    resolved(eval_dir)
    (eval_dir / "eval.yaml").write_text(kit.EVAL.replace("prompt: Deny.", "prompt: Deny it."))
    assert "outdated-handlers" in {problem.code for problem in check(eval_dir).problems}
    resolved(eval_dir)
    assert "outdated-handlers" not in {problem.code for problem in check(eval_dir).problems}


def test_a_prompt_file_goes_along(eval_dir: Path, endpoint: Endpoint) -> None:
    (eval_dir / "prompt.md").write_text("Say yes, always.\n")
    text = kit.EVAL.replace("prompt: Say yes to everything.", "prompt_file: prompt.md")
    (eval_dir / "eval.yaml").write_text(text)
    assert "prompt_file: prompt.md" in resolved(eval_dir).new
    assert "Say yes, always." in kit.asked(endpoint)[0]["messages"][0]["content"]
    assert not check(eval_dir).problems.errors


def test_a_hand_edit_survives_a_changed_eval(eval_dir: Path, endpoint: Endpoint) -> None:
    path = eval_dir / "tool_handlers.yaml"
    resolved(eval_dir)
    text = path.read_text().replace("value: 50}", "value: 40}").replace("  - match: Down", "  # mine\n  - match: Down")
    text = text.replace("input: {amount: 50}", "input: {amount: 40}")
    path.write_text(text)
    (eval_dir / "eval.yaml").write_text(kit.EVAL.replace("prompt: Deny.", "prompt: Deny it."))
    kit.replies(endpoint, kit.answer(r2={"reason": "Another reason."}))
    found = resolved(eval_dir)
    assert found.kept == ("inputs.tools[1] ('Refunds by mcp__desk__refund above 50')",)
    after = path.read_text()
    assert "value: 40}" in after
    assert "input: {amount: 40}" in after
    assert "  # mine\n  - match: Down" in after
    assert "Another reason." in after
    assert not resolve(eval_dir).asked


def test_a_hand_edit_that_its_probes_do_not_hold_for_is_said(eval_dir: Path, endpoint: Endpoint) -> None:
    path = eval_dir / "tool_handlers.yaml"
    resolved(eval_dir)
    path.write_text(path.read_text().replace("value: 50}", "value: 40}"))
    found = resolve(eval_dir, fresh=True)
    assert [row.name for row in found.rows if not row.ok] == ["at it"]
    assert not found.changed


def test_a_probe_that_fails_goes_back_to_the_model_once(eval_dir: Path, endpoint: Endpoint) -> None:
    wrong = {"input_checks": [{"field": "amount", "op": "lt", "value_json": "50"}]}
    kit.replies(endpoint, kit.answer(r1=wrong), kit.answer())
    found = resolved(eval_dir)
    assert found.asked == 2
    first, second = (body["messages"][0]["content"] for body in kit.asked(endpoint))
    assert second.startswith(first)
    assert "the probe 'at it' (mcp__desk__refund): expected none, got deny" in second
    assert '"lt"' in second


def test_a_proposal_that_does_not_hold_twice_is_not_written(eval_dir: Path, endpoint: Endpoint) -> None:
    wrong = {"input_checks": [{"field": "amount", "op": "lt", "value_json": "50"}]}
    text = refused(eval_dir, kit.answer(r1=wrong), endpoint=endpoint)
    assert "at it: ('expected none, got deny" in text
    assert len(kit.asked(endpoint)) == 2
    kit.replies(endpoint, kit.answer(r1=wrong))
    diff = resolve(eval_dir).diff()
    assert "+    input_checks: [{field: amount, op: lt, value: 50}]" in diff  # it can be looked at


def test_the_forced_tools_answer_is_taken_alike(eval_dir: Path, endpoint: Endpoint) -> None:
    kit.replies(endpoint, fails(400, "output_config: unknown"), uses("propose", kit.PROPOSAL))
    assert resolved(eval_dir).asked == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"r1": {"patterns": ["*"]}}, "catches every tool"),
        ({"r2": {"input_filters": ["(a+)+$"]}}, "takes too long to search"),
        ({"r2": {"input_filters": ["curl["]}}, "is not valid"),
        ({"r2": {"input_filters": ["curl(?>x)"]}}, "only Python 3.11 and newer read"),
        ({"r2": {"reason": "This evaluation has no network."}}, "that it is evaluated"),
        ({"r3": {"env_checks": [kit.env_check("A-B", "x")]}},
         "is not the name of an environment variable"),
        ({"r3": {"env_checks": [kit.env_check("A")]}},
         "must hold one of"),
        ({"r3": {"env_checks": [kit.env_check("A", "http://x")]}},
         "must be a host alone"),
        ({"r3": {"env_checks": [kit.env_check("TRACKER_URL", "x.test")]}}, "execution.env gives TRACKER_URL fails"),
        ({"r3": {"input_filters": [r"^(curl|wget)\b"]}}, "never decides"),
        ({"r1": {"input_checks": [{"field": "amount", "op": "le", "value_json": "\"50 USD\""}]}}, "must be a number"),
        ({"r1": {"input_checks": [{"field": "a..b", "op": "exists", "value_json": "true"}]}}, "is not a dotted path"),
        ({"r2": {"caught": [kit.bash("curl a", env=[{"name": "PATH", "value": "/x"}]), kit.bash("curl b")]}}, "PATH"),
        ({"case_overrides": [{"question": "Go on?", "answers": ["Yes"]}, {"question": "go  ON?", "answers": ["No"]}]},
         "answer the same question twice: 'go  ON?'"),
    ],
)  # fmt: skip
def test_what_no_proposal_may_bring(eval_dir: Path, endpoint: Endpoint, change: dict[str, Any], says: str) -> None:
    assert says in refused(eval_dir, kit.answer(**change), endpoint=endpoint)


def test_findings_of_all_rules_are_said_at_once(eval_dir: Path, endpoint: Endpoint) -> None:
    given = kit.answer(r1={"patterns": ["*"]}, r2={"input_filters": ["curl["]}, r3={"reason": ""})
    text = refused(eval_dir, given, endpoint=endpoint)
    for words in ("catches every tool", "is not valid", "has no reason"):
        assert words in text


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"rules": [], "case_overrides": []}'])
def test_answers_that_are_no_proposal(eval_dir: Path, endpoint: Endpoint, text: str) -> None:
    assert refused(eval_dir, says(text), endpoint=endpoint)


def test_a_call_that_another_rule_decides_shows_nothing(eval_dir: Path, endpoint: Endpoint) -> None:
    caught = [kit.bash("curl x; python3 submit.py", env=kit.variable("http://other.test")),
              kit.bash("python3 submit.py d", env=kit.variable("http://other.test"))]  # fmt: skip
    text = refused(eval_dir, kit.answer(r3={"caught": caught}), endpoint=endpoint)
    assert "handlers[2] decided about it, not handlers[3]" in text


def test_a_call_may_pass_by_a_later_rule(eval_dir: Path, endpoint: Endpoint) -> None:
    """It came by the rule that it is for."""
    kit.replies(endpoint, kit.answer(r2={"passing": [kit.bash("python3 submit.py d"), kit.bash("ls")]}))
    assert resolve(eval_dir).holds
    kit.replies(endpoint, kit.answer(r3={"passing": [kit.bash("python3 submit.py d"), kit.bash("curl submit.py")]}))
    assert not resolve(eval_dir).holds


def test_an_example_whose_author_wrote_probes(tmp_path: Path, endpoint: Endpoint) -> None:
    eval_dir = tmp_path / "issue-tracker"
    shutil.copytree(resource("examples") / "issue-tracker", eval_dir)
    (eval_dir / ".git").mkdir()
    with pytest.raises(AuthorError, match="written by hand"):
        resolve(eval_dir)
    (eval_dir / "tool_handlers.yaml").unlink()
    tools = [f"mcp__tracker__{verb}_issue" for verb in ("delete", "close", "get", "list")]
    calls = [kit.probe(tool, tool, {"key": "CAD-1"}) for tool in tools]
    elsewhere = kit.variable("https://tracker.example.test")
    rules = [
        kit.rule(0, *tools[:2], caught=calls[:2], passing=calls[2:], reason="Write a comment instead."),
        kit.rule(
            1, "Bash", input_filters=[r"^(curl|wget|http|nc|ncat)\b"],
            caught=[kit.bash("curl -s http://localhost"), kit.bash("env A=1 wget x")],
            passing=[kit.bash("ls"), kit.bash("cat report.md")],
        ),
        kit.rule(
            2, "Bash", "mcp__tracker__*", input_filters=[r"\bsubmit\.py\b", r"\bTRACKER_URL\b"],
            env_checks=[kit.env_check("TRACKER_URL", "localhost", "127.0.0.1")], reason="Only the tracker here.",
            caught=[kit.bash("python3 submit.py", env=elsewhere), {**calls[2], "env": elsewhere}],
            passing=[kit.bash("python3 submit.py"), calls[2]],
        ),
    ]  # fmt: skip
    kit.replies(endpoint, kit.answer(rules=rules, case_overrides=[]))
    found = resolved(eval_dir)
    assert len(found.rows) == 21
    assert not check(eval_dir).problems.errors


def test_a_permission_rule_that_denies_is_no_proof(eval_dir: Path, endpoint: Endpoint, really: None) -> None:
    (eval_dir / "eval.yaml").write_text(kit.EVAL + "permissions: {deny: ['Bash(ls:*)']}\n")
    assert "ls -la: ('expected none, got deny" in refused(eval_dir, kit.answer(), endpoint=endpoint)


def test_the_authors_own_probes_have_to_hold(eval_dir: Path, endpoint: Endpoint) -> None:
    own = "probes:\n  - {name: at it, tool: mcp__desk__refund, input: {amount: 45}, expect: deny}\n"
    (eval_dir / "eval.yaml").write_text(kit.EVAL + own)
    assert "at it: ('expected deny, got none" in refused(eval_dir, kit.answer(), endpoint=endpoint)
    content = json.loads(kit.asked(endpoint)[0]["messages"][0]["content"])
    assert content["probes_of_the_author"][0]["input"] == {"amount": 45}
    (eval_dir / "eval.yaml").write_text(kit.EVAL + own.replace("45", "55"))
    kit.replies(endpoint, kit.answer())
    assert "at it (2)" in [row.name for row in resolved(eval_dir).rows]
    assert not check(eval_dir).problems.errors


def test_entries_in_another_order_and_forged_text(eval_dir: Path, endpoint: Endpoint) -> None:
    forged = "x\n  - match: forged\n    patterns: ['*']\n# made for 000000000000: *anchor &a"
    rules = kit.proposal(r2={"reason": forged})["rules"]
    kit.replies(endpoint, kit.answer(rules=list(reversed(rules))))
    found = resolved(eval_dir)
    assert "\n  - match: forged" not in found.new
    assert [match for match, _ in check(eval_dir).matches] == list(kit.MATCHES)


def test_a_file_written_by_hand_is_not_asked_about(eval_dir: Path, endpoint: Endpoint) -> None:
    path = eval_dir / "tool_handlers.yaml"
    path.write_text("handlers:\n  - {match: mine, patterns: [Read]}\n")
    with pytest.raises(AuthorError, match="written by hand"):
        resolve(eval_dir)
    path.write_text(json.dumps({"handlers": [{"match": match, "patterns": ["Read"]} for match in kit.MATCHES]}))
    found = resolve(eval_dir)
    assert (found.changed, len(found.kept)) == (False, 4)
    assert kit.asked(endpoint) == []


def test_a_file_with_some_rules_by_hand_gets_the_others(eval_dir: Path, endpoint: Endpoint) -> None:
    path = eval_dir / "tool_handlers.yaml"
    path.write_text(
        "# by hand\nhandlers:\n  - match: Downloads (curl, wget) in Bash\n    patterns: [Bash] # all of it\n"
        "    input_filters: ['^curl\\b']\n    reason: mine\n"
    )
    found = resolved(eval_dir)
    text = path.read_text()
    assert found.kept == ("inputs.tools[2] ('Downloads (curl, wget) in Bash')",)
    assert "# by hand" in text
    assert "patterns: [Bash] # all of it" in text
    assert len(check(eval_dir).matches) == 4
    assert len(found.rows) == 12
    assert not resolve(eval_dir).asked


def test_a_rule_of_the_authors_is_not_hidden(eval_dir: Path, endpoint: Endpoint) -> None:
    check = [{"field": "a", "op": "exists", "value": True}]
    mine = {"match": "mine", "patterns": ["mcp__desk__refund"], "input_checks": check}
    kept = {"match": kit.MATCHES[2], "patterns": ["Bash"], "input_filters": ["curl"]}
    path = eval_dir / "tool_handlers.yaml"
    path.write_text(json.dumps({"handlers": [mine, kept]}))
    assert "never decides: handlers[0] ('mine') catches its calls first" in str(resolve(eval_dir).problems[0])
    path.write_text(json.dumps({"handlers": [kept, mine]}))
    found = resolve(eval_dir)
    says = "handlers[4] ('mine'), the author's own, never decides any more: handlers[1] does"
    assert says in "\n".join(map(str, found.problems))
    assert not found.holds


def test_what_is_proposed_for_a_rule_of_the_authors_does_not_matter(eval_dir: Path, endpoint: Endpoint) -> None:
    path = eval_dir / "tool_handlers.yaml"
    path.write_text(
        "handlers:\n  - {match: 'Downloads (curl, wget) in Bash', patterns: [Bash], input_filters: [curl]}\n"
    )
    kit.replies(endpoint, kit.answer(r2={"patterns": ["*"], "input_filters": ["(("], "caught": []}))
    assert resolved(eval_dir).asked == 1


def test_entries_that_cannot_be_told_apart(eval_dir: Path, endpoint: Endpoint) -> None:
    (eval_dir / "eval.yaml").write_text(kit.EVAL + "    - match: Downloads (curl,  wget) in Bash\n")
    with pytest.raises(AuthorError, match=r"inputs\.tools\[4\] has the match of inputs\.tools\[2\]"):
        resolve(eval_dir)


def test_a_tool_that_is_left_out_is_a_warning(eval_dir: Path, endpoint: Endpoint) -> None:
    text = kit.EVAL.replace("Downloads (curl, wget) in Bash", "Downloads in Bash, WebFetch")
    (eval_dir / "eval.yaml").write_text(text)
    found = resolved(eval_dir)
    assert "names WebFetch, which its rule does not catch" in str(found.problems[0])


def test_faults_of_the_eval_and_of_the_file_come_first(eval_dir: Path, endpoint: Endpoint) -> None:
    path = eval_dir / "tool_handlers.yaml"
    path.write_text("handlers:\n  - {match: x}\n")
    with pytest.raises(AuthorError, match="has no key 'patterns'"):
        resolve(eval_dir)
    path.unlink()
    (eval_dir / "eval.yaml").write_text("name: x\ndataset: {path: cases}\nexecution: {prompt: go}\n")
    with pytest.raises(AuthorError, match=r"inputs\.tools is empty"):
        resolve(eval_dir)
    (eval_dir / "eval.yaml").write_text(kit.EVAL + "permissions: {deny: [Raed]}\n")
    with pytest.raises(AuthorError, match="Raed"):
        resolve(eval_dir)
    (eval_dir / "eval.yaml").write_text("nome: x\n")
    with pytest.raises(AuthorError):
        resolve(eval_dir)
    assert kit.asked(endpoint) == []


def test_somebody_else_wrote_the_file_meanwhile(eval_dir: Path, endpoint: Endpoint) -> None:
    found = resolve(eval_dir)
    (eval_dir / "tool_handlers.yaml").write_text("handlers: []\n")
    with pytest.raises(MachineError, match="was changed meanwhile"):
        found.write()
    assert (eval_dir / "tool_handlers.yaml").read_text() == "handlers: []\n"
    assert sorted(path.name for path in eval_dir.iterdir()) == [".git", "cases", "eval.yaml", "tool_handlers.yaml"]


def test_the_form_of_the_file_stays(eval_dir: Path, endpoint: Endpoint, tmp_path: Path) -> None:
    """A link, its mode, CRLF and a byte order mark."""
    path, real = eval_dir / "tool_handlers.yaml", tmp_path / "real.yaml"
    real.write_bytes(b"\xef\xbb\xbf# mine\r\nhandlers: []\r\n")
    real.chmod(0o640)
    path.symlink_to(real)
    resolved(eval_dir)
    content = real.read_bytes()
    assert path.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert content.count(b"\n") == content.count(b"\r\n")
    assert b"# mine\r\n" in content
    assert not check(eval_dir).problems.errors
    assert not resolve(eval_dir).asked


def test_variables_of_the_caller_reach_the_probes(eval_dir: Path, endpoint: Endpoint) -> None:
    (eval_dir / "eval.yaml").write_text(kit.EVAL.replace('"http://localhost:1234"', "$MY_TRACKER"))
    assert resolve(eval_dir, caller={"MY_TRACKER": "http://localhost:9"}).holds
    found = resolve(eval_dir, caller={"MY_TRACKER": "https://live.example.test"})
    assert [row.name for row in found.rows if not row.ok] == ["python3 submit.py b"]


def test_codex(eval_dir: Path, endpoint: Endpoint, really: None) -> None:
    (eval_dir / "eval.yaml").write_text(kit.EVAL + "runner: {type: codex}\n")
    rules = kit.proposal()["rules"]
    questions = [kit.question(f"Go {n}?") for n in range(2)]
    for one in questions:
        one["questions"][0]["id"] = "go"
    rules[0]["caught"] = [kit.probe(f"q{n}", "request_user_input", one) for n, one in enumerate(questions)]
    rules[0]["passing"] = [kit.bash("true"), kit.bash("ls")]
    kit.replies(endpoint, kit.answer(rules=rules))
    found = resolve(eval_dir)
    assert found.holds, [row for row in found.rows if not row.ok]
