"""Evals for tests of images, the engine, and the removal of every image that a test made."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harbor_tasks.environments.engine import Engine, find_engine
from harbor_tasks.images import ImageRef, ensure_image
from harbor_tasks.tasks.build import build

PREFIX = "image-test"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test looks at the caller's base or waits for the caller's builds."""
    monkeypatch.delenv("HARBOR_PACK_BASE", raising=False)
    monkeypatch.setenv("HARBOR_PACK_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def make_eval(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small eval with a name of its own; returns its folder, a project."""

    def make(*, sandbox: dict[str, Any] | None = None, skill: str | None = None, handlers: str | None = None) -> Path:
        folder = tmp_path / f"eval-{secrets.token_hex(3)}"
        (folder / "cases/one").mkdir(parents=True)
        (folder / ".git").mkdir()
        (folder / "cases/one/input.yaml").write_text("prompt: Say hello.\n")
        if handlers is not None:
            (folder / "tool_handlers.yaml").write_text(handlers)
        if skill is not None:
            (folder / ".claude/skills/greet").mkdir(parents=True)
            (folder / ".claude/skills/greet/SKILL.md").write_text(skill)
        content = {
            "name": f"{PREFIX} {secrets.token_hex(4)}", "description": "an eval of the tests",
            "dataset": {"path": "cases"}, "execution": {"prompt": "{{ input.prompt }}"},
            "judges": [{"name": "any", "check": "return True"}], "sandbox": sandbox or {},
        }  # fmt: skip
        (folder / "eval.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return folder

    return make


@pytest.fixture(scope="session")
def sdk(engine: str) -> Iterator[Engine]:
    """The engine, through the SDK."""
    assert engine
    with find_engine() as found:
        yield found


Ensure = Callable[..., ImageRef]


@pytest.fixture
def ensure(sdk: Engine, tmp_path: Path) -> Ensure:
    """Builds an eval's tasks, then its image; the lines that were said are in ``ensure.said``."""

    class Ensured:
        said: list[str]

        def __call__(self, folder: Path, **options: Any) -> ImageRef:
            self.said = []
            out = tmp_path / "built" / folder.name
            build(folder, out)
            return ensure_image(out, sdk, on_event=self.said.append, **options)

    return Ensured()


@pytest.fixture(scope="session", autouse=True)
def _no_image_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Removes the images that the tests made: evals of their names, and all on bases of their own."""
    before: set[str] | None = None
    if any(item.get_closest_marker("engine") for item in request.session.items):
        before = set(_tags())
    yield
    if before is not None:
        new = [tag for tag in _tags() if tag not in before]
        ours = [tag for tag in new if tag.startswith((f"harbor-pack/{PREFIX}", f"{PREFIX}-base", "harbor-pack/base:"))]
        ours += [tag for tag in new if tag.startswith("harbor-pack/runtime:") and not _is_on_a_shared_base(tag)]
        if ours:
            subprocess.run(["docker", "image", "rm", "--force", *ours], capture_output=True, check=False)


def _tags() -> list[str]:
    command = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


def _is_on_a_shared_base(tag: str) -> bool:
    """Runtimes on the tests' common base are everybody's."""
    ask = ["docker", "image", "inspect", "--format"]
    label = '{{index .Config.Labels "harbor-pack.base-id"}}'
    on = subprocess.run([*ask, label, tag], capture_output=True, text=True, check=False).stdout.strip()
    shared = subprocess.run(
        [*ask, "{{.Id}}", "harbor-pack-base:bookworm"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return on == shared
