"""Names of tasks: safe for any file system, for Harbor and for image references, whatever a case is called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.tasks.manifest import read_manifest
from harbor_tasks.tasks.names import HARBOR_NAME, IMAGE_REFERENCE, hashed, image_reference, org_name, task_names

if TYPE_CHECKING:
    from tests.tasks.conftest import Author

ODD = [
    "a..b", "CON", "con", "nul.txt", "COM1", "-rf", ".x", "x.", "x" * 64, "Größe 42 (Final)", "日本", "a b", "a\nb",
    "it's \"q\" $HOME", "a/b", "\udcff", "Ok", "ok", "--case", "_x",
]  # fmt: skip


def test_a_safe_id_is_kept() -> None:
    ids = ["case-001", "2024.01", "A_b-c", "x" * 63, "console", "a.b"]
    assert [name.directory for name in task_names("shop", ids)] == ids
    assert [name.name for name in task_names("shop", ids)] == [f"shop/{one}" for one in ids]


def test_unsafe_and_clashing_ids_get_a_slug_and_a_hash_of_their_own() -> None:
    names = {name.case_id: name.directory for name in task_names("shop", ODD)}
    assert names["Größe 42 (Final)"].startswith("groe-42-final-")
    assert names["日本"].startswith("task-")
    assert names["Ok"] != "Ok"
    assert names["ok"] != "ok"
    assert len({name.lower() for name in names.values()}) == len(ODD)


@pytest.mark.parametrize("name", task_names("My Eval/v1", ODD), ids=lambda name: repr(name.case_id))
def test_a_name_is_good_for_harbor_and_any_file_system(name: object) -> None:
    directory, full = name.directory, name.name  # type: ignore[attr-defined]
    assert HARBOR_NAME.fullmatch(full)
    assert ".." not in full
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", directory)
    assert len(directory) <= 63
    assert not directory.endswith(".")
    assert directory.split(".")[0].upper() not in {"CON", "NUL", "COM1", "PRN", "AUX"}


def test_a_name_does_not_depend_on_the_order_of_the_ids() -> None:
    def by_id(ids: list[str]) -> dict[str, str]:
        return {name.case_id: name.directory for name in task_names("e", ids)}

    assert by_id(ODD) == by_id(ODD[::-1])


def test_an_id_that_looks_like_the_slug_and_hash_of_another_makes_way() -> None:
    ids = ["a b", hashed("a b"), "A B"]
    assert len({name.directory for name in task_names("e", ids)}) == 3


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0/"), min_size=1, max_size=80), unique=True))
def test_names_are_unique_and_safe_for_all_ids(ids: list[str]) -> None:
    names = task_names("e", ids)
    assert len({name.directory.lower() for name in names}) == len(ids)
    assert all(HARBOR_NAME.fullmatch(name.name) and ".." not in name.name for name in names)


@pytest.mark.parametrize("name", ["shop", "My Eval/v1", "日本", "dq\"uo'te", "a..b", "-x", "X" * 200, "9"])
def test_any_name_of_an_eval_makes_an_org_and_an_image_reference(name: str) -> None:
    assert HARBOR_NAME.fullmatch(f"{org_name(name)}/x")
    assert len(org_name(name)) <= 63
    assert IMAGE_REFERENCE.fullmatch(image_reference(org_name(name), [b""]))


def test_the_image_is_named_after_what_is_in_it() -> None:
    assert image_reference("e", [b"a", b"b"]) == image_reference("e", [b"a", b"b"])
    assert image_reference("e", [b"a", b"b"]) != image_reference("e", [b"ab", b""])


def test_hostile_ids_become_tasks_that_keep_the_id_as_metadata(author: Author) -> None:
    ids = ["a..b", "CON", "-rf", "Größe 42 (Final)", "x" * 160, 'it\'s "q" $HOME']
    author.eval(name="My Eval/v1")
    for one in ids:
        author.case(one)
    author.build()
    tasks = read_manifest(author.out).tasks
    assert sorted(task.case_id for task in tasks) == sorted(ids)
    for task in tasks:
        assert f'name = "{task.name}"' in author.text("task.toml", task.directory)
        assert task.name == f"my-eval-v1/{task.directory}"


def test_names_do_not_change_when_only_some_cases_are_built(author: Author) -> None:
    for one in ("Same", "same", "other"):
        author.case(one)
    author.build()
    every = {task.case_id: task.directory for task in read_manifest(author.out).tasks}
    author.build(only=["same"])
    assert {task.case_id: task.directory for task in read_manifest(author.out).tasks} == {"same": every["same"]}
