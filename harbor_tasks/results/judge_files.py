"""What a verifier left for `score`: its verdicts, what model judges are asked, and the replies so far.

In a sandbox that is not sealed all of it is the agent's word. So what is asked, and how it is counted, must be what the
job's own record has (``job.json``, from build.json): else a run could choose its judges, their models, and what the
caller pays. The data of a request is the run's in any case.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import Job, JudgeResult, Trial
from harbor_tasks.errors import display_path
from harbor_tasks.evalspec.schema import Reward
from harbor_tasks.resources import script_module
from harbor_tasks.tasks.judging import reward_config

REQUESTS, REPLIES, VERDICTS = "judge_requests.json", "judge_replies.jsonl", "judges.json"
MAX_FILE = 256 << 20
"""Bytes of one file."""
_AGAIN, _CHANGED = "run the case again", "the file was changed"


class NotWholeError(Exception):
    """A trial's files cannot be judged by; the text is one line: what, where, what to do."""


@dataclass
class Part:
    """A trial, or one step of it, as its verifier left it."""

    trial: str
    label: str
    folder: Path
    """Of the verifier."""
    kept: dict[str, Any]
    """judge_requests.json, without the bodies."""
    report: dict[str, Any]
    """judges.json."""
    replies: Any

    def judges(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The model judges that have a request, of these names or all."""
        for judge in self.kept["judges"]:
            if judge["name"] in self.kept["requests"] and (not names or judge["name"] in names):
                yield judge

    def body(self, name: str) -> dict[str, Any]:
        """A request; those of a whole job would fill the memory, so it is read when it is sent."""
        one = (load(self.folder / REQUESTS).get("requests") or {}).get(name) or {}
        body: dict[str, Any] = one.get("body") or {}
        if script_module("judge").digest(body) != self.kept["requests"][name]["digest"]:
            raise _fault(self.folder / REQUESTS, f"what judge {name!r} is asked has changed since this score began")
        return body

    def take(self, judge: Mapping[str, Any], answer: dict[str, Any], seconds: float | None) -> dict[str, Any]:
        """Put a judge's verdict in place of its old one, and the reward that follows; its line.

        ``seconds``: what it took; None when nothing was asked, and the old line has it.
        """
        verify = script_module("verify")
        answer["cut"] = self.kept["requests"][judge["name"]].get("cut")
        lines = self.report["judges"]
        at = next(at for at, one in enumerate(lines) if one["name"] == judge["name"])
        took = lines[at].get("seconds") if seconds is None else round(seconds, 3)
        line: dict[str, Any] = {**verify.verdict(judge, answer), "seconds": took}
        lines[at] = line
        verify.write_verdict(str(self.folder), self.report, verify.rewarded(self.kept, self.report))
        return line


def read_part(job: Job, trial: Trial, step: str | None, label: str, folder: Path) -> Part | None:
    """What the verifier of a trial, or of a step, left; None when it has no model judge, or did not come that far.

    NotWholeError when it is not whole, or not what the job asks.
    """
    wanted = _wanted(job, step)
    if not any(judge["kind"] == "prompt" for judge in wanted["judges"]):
        return None
    report = load(folder / VERDICTS)
    if trial.error is not None and (not report or report.get("error")):  # which the trial says
        return None
    _check_verdicts(report, wanted, folder / VERDICTS)
    kept = load(folder / REQUESTS)
    _check_kept(kept, wanted, folder / REQUESTS)
    _check_requests(kept, report, job, folder / REQUESTS)
    try:
        replies = script_module("judge").Replies(str(folder))
    except OSError as error:
        then = "remove it, and what it held is asked again"
        raise _fault(folder / REPLIES, f"cannot be read ({error.strerror})", then) from None
    return Part(trial.id, label, folder, {**wanted, "requests": kept["requests"]}, report, replies)


def load(path: Path) -> dict[str, Any]:
    """A JSON object of a verifier, empty when there is none; no link is followed, no FIFO waited for."""
    try:
        with script_module("verify").open_log(str(path)) as file:
            data = json.loads(file.read(MAX_FILE))  # cut off, it is no JSON
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _fault(path: Path, what: str, then: str = _AGAIN) -> NotWholeError:
    return NotWholeError(f"{display_path(path)}: {what}; {then}")


def _wanted(job: Job, step: str | None) -> dict[str, Any]:
    """By the job's record: the judges of a verifier, and how it makes the reward (`judges_config`)."""
    steps = [str(one["id"]) for one in job.manifest.get("steps") or []]
    final = step is None or step == steps[-1]
    judges = [
        judge
        for judge in job.manifest.get("judges") or []
        if judge.get("step") == step or (final and judge.get("step") is None)
    ]
    reward = Reward.model_validate(job.manifest.get("reward") or {})
    keys = script_module("verify").SCORED_BY
    return {
        "final": final,
        "reward": reward_config(reward, {judge["name"] for judge in judges}, final=final),
        "judges": [{key: judge[key] for key in keys if judge.get(key) is not None} for judge in judges],
    }


def _check_verdicts(report: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    """One verdict of each judge, in order, of the form that a verifier writes."""
    try:
        found = [JudgeResult.model_validate_json(json.dumps(line), strict=True) for line in report["judges"]]
        whole = [(one.name, one.kind) for one in found] == [(one["name"], one["kind"]) for one in wanted["judges"]]
        whole = whole and all(0 <= (one.normalized or 0) <= 1 for one in found if one.status == "ok")
    except (LookupError, TypeError, ValueError, RecursionError):
        whole = False
    if not whole or report.get("error"):
        raise _fault(path, "it is missing, or its verdicts are not those of the job's judges")


def _check_kept(kept: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    """What the judges are, and what the reward is made of, is what the job has."""
    if not isinstance(kept.get("judges"), list) or not isinstance(kept.get("requests"), dict):
        raise _fault(path, "what model judges are asked is missing, or cannot be read")
    if len(kept["judges"]) != len(wanted["judges"]):
        raise _fault(path, f"its judges are not those of the job; {_CHANGED}")
    for found, judge in zip(kept["judges"], wanted["judges"], strict=True):
        keys = [key for key in {**judge, **found} if found.get(key) != judge.get(key)] if type(found) is dict else [""]
        if keys:
            raise _fault(path, f"{keys[0] or 'what it says'} of judge {judge['name']!r} is not the job's; {_CHANGED}")
    for key in ("reward", "final"):
        if kept.get(key) != wanted[key]:
            raise _fault(path, f"its {key!r} is not the job's; {_CHANGED}")


def _check_requests(kept: Mapping[str, Any], report: Mapping[str, Any], job: Job, path: Path) -> None:
    """Each request is one of its judge's, and none is missing."""
    asks = {judge["name"]: judge.get("asks") for judge in job.manifest["judges"] if judge["kind"] == "prompt"}
    for line in report["judges"]:
        name = line["name"]
        if name not in kept["requests"]:
            if line["status"] == "pending":
                raise _fault(path, f"what judge {name!r} is asked is missing; {_CHANGED}")
        elif asks.get(name, "") is None:
            what = f"the job does not know what judge {name!r} asks, since its tasks are an earlier version's"
            raise _fault(path, what, "build the eval again, and run it")
        elif not _is_asked(kept["requests"][name], asks.get(name)):
            raise _fault(path, f"what judge {name!r} is asked is not what the job asks; {_CHANGED}")
    unknown = sorted(kept["requests"].keys() - asks.keys())
    if unknown:
        raise _fault(path, f"it asks {unknown[0]!r}, which is no model judge of the job; {_CHANGED}")


def _is_asked(one: Any, asks: str | None) -> bool:
    """Is it a request as the judge makes it? Its body is taken out."""
    module = script_module("judge")
    try:
        body = one.pop("body")
        same = module.digest(body) == one["digest"] and module.digest(module.without_data(body)) == asks
        return same and all(isinstance(text, str) for text in one.get("cut") or ())
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return False
