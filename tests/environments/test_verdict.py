"""What is read of a verifier's folder, whatever lies there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harbor_tasks.environments.contained import Ended
from harbor_tasks.environments.verdict import Verdict, read_verdict


def read(folder: Path) -> Verdict:
    return read_verdict(folder, folder / "verifier.log", Ended("exited", 0, 1.0, 0))


def test_a_reward_that_is_no_number_is_none(tmp_path: Path) -> None:
    (tmp_path / "judges.json").write_text('{"judges": []}')
    for reward, found in (("0.5", 0.5), ("1", 1.0), ("NaN", None), ("1e999", None), ("true", None), ("9" * 400, None)):
        (tmp_path / "reward.json").write_text(f'{{"reward": {reward}}}')
        assert read(tmp_path).reward == found


@pytest.mark.parametrize("text", ["", "[]", "{", '{"judges": 5}', '{"judges": [], "unjudged": 5}', "[" * 10**6])
def test_verdicts_that_cannot_be_read_are_the_verifiers_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "judges.json").write_text(text)
    error = read(tmp_path).error
    assert error is not None
    assert (error.kind, error.message[:32]) == ("verifier", "no judges.json that can be read ")


def test_what_was_put_in_their_place_is_not_followed_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "judges.json").symlink_to("/dev/zero")
    assert read(tmp_path).status == "error"
    (tmp_path / "judges.json").unlink()
    os.mkfifo(tmp_path / "judges.json")
    assert read(tmp_path).status == "error"
    (tmp_path / "judges.json").unlink()
    (tmp_path / "judges.json").write_text('{"judges": []}')
    os.mkfifo(tmp_path / "reward.json")
    assert read(tmp_path).status == "unjudged"
