"""The secrets scan: what is found, where, and how an eval allows it. No sample here is real."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harbor_tasks.bundles import pack, secrets
from harbor_tasks.bundles.listing import listed
from harbor_tasks.bundles.scan import Finding, find_secrets, glob
from harbor_tasks.bundles.secrets import OVERLAP, Hit, Scanner, name_hit, rule_name, values_of
from harbor_tasks.errors import AuthorError, Problems
from harbor_tasks.evalspec.reader import parse_yaml
from harbor_tasks.evalspec.secrets import RULES
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build
from tests.kit import write_files

A, N = "abcdefghij" * 8, "0123456789" * 8
SAMPLES = {
    "aws-access-key": "AKIA" + "QWERTYUIOPASDFGH",
    "azure-storage-account-access-key": "AccountKey=" + "a1B2" * 22,
    "basic-auth-credentials": "postgres://joe:" + "s3cretpw@db.example.com/x",
    "discord-bot-token": "M" + A[:23] + "." + A[:6] + "." + A[:27],
    "github-token": "ghp" + "_" + "A1b2" * 9,
    "gitlab-token": "glpat" + "-" + "A1b2C3d4E5f6G7h8I9j0",
    "json-web-token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + A[:43],
    "known-token": "sk-" + "ant-api03-" + A[:20],
    "mailchimp-access-key": "0123456789abcdef" * 2 + "-us12",
    "npm-tokens": "//registry.npm" + "js.org/:_auth" + "Token=npm_" + A[:36],
    "openai-token": "sk-" + "A1b2C3d4E5f6G7h8I9j0" + "T3Blbk" + "FJ" + "A1b2C3d4E5f6G7h8I9j0",
    "private-key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "pypi-token": "pypi-" + "AgEIcHlwaS5vcmc" + A[:70],
    "sendgrid-api-key": "SG" + "." + A[:22] + "." + A[:43],
    "slack-token": "xoxb" + "-1234567890-" + A[:24],
    "square-oauth-secret": "sq0" + "csp-" + A[:43],
    "stripe-access-key": "sk" + "_live_" + A[:24],
    "telegram-bot-token": "12345678:" + A[:35],
    "twilio-api-key": "SK" + "0123456789abcdef" * 2,
    "secret-keyword": 'db_password = "' + 'tr0ub4dor&3"',
}
PIECE = 1 << 15
VALUE = "tok-SECRET-42"


def scan(path: Path, name: str, content: str | bytes, *values: str) -> list[Hit]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Scanner(values).scan_file(path, name)


@pytest.mark.parametrize("rule", sorted(SAMPLES))
def test_each_rule_finds_its_kind_on_its_line(tmp_path: Path, rule: str) -> None:
    text = f"first\nsecond: ä\n  x {SAMPLES[rule]} \nlast\n"
    assert scan(tmp_path / "f", "notes.md", text) == [Hit(3, rule)]
    assert scan(tmp_path / "f", "notes.md", SAMPLES[rule]) == [Hit(1, rule)]


@pytest.mark.parametrize(
    "token",
    [
        "sk-" + "svcacct-" + "A1_b2-" * 8, "sk-" + "proj-" + "A1_b2-" * 8, "sk-" + "or-v1-" + N[:64],
        "hf" + "_" + A[:34], "gsk" + "_" + A[:52], "xai" + "-" + A[:80], "dop" + "_v1_" + N[:64],
        "shpat" + "_" + N[:32], "ya29" + "." + A[:40], "Authorization: " + "Bearer " + "a1B2" * 8,
        "'X-Api-Key: " + "a1B2" * 8 + "'", '"token": "' + "a1B2" * 8 + '"',
    ],
)  # fmt: skip
def test_tokens_of_other_vendors_are_known(tmp_path: Path, token: str) -> None:
    assert scan(tmp_path / "f", "notes.md", f"the key is {token}, keep it\n") == [Hit(1, "known-token")]


def test_the_rules_that_an_eval_can_allow_are_those_that_find() -> None:
    scanner = Scanner([])
    own = {"environment-value", "known-token", "secret-file", "secret-keyword"}
    assert {form.rule for form in scanner._forms} | own == set(RULES)
    assert rule_name(scanner._keyword) == "secret-keyword"
    assert set(SAMPLES) == set(RULES) - {"environment-value", "secret-file"}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("app.py", 'password = get("x")'),
        ("app.py", 'password = os.environ["DB_PASSWORD"]'),
        ("app.py", "password = hashed(value)"),
        ("app.py", '{"api_key": "SHOP_API_KEY", "secret": "none"}'),
        ("app.yaml", "password: required"),
        ("app.env", "API_KEY=${API_KEY}"),
        ("app.env", "API_KEY=$API_KEY"),
        ("app.yaml", "password: <password>"),
        ("app.yaml", "password: '{{ password }}'"),
        ("app.yaml", "password: '********'"),
        ("app.yaml", "password: changeme"),
        ("README.md", 'API_KEY="sk-..." and API_KEY="your-api-key-here"'),
        ("run.sh", "export API_KEY=your_key"),
        ("policy.yaml", "password_policy: at least 12 characters"),
        ("deploy.yaml", "secretName: my-tls-secret"),
        ("form.json", '{"passwordField": "pw-input", "secret_type": "staging-7"}'),
        ("form.json", '{"password": "must not be empty"}'),
        ("notes.yaml", 'notes: "password: see vault"'),
        ("run.sh", "secret=test"),
        ("x.md", "https://user:password@example.com"),
        ("x.md", 'curl -H "Authorization: Bearer $TOKEN" -H "Authorization: Bearer YOUR_ACCESS_TOKEN_GOES_HERE"'),
        ("x.txt", "https://{user}:{password}@host/"),
        ("x.txt", "postgres://joe:${PASSWORD}@host/"),
        ("x.txt", "the password is asked for twice; passwords: none"),
        ("x.txt", "disk-ant-hill task-0123456789"),
        ("x.txt", "0f343b0931126a20f133d67c2b018a3b 5d41402abc4b2a76b9719d911017c592"),
        ("x.txt", "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7" * 3),
        ("x.txt", "192.0.2.17 sha256:" + "ab" * 32),
    ],
)
def test_what_is_no_secret_is_not_found(tmp_path: Path, name: str, line: str) -> None:
    assert scan(tmp_path / "f", name, f"{line}\n") == []


def test_a_setting_needs_no_quotes_in_any_file(tmp_path: Path) -> None:
    assert scan(tmp_path / "f", "notes.txt", "AWS_SECRET_ACCESS_KEY=wJalr9XUtn\n") == [Hit(1, "secret-keyword")]
    assert scan(tmp_path / "f", "app.py", "PASSWORD=hash(value)\n") == []


def test_another_name_on_the_line_counts(tmp_path: Path) -> None:
    line = '{"password_policy": "strong", "password": "tr0ub4dor&3"}'
    assert scan(tmp_path / "f", "x.json", f"{line}\n") == [Hit(1, "secret-keyword")]


@pytest.mark.parametrize(
    "line",
    ['secret_id = "b0f1-77aa-secret"', 'password = "correct horse battery staple"', f'secret_name = "{"a1B2" * 6}"'],
)
def test_what_looks_like_a_name_or_words_is_found_all_the_same(tmp_path: Path, line: str) -> None:
    assert scan(tmp_path / "f", "app.py", f"{line}\n") == [Hit(1, "secret-keyword")]


@pytest.mark.parametrize("before", ["", "a", "ab"])
def test_values_are_found_escaped_and_encoded(tmp_path: Path, before: str) -> None:
    value = 'tok"SECRET\\42-and-more'
    coded = base64.b64encode(f"{before}{value}xyz".encode()).decode()
    for text in (f"x: {coded}", json.dumps({"x": value}), value):
        assert scan(tmp_path / "f", "x.txt", f"a\n{text}\n", value) == [Hit(2, "environment-value")]


@pytest.mark.parametrize(
    "name", [".env", "app.env", ".env.local", "run.sh", "app.conf", "app.yaml", "setup.cfg", "x.toml"]
)
def test_files_of_settings_need_no_quotes(tmp_path: Path, name: str) -> None:
    sign = ": " if name.endswith("yaml") else "="
    assert scan(tmp_path / "f", name, f"a=1\nPASSWORD{sign}hunter2-9\n") == [Hit(2, "secret-keyword")]


def test_a_file_cannot_allow_itself(tmp_path: Path) -> None:
    text = f"{SAMPLES['aws-access-key']}  # pragma: allowlist secret\n"
    assert scan(tmp_path / "f", "x.py", text) == [Hit(1, "aws-access-key")]


def test_two_secrets_on_a_line_are_two_findings_one_of_two_rules_is_one(tmp_path: Path) -> None:
    both = f"{SAMPLES['github-token']} {SAMPLES['known-token']}\n"
    assert scan(tmp_path / "f", "x.md", both) == [Hit(1, "github-token"), Hit(1, "known-token")]
    named = f'secret = "{SAMPLES["github-token"]}"\n'
    assert scan(tmp_path / "f", "x.py", named) == [Hit(1, "github-token")]


@pytest.mark.parametrize("rule", ["aws-access-key", "known-token", "secret-keyword", "environment-value"])
@pytest.mark.parametrize("at", [PIECE - 10, PIECE, PIECE + 5, 2 * PIECE - OVERLAP])
@pytest.mark.parametrize("lines", [True, False])
def test_large_files_are_read_in_pieces_that_cut_nothing_in_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, at: int, lines: bool
) -> None:
    monkeypatch.setattr(secrets, "PIECE", PIECE)
    sample = VALUE if rule == "environment-value" else SAMPLES[rule]
    before = ("x" * 79 + "\n" if lines else "x" * 80) * (at // 80) + " " * (at % 80)
    text = before + sample + (" y" * PIECE)
    assert scan(tmp_path / "f", "x.txt", text, VALUE) == [Hit(before.count("\n") + 1, rule)]


def test_values_are_found_in_any_file(tmp_path: Path) -> None:
    for content in (f"a\nb {VALUE}!", f"a\n\0{VALUE}", b"\x89PNG\r\n\0" + VALUE.encode() + b"\xff" * 100):
        assert scan(tmp_path / "f", "x", content, VALUE) == [Hit(2, "environment-value")]
    assert scan(tmp_path / "f", "x", VALUE[:-1], VALUE) == []


def test_other_encodings_and_binaries_are_looked_into(tmp_path: Path) -> None:
    text = f"ä\n{SAMPLES['aws-access-key']} {SAMPLES['known-token']}\n"
    found = [Hit(2, "aws-access-key"), Hit(2, "known-token")]
    assert scan(tmp_path / "f", "x.txt", text.encode("utf-16")) == found
    assert scan(tmp_path / "f", "x.txt", text.encode("latin-1")) == found
    assert scan(tmp_path / "f", "x.txt", f"ä\n{VALUE}\n".encode("utf-16"), VALUE) == [Hit(2, "environment-value")]
    assert scan(tmp_path / "f", "x.pyc", b"\0\1\2" + text.encode()) == [Hit(0, "aws-access-key")]


def test_long_lines_take_no_time(tmp_path: Path) -> None:
    text = "password=" * 20_000 + "\n" + "://a:" * 20_000 + "\n" + "eyJ" * 40_000 + "\n" + "aws key " * 10_000
    began = time.process_time()
    scan(tmp_path / "f", "x.js", text)
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("t/environment/files/.env", "t/environment/files/.env"),
        ("t/environment/files/.env.example", ""),
        ("t/environment/files/id_rsa", "t/environment/files/id_rsa"),
        ("t/environment/files/.netrc", "t/environment/files/.netrc"),
        ("t/environment/files/.git/objects/ab/cd", "t/environment/files/.git"),
        ("t/environment/files/ca.pem", ""),
        ("t/environment/files/server.key", "t/environment/files/server.key"),
        ("t/environment/files/git/config", ""),
    ],
)
def test_names_that_hold_secrets(path: str, found: str) -> None:
    assert name_hit(path, "") == (found, bool(found))


def test_a_folder_is_named_once() -> None:
    assert name_hit("t/.git/a", "") == ("t/.git", True)
    assert name_hit("t/.git/b", "t/.git") == ("t/.git", False)


def test_values_that_are_words_or_the_evals_own_do_not_count() -> None:
    caller = {"A": "short", "B": VALUE, "C": "production", "ANTHROPIC_API_KEY": "k" * 20, "OTHER": "x" * 20}
    assert sorted(values_of(["A", "B", "C", "D"], {"C": "production"}, caller)) == ["k" * 20, VALUE]


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("a/*/c.txt", "a/b/c.txt", True),
        ("a/*/c.txt", "a/b/b/c.txt", False),
        ("**/c.txt", "c.txt", True),
        ("**/c.txt", "a/b/c.txt", True),
        ("a/**", "a/b/c.txt", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
    ],
)
def test_patterns_of_paths(pattern: str, path: str, fits: bool) -> None:
    assert (glob(pattern).fullmatch(path) is not None) is fits


# ---- a whole eval ----

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Build an eval with these files of its one case; other keys of eval.yaml by name."""

    def build_it(files: dict[str, str], **keys: Any) -> Path:
        root = tmp_path / "p"
        write_files(root / "cases/c1", {"input.yaml": "prompt: x\n", **files})
        spec = {"name": "s", "dataset": {"path": "cases"}, "execution": {"prompt": "{{ input.prompt }}"}, **keys}
        (root / "eval.yaml").write_text(json.dumps(spec))
        return build(root, root / "out").out

    return build_it


