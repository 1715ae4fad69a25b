"""A job at a Harbor server: submitted, followed, its trials fetched as they finish, cancelled with ours.

``server.json`` in the run's folder names the server's job, so that another process can go on following it: the server
works on when we are gone. A trial's folder comes from the server's disk where it can be read, so that it is what
`harbor run` would have left; else file by file through the API, which has no links, modes and names in ``.tmp``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from harbor_tasks.environments.base import Stop, TrialPlan
from harbor_tasks.environments.harbor_api import SUBMISSION_SECONDS, NoAnswerError, ServerApi, ServerError
from harbor_tasks.environments.harbor_command import Harbor
from harbor_tasks.environments.harbor_process import JOB, ORDERLY, PATIENCE, JobFolder
from harbor_tasks.environments.harbor_results import HarborTrial, load, read_harbor_trial
from harbor_tasks.environments.staging import copy_tree, remove_tree
from harbor_tasks.errors import MachineError

RECORD = "server.json"
"""In the run's folder: the server, its job, its Harbor's version."""
SILENCE = 60.0
"""Seconds without an answer until the server is given up: it may be restarted meanwhile."""
_TICK = 1.0
_CANCEL_SECONDS = 5.0
_OVER = ("finished", "cancelled")


@dataclass
class ServerRun(JobFolder):
    """One job of the server's, in a folder of ours."""

    folder: Path
    api: ServerApi
    name: str
    """How the server shows the job to people: the id of ours."""
    say: Callable[[str], None]
    job: str = ""
    """The server's id of it."""
    version: str = ""
    _digests: dict[str, str] = field(default_factory=dict)
    """By trial: the digest of the task that it has to run. Other trials of the server's job are not ours to fetch."""
    _fault: str | None = None
    _ours: bool = False
    """Was it submitted from here, so that it is ended from here?"""
    _over: bool = False
    """The server is done with it."""
    _enough: bool = False
    """Nothing that is wanted is left of it."""
    _trials: dict[str, str] = field(default_factory=dict)
    """By rollout (the server's word for a trial of its): the id of our trial."""
    _told: set[str] = field(default_factory=set)
    _cancelled: bool = False
    _paused: bool = False
    _silent: float | None = None
    """Since when the server has not answered, on the monotonic clock."""
    _restarted: bool = False
    """Has it been silent, and perhaps been started again?"""

    def write(
        self, plans: Sequence[TrialPlan], config: Mapping[str, Any], compose: Mapping[str, Any] | None,
        own: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:  # fmt: skip
        """As `JobFolder.write`."""
        super().write(plans, config, compose, own)
        self._digests = {plan.expected.trial: plan.expected.digest for plan in plans}

    def start(self) -> None:
        """Submit the job. What speaks against it is what `watch` says."""
        config = {**load(self.folder / "config.json"), "job_name": self.name}
        config.pop("jobs_dir", None)
        try:
            self.job = self._submit(config)
            self._ours = True
            self._record()
        except (MachineError, ServerError) as error:
            where = f"; may the server's user read {self.folder}?" if "not found" in str(error) else ""
            self._fault = f"the job cannot be submitted: {error}{where}"
            self._over = not self.job

    def _submit(self, config: Mapping[str, Any]) -> str:
        """The id of the server's job; asked again when the first answer was lost, the server takes it once."""
        once = f"{self.name}-{self.folder.name}"
        for last in (False, True):
            try:
                asked = {"config": config}
                found = self.api.ask("POST", "/jobs/submit", asked, once=once, seconds=SUBMISSION_SECONDS)
                return str(found["job_id"])
            except NoAnswerError:
                if last:
                    raise
                time.sleep(_TICK)
            except ServerError as error:
                if error.status == 409 and "job_id" in error.more:
                    return str(error.more["job_id"])
                raise
        raise AssertionError

    def _record(self) -> None:
        record = {"server": self.api.url, "job": self.job}
        (self.folder / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
        with suppress(MachineError, ServerError):  # it only says which Harbor it was
            lock = self.api.ask("GET", f"/jobs/{self.job}")["job"]["lock_uri"]
            self.api.download(lock, self.folder / "lock.json")
        self._read_version()

    def _read_version(self) -> None:
        self.version = str((load(self.folder / "lock.json").get("harbor") or {}).get("version") or "")
        if self.version and not Harbor(Path(), self.version).tested:
            self.say(f"warning: harbor-pack is tested with Harbor 0.26, and the server runs {self.version}")

    def again(self, wanted: Mapping[str, TrialPlan]) -> None:
        """Go on with a job that was submitted before: fetch what of it is wanted and was not fetched then."""
        self.job = str(load(self.folder / RECORD).get("job"))
        self._read_version()
        self._digests = {plan.expected.trial: plan.expected.digest for plan in wanted.values()}
        self._told = {path.name for path in (self.folder / JOB).glob("*") if not path.name.startswith(".")}
        try:
            self.api.ask("GET", f"/jobs/{self.job}")
        except ServerError:  # another server, or its data was removed
            self._over = True
        except MachineError as error:
            self._fault = str(error)

    def watch(
        self, stop: Stop, started: Callable[[str], None], finished: Callable[[HarborTrial], None],
        abandon: Callable[[], None],
    ) -> str | None:  # fmt: skip
        """Until the server's job has ended, or nothing wanted is left of it; what went wrong with the job."""
        asked: float | None = None
        abandoned = False
        while not self._ended():
            self._try_to_look(started, finished)
            if stop.wanted and not self._ended():
                moment = time.monotonic()
                if asked is None:
                    asked = moment
                    self._fault = self._cancel()
                if not abandoned and (stop.now or moment - asked > ORDERLY):
                    abandoned = True
                    abandon()
                if moment - asked > (ORDERLY if stop.now else PATIENCE):
                    self._fault = f"the server at {self.api.url} was told to end its job {self.job}, and has not yet"
            if not self._ended():
                time.sleep(_TICK / 4 if stop.wanted else _TICK)
        if self._fault is None and self._cancelled and not stop.wanted:
            return f"somebody cancelled the job {self.job} at the server"
        return self._fault

    def _ended(self) -> bool:
        """Is there nothing more to wait for?"""
        return self._over or self._enough or self._fault is not None

    def _try_to_look(self, started: Callable[[str], None], finished: Callable[[HarborTrial], None]) -> None:
        """Look, unless the server is silent, which it may be for a while."""
        try:
            self._look(started, finished)
            self._silent = None
        except NoAnswerError as error:
            self._restarted = True
            if self._silent is None:
                self._silent = time.monotonic()
                self.say(f"warning: {error}; waiting for it")
            elif time.monotonic() - self._silent > SILENCE:
                self._fault = f"{error}; --resume fetches what it has done of its job {self.job}, when it is back"
        except (MachineError, ServerError) as error:
            self._fault = f"the server's job {self.job} cannot be followed: {error}"

    def _look(self, started: Callable[[str], None], finished: Callable[[HarborTrial], None]) -> None:
        """One look at the server's job: tell of what has begun and what is done."""
        job = self.api.ask("GET", f"/jobs/{self.job}")["job"]
        over = job["state"] in _OVER
        waiting = False
        for rollout in self._rollouts():
            trial = self._trial(rollout)
            newest = rollout["id"] == rollout["retry_ids"][0]
            if trial not in self._digests or not newest or rollout["name"] in self._told:
                continue
            if f"started {trial}" not in self._told and rollout.get("started_at"):
                self._told.add(f"started {trial}")
                started(trial)
            # one with an error may be tried again, until the job is over
            done = rollout["state"] in _OVER and (over or not rollout.get("error_type"))
            if done:
                found = self._fetch(rollout["id"], rollout["name"])
                self._told.add(rollout["name"])
                if found is not None:
                    finished(found)
            waiting = waiting or not done
        self._cancelled = job["state"] == "cancelled"
        if job["state"] == "paused":
            self._wake()
        self._over = over
        self._enough = not self._ours and not waiting

    def _rollouts(self) -> Iterator[dict[str, Any]]:
        """All trials of the server's job, each try of them."""
        query = {"job_ids": str(self.job), "page_size": "100"}
        while True:
            page = self.api.ask("GET", "/rollouts", query=query)
            yield from page["items"]
            if not page.get("next_page_token"):
                return
            query["page_token"] = page["next_page_token"]

    def _trial(self, rollout: Mapping[str, Any]) -> str:
        """The id of our trial: the name of its task's copy. MachineError when the server has another task there."""
        known = self._trials.get(rollout["id"])
        if known is None:
            task = self.api.ask("GET", f"/rollouts/{rollout['id']}")["rollout"]["lock"]["task"]
            known = self._trials[rollout["id"]] = Path(task["path"]).name
            wanted = self._digests.get(known)
            if wanted is not None and task["digest"].removeprefix("sha256:") != wanted.removeprefix("sha256:"):
                raise MachineError(f"it has another task at {task['path']} than is here; is it another machine?")
        return known

    def _wake(self) -> None:
        """A server that comes back after a crash pauses what it had not begun; a pause by a person is left alone."""
        if self._restarted:
            self._restarted = False
            self.api.ask("POST", f"/jobs/{self.job}/resume")
        elif not self._paused:
            self._paused = True
            self.say(f"warning: the job {self.job} is paused at the server; it goes on when it is resumed there")

    def _fetch(self, rollout: str, name: str) -> HarborTrial | None:
        """A trial's folder, brought here under the trial's name; None when the server has no result of it."""
        detail = self.api.ask("GET", f"/rollouts/{rollout}")["rollout"]
        if detail.get("result") is None:
            return None
        if PurePosixPath(name).name != name:
            raise MachineError(f"a trial of the server's has the name {name!r}")
        beside, target = self.folder / JOB / f".{name}", self.folder / JOB / name
        remove_tree(beside)
        beside.parent.mkdir(exist_ok=True)
        own = _own_folder(detail)
        if own is None or not _copied(own, beside):
            self._download(detail["artifacts"], beside)
        (beside / "result.json").write_text(json.dumps(detail["result"]) + "\n", encoding="utf-8")
        beside.rename(target)
        return read_harbor_trial(target)

    def _download(self, artifacts: Mapping[str, str], target: Path) -> None:
        target.mkdir(exist_ok=True)
        for key, uri in sorted(artifacts.items()):
            parts = PurePosixPath(key).parts
            if not parts or ".." in parts or key.startswith("/"):
                raise MachineError(f"a file of the server's has the name {key!r}")
            place = target.joinpath(*parts)
            if key.endswith("/"):
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.api.download(uri, place)
            except ServerError as error:  # a link, or what went away since
                place.unlink(missing_ok=True)
                self.say(f"warning: the server does not give {key}: {error}")

    def _cancel(self) -> str | None:
        """Tell the server to end its job; why it could not be told."""
        try:
            self.api.ask("POST", f"/jobs/{self.job}/cancel", {"force": True}, seconds=_CANCEL_SECONDS)
        except (MachineError, ServerError) as error:
            return f"the server could not be told to end its job {self.job}, and may go on with it: {error}"
        return None

    @property
    def goes_on(self) -> bool:
        """Does the server work on at what was submitted earlier, and is not wanted now?"""
        return self._enough and not self._over

    def kill(self) -> None:
        """End the job that was submitted from here, if it may still run."""
        if self._ours and not self._over:
            self._ours = False
            self._over = self._cancel() is None

    def clear(self) -> None:
        """The copies of the tasks are not kept, unless the server may still work from them."""
        if self._over:
            super().clear()


def _own_folder(detail: Mapping[str, Any]) -> Path | None:
    """The trial's folder on the server's disk, where that is ours too: it holds the result of this very trial."""
    parts = urlsplit(str(detail["result"].get("trial_uri") or ""))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    folder = Path(url2pathname(parts.path))
    return folder if load(folder / "result.json").get("id") == detail["id"] else None


def _copied(folder: Path, target: Path) -> bool:
    """Copy a folder; False, and nothing of it, when something in it cannot be read."""
    try:
        copy_tree(folder, target)
    except OSError:
        remove_tree(target)
        return False
    return True
