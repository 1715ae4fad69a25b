"""`bundle.allow_secrets` of eval.yaml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Load = Callable[..., Any]


def test_secrets_are_allowed_by_path_and_rule(load: Load) -> None:
    allowed = [{"path": "*/a.md", "rule": "private-key", "reason": "made up"}, {"path": "**", "rule": "secret-file"}]
    found = load(bundle={"allow_secrets": allowed})
    assert not found.warnings
    assert [(one.path, one.rule, one.reason) for one in found.ok.spec.bundle.allow_secrets] == [
        ("*/a.md", "private-key", "made up"), ("**", "secret-file", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("allowed", "says"),
    [
        ({"path": "a"}, "bundle.allow_secrets[0].rule is missing"),
        ({"rule": "private-key"}, "bundle.allow_secrets[0].path is missing"),
        ({"path": "../a", "rule": "private-key"}, "must not contain '..'"),
        ({"path": "/a", "rule": "private-key"}, "must be a relative path"),
        ({"path": "a", "rule": "privat-key"}, "'privat-key'; did you mean 'private-key'?"),
        ({"path": "a", "rule": "all"}, "known are aws-access-key, "),
        ({"path": "a", "rule": "private-key", "why": "x"}, "unknown key 'why'"),
    ],
)
def test_entries_that_would_allow_nothing_are_refused(load: Load, allowed: dict[str, Any], says: str) -> None:
    found = load(bundle={"allow_secrets": [allowed]})
    assert any(says in said for said in [*found.errors, *found.warnings])


def test_a_misspelled_key_is_an_error(load: Load) -> None:
    assert "did you mean 'allow_secrets'?" in load(bundle={"allow_secret": []}).errors[0]