def test_nothing_is_packed_while_a_finding_stands(make: Make, tmp_path: Path) -> None:
    tasks = make({
        "files/app.py": f"import x\nKEY = '{SAMPLES['aws-access-key']}'\n", "files/.env": "MODE=plain\n",
        "answers.yaml": f"Token?: {VALUE}\n",
    }, execution={"prompt": "x", "env": {"TRACKER_TOKEN": "$TRACKER_TOKEN"}})  # fmt: skip
    with pytest.raises(AuthorError) as caught:
        pack(tasks, tmp_path / "x.hpb", environ={"TRACKER_TOKEN": VALUE})
    found = [(str(p.where.path), p.where.line, p.message.split(":")[0]) for p in caught.value.problems]
    assert ("c1/environment/answers.yaml", 1, "environment-value") in found
    assert ("c1/environment/files/.env", None, "secret-file") in found
    assert ("c1/environment/files/app.py", 2, "aws-access-key") in found
    assert "c1/environment/files/app.py:2 (case c1): aws-access-key: holds what looks like a secret" in str(
        caught.value
    )
    assert VALUE not in str(caught.value)
    assert SAMPLES["aws-access-key"] not in str(caught.value)
    assert not list(tmp_path.glob("*.hpb"))


def test_what_the_eval_allows_by_path_and_rule_is_packed(make: Make, tmp_path: Path) -> None:
    files = {"files/a.md": SAMPLES["aws-access-key"], "files/b/c.md": f"{SAMPLES['aws-access-key']}\n"}
    allow = [{"path": "*/environment/files/a.md", "rule": "aws-access-key", "reason": "the vendor's example"}]
    tasks = make(files, bundle={"allow_secrets": allow})
    with pytest.raises(AuthorError) as caught:
        pack(tasks, tmp_path / "x.hpb", environ={})
    assert [str(p.where.path) for p in caught.value.problems] == ["c1/environment/files/b/c.md"]
    allow.append({"path": "**/c.md", "rule": "aws-access-key"})
    said: list[str] = []
    pack(make(files, bundle={"allow_secrets": allow}), tmp_path / "x.hpb", environ={}, say=said.append)
    assert said == []


