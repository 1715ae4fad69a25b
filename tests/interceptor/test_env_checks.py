"""Environment checks: the hook's environment, and what a command makes of a variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Decide

LOCAL = "http://localhost:8080"


def gate(**rules: Any) -> list[dict[str, Any]]:
    """A handler for MCP calls and commands that name the program."""
    return [{"match": "Tracker", "patterns": ["Bash", "mcp__t__*"], "input_filters": [r"\btracker\b"],
             "env_checks": {"TRACKER_URL": rules}}]  # fmt: skip


LOOPBACK = {"must_contain": ["localhost", "127.0.0.1"]}
WORDS = {"must_contain": ["emulator", "test"]}
PASS = [
    (LOOPBACK, "http://localhost"), (LOOPBACK, "http://localhost:8080/x?y#z"), (LOOPBACK, "HTTP://LOCALHOST:8080"),
    (LOOPBACK, "https://user:pw@localhost/"), (LOOPBACK, "localhost"), (LOOPBACK, "localhost:99"),
    (LOOPBACK, "localhost/path"), (LOOPBACK, "127.0.0.1"), (LOOPBACK, "http://127.0.0.1:1"), (LOOPBACK, "localhost."),
    (LOOPBACK, "redis://localhost:6379/0"), (LOOPBACK, "jdbc:postgresql://localhost:5432/db"),
    (LOOPBACK, "localhost:9092,127.0.0.1:9093"), (LOOPBACK, "//localhost/x"), (LOOPBACK, "use localhost here"),
    ({"must_contain": ["::1"]}, "http://[::1]:8080/"), ({"must_contain": ["localhost:8080"]}, LOCAL),
    ({"must_contain": ["http://localhost"]}, LOCAL), (WORDS, "https://jira.test"),
    (WORDS, "https://jira-test.acme.com"),
    (WORDS, "https://test.acme.com"), (WORDS, "emulator:80"), (WORDS, "emulator"), (WORDS, "my-emulator-1"),
    (WORDS, "TEST"), (WORDS, "contest"), (WORDS, "/srv/emulator/data"),
    ({"must_contain": ["jira-test"]}, "a.jira-test.b"),
    ({"must_contain": ["jira.test"]}, "http://x.jira.test/"), ({"equals": "a"}, "a"), ({"equals": ""}, ""),
    (LOOPBACK, "Server=localhost;Database=prod"), (LOOPBACK, "host=localhost port=5432 dbname=prod"),
    (LOOPBACK, "git@localhost:acme/x.git"), (LOOPBACK, "localhost:/srv/x"),
    (LOOPBACK, "jdbc:mysql:aurora://localhost/db"), (WORDS, "git@test.acme.example:o/x.git"), (WORDS, "mode=test"),
    ({"host_in": ["a.b"]}, "git@a.b:o/x.git"), ({"host_in": ["a.b"]}, "Server=a.b;Database=acme"),
    (LOOPBACK, "http://localhost:8080/a,b"), (LOOPBACK, "http://localhost/?a=1,2"),
    (LOOPBACK, "Server=localhost,1433;A=b"), (LOOPBACK, "Host=localhost;Database=my.db"),
    ({"host_in": ["[::1]"]}, "http://[::1]:80/"), ({"host_in": ["b\u00fccher.test"]}, "http://b\u00fccher.test/"),
    ({"host_in": ["localhost", "*.test"]}, "http://jira.test:8080/x"), ({"host_in": ["LocalHost"]}, "LOCALHOST"),
    ({"host_in": ["jira"]}, "jira"), ({"host_in": ["*.test"]}, "a.b.test"), ({"host_in": ["db?"]}, "db1:5432"),
    ({"matches": "[a-z]+"}, "abc"), ({"matches": "^http://"}, "http://x"), ({"matches": r"\.test$"}, "x.test"),
    ({"matches": "^a|b$"}, "a"), ({"must_contain": ["a"], "matches": "a."}, "ab"),
]  # fmt: skip
FAIL = [
    (LOOPBACK, None), (LOOPBACK, ""), (LOOPBACK, "https://acme.example"),
    (LOOPBACK, "https://acme.example/?ref=localhost"),
    (LOOPBACK, "https://acme.example/localhost"), (LOOPBACK, "https://acme.example#localhost"),
    (LOOPBACK, "https://localhost@acme.example"), (LOOPBACK, "https://localhost:x@acme.example"),
    (LOOPBACK, "https://localhost.acme.example"), (LOOPBACK, "https://acme-localhost.example"),
    (LOOPBACK, "notlocalhost.example"),
    (LOOPBACK, "acme.example/?ref=localhost"), (LOOPBACK, "acme.example:443/localhost"),
    (LOOPBACK, "acme:443/localhost"),
    (LOOPBACK, "http://127.0.0.1.acme.example"), (LOOPBACK, "http://localhost,acme.example"),
    (LOOPBACK, "http://localhost\\@acme.example"), (LOOPBACK, "http:\\\\acme.example\\localhost"),
    (LOOPBACK, "http:/acme.example/localhost"), (LOOPBACK, "//acme.example/localhost"),
    (LOOPBACK, "https://acme.example localhost"), (LOOPBACK, "acme.example\nlocalhost"),
    (LOOPBACK, "http://%6cocalhost"),
    (LOOPBACK, "http://[::1]:8080"), (LOOPBACK, "http://localhost\u3002acme.example"),
    (LOOPBACK, "user@acme.example/localhost"),
    (LOOPBACK, "https://x?localhost"), (LOOPBACK, "jdbc:postgresql://acme.example/localhost"), (LOOPBACK, "http://"),
    ({"must_contain": ["localhost:8080"]}, "http://localhost:9090"), (WORDS, "https://contest.acme.com"),
    (WORDS, "https://testing.acme.com"), (WORDS, "https://acme.com/test"), (WORDS, "latest.acme.com"),
    (WORDS, "prod"),
    *((LOOPBACK, value) for value in (
        "acme.example;localhost", "acme.example|localhost", "acme.example\\localhost", "acme.example%2flocalhost",
        "acme.example&x=localhost", "acm\u00e9.example/localhost", "acme\u3002example/localhost", "10.0.0.5;localhost",
        "2001:db8::1;localhost", "localhost;http://acme.example", "git@acme.example:localhost/x.git", "acme/localhost",
        "Server=acme.example;Database=localhost", "host=acme.example dbname=localhost", "acme,localhost",
        "Server=acme;Database=localhost", "acme.example:localhost", "acme.example:/localhost", "10.0.0.5:localhost",
        "acme:localhost", "file:///localhost", "http:///localhost", "http://localhost/x;http://acme.example",
        "localhost:pw@acme.example", "127.0.0.1:pw@acme.example:443", "host=localhost:x@acme dbname=d",
        "localhost:pw@acme,localhost", "postgresql://localhost/db?host=acme.example", "http://localhost/a,acme.example",
        "http://localhost/,acme", "http://localhost:80/,acme",
        "prefer-localhost", "Data Source=acme;Initial Catalog=localhost", "acme.example?localhost",
    )),
    *((WORDS, value) for value in (
        "acme.example:test/x", "acme.example;test",
        "Server=acme.example;Database=test", "host=acme.example dbname=test",
        "test:test@db.acme.example", "git@acme.example:test/x.git", "2001:db8::1;test", "acm\u00e9.example/test",
    )),
    *(({"host_in": ["a.b"]}, value) for value in (
        "acme.example:a.b/x.git", "acme.example:/a.b", "x:y:z", "file:///a.b", "http:///a.b", "a.b;acme.example",
        "Server=acme.example;Database=a.b", "acme@x@a.b", "x=a.b",
    )),
    ({"equals": "a"}, "A"), ({"equals": "a"}, "a "), ({"host_in": ["localhost"]}, "https://localhost.acme.example"),
    ({"host_in": ["*.test"]}, "https://x.test.acme.example"),
    ({"host_in": ["*.test"]}, "https://a.test@acme.example"),
    ({"host_in": ["jira"]}, "jira2"), ({"host_in": ["*"]}, ""), ({"host_in": ["localhost"]}, "localhost,acme"),
    ({"matches": "[a-z]+"}, "abc1"), ({"matches": "[a-z]+"}, "abc\n"), ({"matches": "^[a-z]+$"}, "abc\n"),
    ({"matches": "(?i)^http://x$"}, "http://x\n"), ({"matches": "x$"}, "x\n"),
    ({"matches": "US\\$"}, "US$ 5"), ({"host_in": ["*.test"]}, "a.test:pw@acme.example"),
    ({"matches": "x"}, "X"), ({"must_contain": ["a"], "equals": "b"}, "a"),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "value"), PASS)
def test_a_value_that_satisfies_its_rules_passes(rules: Any, value: str, decide: Decide) -> None:
    result = decide(gate(**rules), "mcp__t__get", {}, env={"TRACKER_URL": value})
    assert result["decision"] == "none"


@pytest.mark.parametrize(("rules", "value"), FAIL)
def test_a_value_that_does_not_is_denied_by_name_and_never_shown(rules: Any, value: str | None, decide: Decide) -> None:
    env = {} if value is None else {"TRACKER_URL": value}
    result = decide(gate(**rules), "mcp__t__get", {}, env=env)
    assert result["decision"] == "deny"
    assert "TRACKER_URL" in result["reason"]
    assert not value or value.strip() in ("", "a", "A", "x", "X", "b") or value not in result["reason"]


def test_all_variables_must_pass(decide: Decide) -> None:
    handler = {"match": "m", "patterns": ["mcp__*"], "env_checks": {"A": {"equals": "1"}, "B": {"equals": "2"}}}
    assert decide([handler], "mcp__t__get", {}, env={"A": "1", "B": "2"})["decision"] == "none"
    for env in ({"A": "1", "B": "x"}, {"A": "x", "B": "2"}, {"A": "1"}, {}):
        assert decide([handler], "mcp__t__get", {}, env=env)["decision"] == "deny"


KEEPS = [
    "tracker list", f"TRACKER_URL={LOCAL} tracker list", f"export TRACKER_URL='{LOCAL}'; tracker list",
    f"env TRACKER_URL=\"{LOCAL}\" tracker list", f"declare -x TRACKER_URL={LOCAL} && tracker list",
    "OTHER=https://acme.example tracker list", "echo $TRACKER_URL; tracker list", 'tracker --url "${TRACKER_URL}"',
    "tracker --url ${TRACKER_URL:-none}", "export TRACKER_URL; tracker list", "env -u OTHER tracker list",
    "printenv TRACKER_URL; tracker list", 'if [ "$TRACKER_URL" = x ]; then tracker list; fi',
    "unset OTHER; tracker list",
    "echo '{\"TRACKER_URL\": \"https://acme.example\"}' | jq .; tracker list", "env -C /tmp A=b tracker list",
    "python3 -c 'import os; print(os.environ[\"TRACKER_URL\"])'; tracker list", "exec -a x tracker list",
    "set -e; tracker list --env=prod", "printf -v OTHER x; tracker list \"$TRACKER_URL\"",
    "curl \"$TRACKER_URL?a=b\" | tracker in", "make env=prod tracker",
    "echo \"TRACKER_URL=$TRACKER_URL\" && tracker list", "printf 'TRACKER_URL: %s\\n' \"$TRACKER_URL\"; tracker",
    "declare -p TRACKER_URL; tracker list", "env | grep ^TRACKER_URL=; tracker list", "export A=\"$B\"; tracker list",
    "for v in TRACKER_URL OTHER; do echo $v; done; tracker list", "sudo --preserve-env=TRACKER_URL tracker list",
    "node -e 'const {TRACKER_URL} = process.env; run(TRACKER_URL)'; tracker list",
    "env A=b grep -i tracker f", "MY_TRACKER_URL=https://acme.example tracker list", "sudo -E tracker list",
    "git commit -m 'TRACKER_URL=https://acme.example' && tracker list", "printf '%s' \"${TRACKER_URL}\" | tracker in",
]  # fmt: skip
BREAKS = [
    "TRACKER_URL=https://acme.example tracker list", "A=b TRACKER_URL=https://acme.example tracker list",
    "export TRACKER_URL=https://acme.example; tracker list",
    "export A=b TRACKER_URL=https://acme.example\ntracker list",
    "TRACKER_URL=https://acme.example; export TRACKER_URL; tracker list",
    "export 'TRACKER_URL=https://acme.example'; tracker x",
    "env TRACKER_URL=https://acme.example tracker list", "env -i tracker list", "env - tracker list",
    "env -vi tracker list",
    f"env -i TRACKER_URL={LOCAL} tracker list", "env --ignore-environment tracker list",
        "nice env -u A -i tracker list",
    "env -u TRACKER_URL tracker list", "env -uTRACKER_URL tracker list", "env --unset=TRACKER_URL tracker list",
    "env --unset TRACKER_URL tracker list", "exec -c tracker list", "unset TRACKER_URL; tracker list",
    "unset -v A TRACKER_URL && tracker list", "read TRACKER_URL < url.txt; tracker list",
    "read -r A TRACKER_URL; tracker list",
    "export TRACKER_URL=$(cat url.txt) && tracker list", "TRACKER_URL=`cat url.txt` tracker list",
    "TRACKER_URL=$OTHER tracker list", 'TRACKER_URL="http://localhost:$PORT" tracker list',
    "TRACKER_URL+=.acme.example tracker list",
    ": ${TRACKER_URL:=https://acme.example}; tracker list", ": ${TRACKER_URL=x}; tracker list",
    "printf -v TRACKER_URL https://acme.example; tracker list",
    "declare TRACKER_URL=https://acme.example; tracker list",
    "typeset -x TRACKER_URL=https://acme.example; tracker list",
    "readonly TRACKER_URL=https://acme.example; tracker list",
    "f() { local TRACKER_URL=https://acme.example; tracker list; }; f", "f() { local TRACKER_URL; tracker list; }; f",
    "declare -n r=TRACKER_URL; r=https://acme.example; tracker list", "export -n TRACKER_URL; tracker list",
    "for TRACKER_URL in https://acme.example; do tracker list; done", "mapfile -t TRACKER_URL < f; tracker list",
    "bash -c 'TRACKER_URL=https://acme.example tracker list'",
    "eval \"TRACKER_URL=https://acme.example tracker list\"",
    "(TRACKER_URL=https://acme.example; tracker list)", "echo $(TRACKER_URL=https://acme.example tracker list)",
    "sudo TRACKER_URL=https://acme.example tracker list", "sudo tracker list", "su bob -c 'tracker list'",
    "docker run -e TRACKER_URL=https://acme.example tracker", "make TRACKER_URL=https://acme.example tracker",
    "TRACKER_'URL'=https://acme.example tracker list", "TRACKER_\\\nURL=https://acme.example tracker list",
    f"TRACKER_URL={LOCAL} TRACKER_URL=https://acme.example tracker list",
        "TRACKER_URL[0]=https://acme.example tracker list",
    "python3 -c 'import os; os.environ[\"TRACKER_URL\"] = \"https://acme.example\"; os.system(\"tracker\")'",
    "node -e 'process.env[\"TRACKER_URL\"]=x' && tracker list", "((TRACKER_URL++)); tracker list",
    "TRACKER_URL=https://acme.example tracker list 'x", "env -S'-i tracker list'", "env --split-string='-i tracker'",
    "env -S'TRACKER_URL=https://acme.example tracker'", "env --ignore-env tracker list",
    "env --uns=TRACKER_URL tracker",
    "env --chdir /tmp -i tracker", "env -C /tmp -i tracker", "env --unset TRACKER_URL tracker",
    "env -vu TRACKER_URL tracker",
    "env $OPTIONS tracker list", "exec -a x -c tracker list", "exec -ca x tracker", "printf -vTRACKER_URL x; tracker",
    "exec {TRACKER_URL}>f; tracker list", "wait -n -p TRACKER_URL; tracker list",
    "export TRACKER_$()URL=x; tracker list",
    "export TRACKER_{OTHER,URL}=https://acme.example; tracker",
    "x=TRACKER_URL; export $x=https://acme.example; tracker",
    "setenv TRACKER_URL https://acme.example; tracker", "set -x TRACKER_URL https://acme.example; tracker",
    "/usr/bin/env -i tracker list", "/bin/env -uTRACKER_URL tracker", "timeout 5 /usr/bin/env -i tracker list",
    "((TRACKER_URL = 5)); tracker list", "sudo --preserve-env=OTHER tracker", "export $(cat .env | xargs) && tracker",
    "declare -x $(cat f); tracker", "unset ${!TRACKER_*}; tracker list",
    "setpriv --reset-env tracker", "runuser -u bob tracker", "pkexec tracker list", "systemd-run --user tracker",
    *(f"python3 -c 'import os; {code}; os.system(\"tracker\")'" for code in (
        'os.putenv("TRACKER_URL", "x")', 'os.environ.pop("TRACKER_URL")', 'del os.environ["TRACKER_URL"]',
        "os.environ.clear()", 'os.environ.update(TRACKER_URL="x")', 'os.environ.update({"TRACKER_URL": "x"})',
        'subprocess.run("tracker", env={})', "os.environ = {}", 'os.environ |= {"TRACKER_URL": "x"}',
    )),
    "python3 - <<'EOF'\nos.environ['TRACKER_URL'] = 'x'\nos.system('tracker')\nEOF",
    "perl -e '$ENV{TRACKER_URL} = \"x\"; system \"tracker\"'", "perl -e 'delete $ENV{TRACKER_URL}; exec \"tracker\"'",
    "node -e 'process.env.TRACKER_URL = \"x\"; run(\"tracker\")'", "ruby -e 'ENV[\"TRACKER_URL\"] = \"x\"; `tracker`'",
]  # fmt: skip


@pytest.mark.parametrize("command", KEEPS)
def test_a_command_that_leaves_the_variable_alone_or_sets_a_good_value_passes(command: str, decide: Decide) -> None:
    assert decide(gate(**LOOPBACK), "Bash", {"command": command}, env={"TRACKER_URL": LOCAL})["decision"] == "none"


@pytest.mark.parametrize("command", BREAKS)
def test_a_command_that_sets_another_value_or_one_unknown_is_denied(command: str, decide: Decide) -> None:
    result = decide(gate(**LOOPBACK), "Bash", {"command": command}, env={"TRACKER_URL": LOCAL})
    assert result["decision"] == "deny"
    assert "TRACKER_URL" in result["reason"]
    assert "acme" not in result["reason"]


def test_a_good_assignment_does_not_make_up_for_the_hooks_environment(decide: Decide) -> None:
    command = {"command": f"TRACKER_URL={LOCAL} tracker list"}
    for env in ({}, {"TRACKER_URL": "https://acme.example"}):
        assert decide(gate(**LOOPBACK), "Bash", command, env=env)["decision"] == "deny"
