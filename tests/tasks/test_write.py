"""Writing: all or nothing, beside its place first, never over somebody else's files."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.tasks.manifest import read_manifest
from harbor_tasks.tasks.plan import TaskFile, made
from harbor_tasks.tasks.write import ChangedMeanwhileError, Output, same, write_files

if TYPE_CHECKING:
    from tests.tasks.conftest import Author

BUILD = """
import sys
from pathlib import Path
from harbor_tasks.errors import HarborPackError
from harbor_tasks.tasks.build import build
try:
    build(Path(sys.argv[1]), Path(sys.argv[2]), jobs=int(sys.argv[3]), progress=lambda *_: print("working", flush=True))
except KeyboardInterrupt:
    sys.exit(130)
except HarborPackError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def shop(author: Author) -> Author:
    for number in range(3):
        author.case(f"c{number}", f"order {number}")
    return author


def start(author: Author, jobs: int = 1) -> subprocess.Popen[str]:
    """A build in a process (and process group) of its own."""
    author.eval()
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(author.root), str(author.out), str(jobs)],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


class TestSomebodyElsesFiles:
    def test_a_folder_that_is_not_ours_is_refused_and_left(self, shop: Author) -> None:
        shop.out.mkdir()
        (shop.out / "thesis.tex").write_text("mine")
        (said,) = shop.refused()
        assert "thesis.tex" in said
        assert "not written by harbor-pack" in said
        assert [path.name for path in shop.out.iterdir()] == ["thesis.tex"]

    def test_an_empty_folder_is_taken(self, shop: Author) -> None:
        shop.out.mkdir()
        assert shop.build().written == 3

    def test_a_file_in_the_way_is_said(self, shop: Author) -> None:
        shop.out.write_text("a file")
        assert "a file is in the way" in shop.refused()[0]
        assert shop.out.read_text() == "a file"

    def test_what_lies_beside_our_tasks_is_left_and_said(self, shop: Author) -> None:
        shop.build()
        (shop.out / "notes").mkdir()
        (shop.out / "notes/x").write_text("mine")
        for _ in range(2):
            report = shop.build()
            assert any("notes" in str(problem) for problem in report.problems.warnings)
        assert (shop.out / "notes/x").read_text() == "mine"

    def test_what_lies_in_the_place_of_a_new_task_is_an_error(self, shop: Author) -> None:
        shop.build()
        (shop.out / "c9").mkdir()
        (shop.out / "c9/x").write_text("mine")
        shop.case("c9")
        assert any("c9" in said and "in the way" in said for said in shop.refused())
        assert (shop.out / "c9/x").read_text() == "mine"

    def test_a_manifest_that_was_tampered_with_removes_nothing_outside(self, shop: Author, tmp_path: Path) -> None:
        shop.build()
        (tmp_path / "precious").mkdir()
        path = shop.out / ".harbor-pack/build.json"
        data = json.loads(path.read_text())
        data["tasks"].append({**data["tasks"][0], "directory": "../precious"})
        path.write_text(json.dumps(data))
        shop.build()
        assert (tmp_path / "precious").is_dir()

    def test_among_the_cases_no_tasks_are_written(self, shop: Author) -> None:
        shop.out = shop.root / "cases/out"
        assert "folder of cases" in shop.refused()[0]
        assert not shop.out.exists()