@pytest.mark.parametrize(
    "name",
    ["plain.md", "a b.md", "a #b.md", "a: b.md", "*.md", "?.md", "[a].md", "{a}.md", "a,b.md", "'a'.md", 'a"b.md', "-",
     "&a", "!a", "|", "%a", "@a", "`a`", "~", "a\u00a0b", "a\u200bb", "\U0001f511", "\u0130.md", "null", "a ",
     "a:", "=", "**"],
)  # fmt: skip
def test_what_a_finding_says_can_be_pasted_and_allows_it(name: str, make: Make, tmp_path: Path) -> None:
    files = {f"files/{name}": SAMPLES["aws-access-key"], "files/other.txt": SAMPLES["slack-token"]}
    tasks = make(files)
    with pytest.raises(AuthorError) as caught:
        pack(tasks, tmp_path / "x.hpb", environ={})
    pasted = [str(problem).partition("allow it in eval.yaml: ")[2] for problem in caught.value.problems]
    assert all(line.startswith("bundle: {") and line.isprintable() for line in pasted)
    problems = Problems()
    allowed = []
    for line in pasted:  # as the eval's own reader has it
        document = parse_yaml(line.encode(), Path("eval.yaml"), problems)
        assert document is not None
        allowed += document.data["bundle"]["allow_secrets"]
        assert yaml.safe_load(line) == document.data
    assert not list(problems)
    assert pack(make(files, bundle={"allow_secrets": allowed}), tmp_path / "x.hpb", environ={}).tasks == 1


