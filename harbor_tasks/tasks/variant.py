"""An eval as if it were written for another agent program: its policy is what that program's hooks are asked about.

What is one program's alone (effort, permission mode, settings, the model) is left out. A model of the other program's
takes the place of the eval's own, for a program offers its tools by the model: an unknown one would not be offered all.
"""

from __future__ import annotations

from dataclasses import replace

from harbor_tasks.evalspec import Eval
from harbor_tasks.evalspec.schema import Runner

MODELS = {"codex": "gpt-5.5"}
"""A model of each program that is offered all of its tools, each by itself."""


def variant_of(ev: Eval, runner: str) -> Eval:
    """The eval for this program."""
    own = ev.spec.runner
    kept = {"type": runner, "plugin_dirs": own.plugin_dirs, "system_prompt": own.system_prompt}
    models = ev.spec.models.model_copy(update={"skill": MODELS.get(runner), "subagent": None})
    spec = ev.spec.model_copy(update={"runner": Runner.model_validate(kept), "models": models})
    return replace(ev, spec=spec)