class TestAllOrNothing:
    def test_an_error_in_one_case_leaves_an_earlier_build_as_it_was(self, shop: Author) -> None:
        shop.build()
        before = shop.snapshot()
        shop.case("c0", "a new prompt")
        shop.write("cases/c2/input.yaml", "other: 1\n")
        shop.refused()
        assert shop.snapshot() == before

    def test_an_error_leaves_no_folder_that_was_made_for_the_build(self, shop: Author, tmp_path: Path) -> None:
        shop.write("cases/c2/input.yaml", "other: 1\n")
        shop.out = tmp_path / "new" / "deep" / "out"
        shop.refused()
        assert not (tmp_path / "new").exists()

    def test_two_builds_do_not_write_into_one_folder(self, shop: Author) -> None:
        shop.build()
        shop.case("c3")
        handle = os.open(shop.out / ".harbor-pack", os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            assert "another build" in shop.refused()[0]
        finally:
            os.close(handle)
        assert shop.build().written == 1

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    @pytest.mark.parametrize("jobs", [1, 3])
    def test_a_build_that_is_ended_leaves_no_half_task_and_the_next_one_works(
        self, author: Author, number: signal.Signals, jobs: int
    ) -> None:
        for case in range(200):
            author.case(f"c{case:03}", f"order {case}")
        process = start(author, jobs)
        assert process.stdout is not None
        process.stdout.readline()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does it
        else:
            process.kill()
        _out, error = process.communicate(timeout=30)
        assert "Traceback" not in error
        if number == signal.SIGINT:
            assert process.returncode == 130
            assert not author.out.exists()
        assert nobody_works_on(author.root)
        assert not list(author.out.glob("c*"))
        report = author.build()
        assert report.written == 200
        assert [path.name for path in (author.out / ".harbor-pack").iterdir() if path.name.startswith("new-")] == []

    def test_a_build_that_was_ended_while_it_moved_tasks_is_mended(self, shop: Author) -> None:
        shop.build()
        whole = shop.contents()
        meta = shop.out / ".harbor-pack"
        (meta / "pending.json").write_text(json.dumps({"directories": ["c0", "c1", "c2", "c-old"]}))
        for name in ("build.json", "state.json"):
            (meta / name).unlink()
        shutil.rmtree(shop.out / "c1")
        (shop.out / "c-old").mkdir()
        with pytest.raises(AuthorError):
            read_manifest(shop.out)
        report = shop.build()
        assert (report.written, report.unchanged, report.removed) == (1, 2, 1)
        assert shop.contents() == whole

    def test_a_full_disk_or_one_that_may_not_be_written_is_the_machines_fault(self, shop: Author) -> None:
        shop.out = Path("/proc/harbor-pack-test")
        shop.eval()
        with pytest.raises(MachineError, match="cannot be written"):
            shop.build()

    @pytest.mark.parametrize("umask", [0o077, 0o002, 0o022])
    def test_the_modes_of_all_that_is_made_do_not_depend_on_the_umask(self, shop: Author, umask: int) -> None:
        before = os.umask(umask)
        try:
            shop.build()
        finally:
            os.umask(before)
        folders = [shop.out, *(path for path in shop.out.rglob("*") if path.is_dir())]
        assert {oct(path.stat().st_mode & 0o7777) for path in folders} == {"0o755"}

    def test_a_folder_that_was_there_keeps_its_mode(self, shop: Author) -> None:
        shop.out.mkdir(mode=0o700)
        assert (shop.build().written, shop.build().written) == (3, 0)
        assert shop.out.stat().st_mode & 0o777 == 0o700

    def test_the_umask_of_the_process_is_as_before(self, shop: Author) -> None:
        old = os.umask(0o037)
        try:
            shop.build()
            shop.write("cases/c2/input.yaml", "other: 1\n")
            shop.refused()
            assert os.umask(0o037) == 0o037
        finally:
            os.umask(old)
        assert (shop.task("c0") / "instruction.md").stat().st_mode & 0o777 == 0o644


def nobody_works_on(root: Path) -> bool:
    """Whether no process with this path in its command line is left, within a moment."""
    for _ in range(100):
        found = []
        for entry in Path("/proc").iterdir():
            try:
                found.append(str(root) in (entry / "cmdline").read_text())
            except (OSError, ValueError):
                continue
        if not any(found):
            return True
        time.sleep(0.05)
    return False


class TestFiles:
    FILES = (made("a.txt", "A"), made("b/c.sh", "C", 0o755), TaskFile("b/empty", None, 0o755))

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        write_files(tmp_path / "t", self.FILES)
        return tmp_path / "t"

    def test_a_folder_is_the_same_only_to_the_last_bit(self, folder: Path) -> None:
        assert same(folder, self.FILES)
        assert not same(folder, self.FILES[:2])
        assert not same(folder, [*self.FILES, made("d", "")])
        assert not same(folder, [made("a.txt", "B"), *self.FILES[1:]])
        assert not same(folder, [made("a.txt", "A", 0o755), *self.FILES[1:]])
        assert not same(folder / "none", self.FILES)

    @pytest.mark.parametrize("extra", ["x", "b/empty/x"])
    def test_one_more_file_makes_another_folder(self, folder: Path, extra: str) -> None:
        (folder / extra).write_text("")
        assert not same(folder, self.FILES)

    def test_one_more_empty_folder_makes_another_folder(self, folder: Path) -> None:
        (folder / "b/more").mkdir()
        assert not same(folder, self.FILES)

    def test_a_link_is_not_the_file_that_it_leads_to(self, folder: Path) -> None:
        (folder / "a.txt").rename(folder.parent / "a.txt")
        (folder / "a.txt").symlink_to("../a.txt")
        assert not same(folder, self.FILES)

    def test_a_large_file_that_changes_while_it_is_copied_is_noticed(self, tmp_path: Path) -> None:
        source = tmp_path / "large"
        source.write_bytes(b"x" * 3_000_000)
        with pytest.raises(ChangedMeanwhileError):
            write_files(tmp_path / "t", [TaskFile("large", source, 0o644, "0" * 64)])

    def test_the_folder_is_held_while_it_is_written(self, tmp_path: Path) -> None:
        with Output(tmp_path / "out") as output:
            output.put("task", self.FILES, owned=False)
            with pytest.raises(AuthorError, match="another build"), Output(tmp_path / "out"):
                pass
        assert not (tmp_path / "out").exists()