def test_an_entry_that_allows_nothing_is_said(make: Make, tmp_path: Path) -> None:
    allow = [{"path": "**", "rule": "slack-token"}]
    said: list[str] = []
    pack(make({}, bundle={"allow_secrets": allow}), tmp_path / "x.hpb", environ={}, say=said.append)
    assert said == ["bundle.allow_secrets: nothing is found by slack-token in **; the entry can go"]


def test_another_rule_at_an_allowed_place_stands(make: Make, tmp_path: Path) -> None:
    tasks = make(
        {"files/a.md": f"{SAMPLES['aws-access-key']} {SAMPLES['known-token']}"},
        bundle={"allow_secrets": [{"path": "**", "rule": "aws-access-key"}]},
    )
    with pytest.raises(AuthorError, match="known-token"):
        pack(tasks, tmp_path / "x.hpb", environ={})


def test_the_same_content_is_found_at_each_of_its_places(make: Make) -> None:
    text = f"x\n{SAMPLES['private-key']}\n"
    with listed(make({"files/a.md": text, "files/b.md": text, "reference.md": text})) as listing:
        found = list(find_secrets(listing, {}))
    assert found == [
        Finding(path, 2, "private-key")
        for path in ("c1/environment/files/a.md", "c1/environment/files/b.md", "c1/tests/references/reference.md")
    ]


def test_many_findings_are_counted(make: Make, tmp_path: Path) -> None:
    tasks = make({"files/a.md": f"{SAMPLES['private-key']}\n" * 300})
    with pytest.raises(AuthorError, match="… and 200 more findings"):
        pack(tasks, tmp_path / "x.hpb", environ={})


@pytest.mark.parametrize("name", ["issue-tracker", "skill-questions", "starter", "support-desk"])
def test_nothing_is_found_in_what_harbor_pack_writes_itself(tmp_path: Path, name: str) -> None:
    with listed(build(resource("examples") / name, tmp_path / "out").out) as listing:
        assert list(find_secrets(listing, {})) == []
