"""`runner.settings`: more settings of the agent program, as far as they fit beside the policy's.

That none of them switches the policy off is checked where eval.yaml is read (`evalspec.rules`); here, that what is
merged with the policy's own permissions and environment has the same shape.
"""

from __future__ import annotations

from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.envrefs import env_references
from harbor_tasks.evalspec.load import Eval
from harbor_tasks.policy.places import Place, kind_of


def runner_settings(ev: Eval, problems: Problems) -> dict[str, Any]:
    """The settings that are merged into settings.json, without hooks; an error for each that cannot be merged."""
    settings = dict(ev.spec.runner.settings or {})
    settings.pop("hooks", None)
    place = Place(ev.document, problems, ("runner", "settings"))
    for key in ("permissions", "env"):
        if not isinstance(settings.get(key, {}), dict):
            place.at(key).error(f"must be a mapping, and is {kind_of(settings.pop(key))}", code="bad-setting")
    for which in ("allow", "deny", "ask"):
        rules = settings.get("permissions", {}).get(which, [])
        if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
            place.at("permissions", which).error("must be a list of rule texts", code="bad-permission")
    for name, value in settings.get("env", {}).items():
        if isinstance(value, str) and env_references(value):
            here = place.at("env", name)
            here.error("is a reference, which settings cannot hold", "put it into execution.env", "bad-setting")
    return settings
