"""What can go wrong between us and a Harbor server, without one: each is one line, and none holds the key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harbor_tasks.environments.harbor_api import API_VERSION, NoAnswerError, ServerApi, ServerError
from harbor_tasks.environments.harbor_server_run import ServerRun
from harbor_tasks.errors import AuthorError, HarborPackError, MachineError

from .fake_server import KEY, Answer, Fake, MakeFake, fine, problem

# ---- where the key goes ----


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("harbor.example", "not a server's URL"),
        ("ftp://127.0.0.1", "not a server's URL"),
        ("http://127.0.0.1:99999", "Port out of range"),
        ("http://127.0.0.1:8390?key=1", "not a server's URL"),
        (f"http://me:{KEY}@127.0.0.1:8390", "the URL holds a name or a password"),
    ],
)
def test_a_url_that_cannot_be_a_servers_is_the_authors_error(url: str, says: str) -> None:
    with pytest.raises(AuthorError, match=says) as caught:
        ServerApi(url, KEY)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("key", [f"{KEY}\nX-Evil: 1", f"{KEY}\x00", f"{KEY}é"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(AuthorError, match="no header can carry") as caught:
        ServerApi("http://127.0.0.1:8390", key)
    assert KEY not in str(caught.value)


def test_a_server_beyond_the_loopback_wants_a_key_before_anything_is_sent() -> None:
    with pytest.raises(AuthorError, match="wants a key; export HARBOR_API_KEY"):
        ServerApi("https://192.0.2.9:8390").check()


def test_a_key_does_not_cross_a_network_in_the_clear() -> None:
    with pytest.raises(AuthorError, match="cross the network unencrypted"):
        ServerApi("http://192.0.2.9:8390", KEY).check()


def test_the_key_is_sent_as_harbor_wants_it_and_to_nobody_else(make_fake: MakeFake) -> None:
    other = make_fake(lambda *_: fine({}))
    fake = make_fake(lambda *_: (307, {"Location": other.url + "/jobs"}, b"{}"))
    api = ServerApi(fake.url + "/", f" {KEY}\n")
    with pytest.raises(MachineError, match="HTTP 307"):
        api.ask("GET", "/jobs")
    [(line, headers)] = fake.asked
    assert line == "GET /jobs"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert headers["Harbor-API-Version"] == API_VERSION
    assert other.asked == []


# ---- what it answers ----


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (problem(401, "A valid bearer token is required."), MachineError, "refuses the key"),
        (problem(403, "Keyless access is restricted"), MachineError, "refuses the key"),
        (problem(400, "Harbor-API-Version must be 2031-01-01."), MachineError, "another API than Harbor 0.26"),
        (problem(503, "The service is shutting down."), NoAnswerError, "shutting down"),
        (problem(400, "Local task /x not found"), ServerError, "Local task /x not found"),
        ((404, {}, b"<html>nginx</html>"), MachineError, "is it a Harbor server"),
        ((200, {}, b"hello"), MachineError, "does not answer as a Harbor server"),
        ((200, {}, b"[]"), MachineError, "does not answer as a Harbor server"),
        ((200, {"Content-Length": "100"}, b"{"), NoAnswerError, "no answer"),
    ],
)
def test_each_way_to_fail_is_told_from_the_others(
    make_fake: MakeFake, answer: Answer, error: type[Exception], says: str
) -> None:
    fake = make_fake(lambda *_: answer)
    with pytest.raises(error, match=says) as caught:
        ServerApi(fake.url, KEY).ask("GET", "/jobs")
    assert type(caught.value) is error
    assert KEY not in str(caught.value)


def test_nobody_there_is_said_and_a_key_that_is_missing(make_fake: MakeFake) -> None:
    fake = make_fake(lambda *_: problem(401, "A valid bearer token is required."))
    with pytest.raises(MachineError, match="wants a key"):
        ServerApi(fake.url).check()
    with pytest.raises(NoAnswerError, match="Connection refused"):
        ServerApi("http://127.0.0.1:9", KEY).check()
    with pytest.raises(HarborPackError, match="example"):
        ServerApi("https://nowhere.example.invalid", KEY).check()


def test_a_download_that_breaks_off_is_no_file(make_fake: MakeFake, tmp_path: Path) -> None:
    fake = make_fake(lambda *_: (200, {"Content-Length": "200000"}, b"x" * 150_000))
    with pytest.raises(NoAnswerError):
        ServerApi(fake.url, KEY).download("file:///x", tmp_path / "x")
    fake = make_fake(lambda *_: (200, {}, b"x" * 150_000))
    ServerApi(fake.url, KEY).download("file:///x y", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"x" * 150_000
    assert fake.asked[0][0] == "GET /download?uri=file%3A%2F%2F%2Fx+y"


# ---- a run at it ----


def run_at(fake: Fake, folder: Path, said: list[str] | None = None) -> ServerRun:
    return ServerRun(folder, ServerApi(fake.url, KEY), "job-1", (said if said is not None else []).append)


def test_a_submission_whose_answer_was_lost_is_made_once(make_fake: MakeFake, tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(method: str, path: str) -> Answer:
        if path != "/jobs/submit":
            return problem(404, "no")
        seen.append(path)
        return problem(409, "taken", job_id="the-first") if len(seen) > 1 else problem(503, "hiccup")

    fake = make_fake(answer)
    (tmp_path / "config.json").write_text("{}")
    run = run_at(fake, tmp_path)
    run.start()
    assert run.job == "the-first"
    keys = {headers.get("Idempotency-Key") for line, headers in fake.asked if line.endswith("submit")}
    assert keys == {f"job-1-{tmp_path.name}"}
    assert json.loads((tmp_path / "server.json").read_text()) == {"server": fake.url, "job": "the-first"}


@pytest.mark.parametrize("key", ["../../escaped.txt", "/tmp/escaped.txt", "a/../../../escaped.txt"])
def test_a_file_of_the_servers_stays_in_its_folder(make_fake: MakeFake, tmp_path: Path, key: str) -> None:
    fake = make_fake(lambda *_: (200, {}, b"x"))
    run = run_at(fake, tmp_path)
    with pytest.raises(MachineError, match="has the name"):
        run._download({key: "file:///x"}, tmp_path / "in")
    assert not list(tmp_path.parent.glob("escaped.txt"))


def test_what_the_server_does_not_give_is_said_and_the_rest_comes(make_fake: MakeFake, tmp_path: Path) -> None:
    fake = make_fake(lambda _, path: problem(400, "no links") if "link" in path else (200, {}, b"content"))
    said: list[str] = []
    names = ("a/", "a/b/", "a/b/c.txt", "a/link")
    run_at(fake, tmp_path, said)._download({name: f"file:///{name}" for name in names}, tmp_path / "in")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "in", "in/a", "in/a/b", "in/a/b/c.txt"
    ]  # fmt: skip
    assert [line for line in said if "does not give a/link" in line]


def test_a_server_without_tls_is_said_as_that(make_fake: MakeFake) -> None:
    fake = make_fake(lambda *_: fine({}))
    with pytest.raises(MachineError, match="TLS fails there"):
        ServerApi(fake.url.replace("http:", "https:"), KEY).check()
