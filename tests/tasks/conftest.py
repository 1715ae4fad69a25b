"""What the tests of this room share: a small project that is written to disk, checked and built as an author would."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import AuthorError, Problems
from harbor_tasks.evalspec import Eval, load_eval
from harbor_tasks.tasks.build import BuildReport, build, check

EVAL: dict[str, Any] = {
    "name": "shop",
    "description": "orders and refunds",
    "dataset": {"path": "cases"},
    "execution": {"prompt": "{{ input.prompt }}"},
}


@dataclass
class Author:
    """A project with one eval, and the folder that it is built into."""

    root: Path
    out: Path
    spec: dict[str, Any] = field(default_factory=lambda: json.loads(json.dumps(EVAL)))

    def write(self, path: str, text: str | bytes = "", mode: int = 0o644) -> Path:
        """A file of the project, its folders included."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        file.chmod(mode)
        return file

    def case(self, name: str, prompt: str = "do it", **files: str) -> Path:
        """A case with a prompt; ``files`` are more of its files, with ``__`` for ``/`` and ``_`` before the ending."""
        self.write(f"cases/{name}/input.yaml", f"prompt: {json.dumps(prompt, ensure_ascii=False)}\n")
        for path, text in files.items():
            self.write(f"cases/{name}/{path}", text)
        return self.root / "cases" / name

    def eval(self, **keys: Any) -> Path:
        """eval.yaml, with these keys in place of the usual ones."""
        self.spec.update(keys)
        return self.write("eval.yaml", json.dumps(self.spec, ensure_ascii=False))

    def load(self, **keys: Any) -> Eval:
        """The eval as it is read."""
        self.eval(**keys)
        problems = Problems()
        ev = load_eval(self.root, problems)
        assert ev is not None, list(map(str, problems))
        assert not problems.errors, list(map(str, problems.errors))
        return ev

    def build(self, **options: Any) -> BuildReport:
        """Build; an author's error is raised."""
        if not (self.root / "eval.yaml").exists():
            self.eval()
        return build(self.root, self.out, **options)

    def refused(self, **options: Any) -> list[str]:
        """The errors of a build that must fail."""
        with pytest.raises(AuthorError) as caught:
            self.build(**options)
        return list(map(str, caught.value.problems))

    def warned(self) -> list[str]:
        """The warnings of `check`, which must find no error."""
        if not (self.root / "eval.yaml").exists():
            self.eval()
        report = check(self.root)
        assert not report.problems.errors, list(map(str, report.problems.errors))
        return list(map(str, report.problems.warnings))

    def task(self, name: str = "c1") -> Path:
        """A built task."""
        return self.out / name

    def text(self, path: str, task: str = "c1") -> str:
        """A file of a built task."""
        return (self.out / task / path).read_text(encoding="utf-8")

    def snapshot(self) -> dict[str, tuple[int, bytes | None, int]]:
        """Every path of the build: its mode, its bytes, and when a file was last changed."""
        found = {}
        for path in sorted(self.out.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else None
            changed = 0 if content is None else status.st_mtime_ns
            found[str(path.relative_to(self.out))] = (status.st_mode, content, changed)
        return found

    def contents(self, out: Path | None = None) -> dict[str, tuple[int, bytes | None]]:
        """Every path of a build but the host's own notes: its mode and its bytes."""
        found = {path: entry[:2] for path, entry in Author(self.root, out or self.out).snapshot().items()}
        del found[".harbor-pack/state.json"]
        return found

    def json(self, path: str, task: str = "c1") -> Any:
        """A JSON file of a built task."""
        return json.loads(self.text(path, task))


@pytest.fixture
def author(tmp_path: Path) -> Author:
    """A project with its own `.git`, so that no file outside of it counts, and no case yet."""
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    return Author(root, tmp_path / "tasks")
