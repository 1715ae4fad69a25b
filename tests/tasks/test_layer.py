"""The eval's layer: the project's skills and plugins, scripts of MCP servers, and what must not be in it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from harbor_tasks.tasks.build import check
from harbor_tasks.tasks.manifest import read_manifest
from tests.kit import put_special

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tasks.conftest import Author

SKILL = "---\nname: x\ndescription: y\n---\nDo.\n"


def layer(author: Author) -> set[str]:
    folder = author.out / ".harbor-pack/layer"
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_projects_skills_commands_agents_and_notes_are_packed(author: Author) -> None:
    author.case("c1")
    for path in (
        ".claude/skills/tidy/SKILL.md", ".claude/skills/tidy/scripts/run.sh", ".claude/commands/go.md",
        ".claude/agents/reader.md", "CLAUDE.md", "AGENTS.md",
    ):  # fmt: skip
        author.write(path, SKILL, mode=0o755 if path.endswith(".sh") else 0o644)
    author.write(".claude/settings.json", "{}")
    author.write(".claude/skills/tidy/__pycache__/x.pyc", "x")
    author.write("src/main.py", "x")
    author.build()
    assert layer(author) == {
        "workspace/.claude/skills/tidy/SKILL.md", "workspace/.claude/skills/tidy/scripts/run.sh",
        "workspace/.claude/commands/go.md", "workspace/.claude/agents/reader.md",
        "workspace/CLAUDE.md", "workspace/AGENTS.md",
    }  # fmt: skip
    script = author.out / ".harbor-pack/layer/workspace/.claude/skills/tidy/scripts/run.sh"
    assert script.stat().st_mode & 0o777 == 0o755


def test_a_skill_beside_eval_yaml_counts_before_one_of_its_name_in_the_project(author: Author) -> None:
    author.case("c1")
    author.write(".claude/skills/tidy/SKILL.md", "project\n")
    author.write(".claude/skills/tidy/more.md", "project\n")
    author.write(".claude/skills/other/SKILL.md", "project\n")
    author.eval()
    inner = author.root / "evals/one"
    inner.mkdir(parents=True)
    for name in ("eval.yaml", "cases"):
        (author.root / name).rename(inner / name)
    author.write("evals/one/.claude/skills/tidy/SKILL.md", "eval\n")
    author.root = inner
    author.build()
    assert layer(author) == {
        "workspace/.claude/skills/tidy/SKILL.md", "workspace/.claude/skills/other/SKILL.md",
    }  # fmt: skip
    assert (author.out / ".harbor-pack/layer/workspace/.claude/skills/tidy/SKILL.md").read_text() == "eval\n"


class TestFinding:
    def check(self, author: Author, skill: str) -> list[str]:
        author.eval(execution={"skill": skill})
        author.case("c1")
        return author.refused()

    @pytest.mark.parametrize("skill", ["tidy", "go", "sub:deep", "tools:lint", "lint"])
    def test_a_skill_or_command_is_found_by_its_name(self, author: Author, skill: str) -> None:
        author.write(".claude/skills/tidy/SKILL.md", SKILL)
        author.write(".claude/commands/go.md", SKILL)
        author.write(".claude/commands/sub/deep.md", SKILL)
        author.write("plug/.claude-plugin/plugin.json", '{"name": "tools"}')
        author.write("plug/skills/lint/SKILL.md", SKILL)
        author.eval(execution={"skill": skill}, runner={"plugin_dirs": ["plug"]})
        author.case("c1")
        assert author.warned() == []
        author.build()
        assert author.text("instruction.md") == f"/{skill}\n"

    def test_a_skill_that_is_not_found_is_an_error_with_the_nearest_name(self, author: Author) -> None:
        author.write(".claude/skills/tidy/SKILL.md", SKILL)
        (said,) = self.check(author, "tidi")
        assert "tidi" in said
        assert "did you mean tidy" in said

    def test_a_plugins_skill_is_not_found_under_another_plugins_name(self, author: Author) -> None:
        author.write("plug/skills/lint/SKILL.md", SKILL)
        author.spec["runner"] = {"plugin_dirs": ["plug"]}
        assert "other:lint" in self.check(author, "other:lint")[0]

    @pytest.mark.parametrize("skill", ["tools:go", "tools:one", "tools:lint", "tools:tools"])
    def test_a_plugin_may_keep_them_where_its_manifest_says(self, author: Author, skill: str) -> None:
        manifest = {"name": "tools", "commands": ["./more", "./special/one.md"], "skills": "./own"}
        author.write("plug/.claude-plugin/plugin.json", json.dumps(manifest))
        for path in ("more/go.md", "special/one.md", "special/two.md", "own/lint/SKILL.md", "SKILL.md"):
            author.write(f"plug/{path}", SKILL)
        author.eval(execution={"skill": skill}, runner={"plugin_dirs": ["plug"]})
        author.case("c1")
        assert author.warned() == []
        author.eval(execution={"skill": "tools:two"})
        assert "'tools:two' is not found" in author.refused()[0]

    @pytest.mark.parametrize("skill", ["tidy", "tools:lint"])
    def test_a_project_without_any_skill_has_not_the_one_that_is_run(self, author: Author, skill: str) -> None:
        (said,) = self.check(author, skill)
        assert f"the skill {skill!r} is not found" in said
        assert ("runner.plugin_dirs" if ":" in skill else ".claude/skills/tidy/SKILL.md") in said.partition(";")[2]

    @pytest.mark.parametrize("key", ["skill", "steps"])
    def test_wherever_eval_yaml_names_it(self, author: Author, key: str) -> None:
        author.case("c1")
        if key == "skill":
            author.spec.pop("execution")
            author.eval(skill="tidy")
        else:
            author.eval(execution={"steps": [{"id": "a", "prompt": "p"}, {"id": "b", "skill": "tidy"}]})
        (said,) = author.refused()
        assert (": execution.steps[1].skill: " if key == "steps" else ": skill: ") in said
        author.write(".claude/skills/tidy/SKILL.md", SKILL)
        assert author.warned() == []

    def test_an_image_of_the_evals_own_may_bring_it_where_the_project_has_no_skill(self, author: Author) -> None:
        author.eval(execution={"skill": "s"}, sandbox={"image": "debian:bookworm"})
        author.case("c1")
        (said,) = author.warned()
        assert "the image or a hook has to bring it" in said
        author.build()
        assert author.text("instruction.md") == "/s\n"
        author.write(".claude/skills/tidy/SKILL.md", SKILL)
        assert "known here: tidy" in author.refused()[0]

    @pytest.mark.parametrize("path", [".claude/skills/tidy/parts/lint/SKILL.md", ".claude/skills/SKILL.md"])
    def test_a_file_of_another_skill_is_no_skill(self, author: Author, path: str) -> None:
        author.write(path, SKILL)
        name = path.split("/")[-2]
        assert f"the skill {name!r} is not found" in self.check(author, name)[0]

    def test_a_case_may_bring_the_skill(self, author: Author) -> None:
        author.write(".claude/skills/other/SKILL.md", SKILL)
        author.eval(execution={"skill": "own"})
        author.case("c1")
        author.write("cases/c1/files/.claude/skills/own/SKILL.md", SKILL)
        assert author.warned() == []
        author.case("c2")
        (said,) = author.refused()
        assert "own" in said

    def test_a_command_of_a_case_is_a_skill_where_the_program_knows_commands(self, author: Author) -> None:
        author.eval(execution={"skill": "own"})
        author.case("c1")
        author.write("cases/c1/files/.claude/commands/own.md", SKILL)
        assert author.warned() == []
        author.eval(runner={"type": "codex"})
        assert "the skill 'own' is not found" in author.refused()[0]


class TestPlugins:
    def build(self, author: Author, folder: str = "plug", **manifest: Any) -> None:
        author.write(f"{folder}/.claude-plugin/plugin.json", json.dumps({"name": "tools", **manifest}))
        author.write(f"{folder}/skills/lint/SKILL.md", SKILL)
        author.eval(runner={"plugin_dirs": [folder]})
        author.case("c1")

    def test_a_plugin_lies_under_its_own_name(self, author: Author) -> None:
        self.build(author)
        author.build()
        assert read_manifest(author.out).plugins == ("tools",)
        assert "plugins/tools/skills/lint/SKILL.md" in layer(author)

    def test_hooks_that_a_plugin_brings_are_left_out_and_warned_of(self, author: Author) -> None:
        self.build(author, hooks="./hooks/hooks.json")
        author.write("plug/hooks/hooks.json", "{}")
        author.write("plug/hooks/helper.py", "x")
        said = author.warned()
        assert sum("hooks are not run" in one for one in said) == 2
        author.build()
        assert "plugins/tools/hooks/hooks.json" not in layer(author)
        assert "plugins/tools/hooks/helper.py" in layer(author)
        packed = author.out / ".harbor-pack/layer/plugins/tools/.claude-plugin/plugin.json"
        assert json.loads(packed.read_text()) == {"name": "tools"}

    def test_hooks_in_the_head_of_a_skill_and_in_settings_are_warned_of(self, author: Author) -> None:
        self.build(author)
        author.write(".claude/skills/a/SKILL.md", "---\nname: a\nhooks:\n  PreToolUse: []\n---\nhi\n")
        author.write(".claude/skills/b/SKILL.md", "---\nname: b\n---\nhooks: are fine here\n")
        author.write(".claude/settings.json", '{"hooks": {"PreToolUse": []}}')
        said = [one for one in author.warned() if "hooks are not run" in one]
        assert len(said) == 2

    def test_a_project_that_is_the_plugin_keeps_its_evals_and_builds_out_of_it(self, author: Author) -> None:
        self.build(author, folder=".")
        author.write("cases/c1/answers.yaml", "a: GOLD\n")
        author.write("more/eval.yaml", "name: other\n")
        author.write("more/cases/x/answers.yaml", "a: GOLD\n")
        author.write("old/.harbor-pack/build.json", "GOLD")
        author.write("jobs/j1/job.json", "GOLD")
        author.write("tool_handlers.yaml", "handlers: []\n")
        author.write("README.md", "hello")
        author.write(".env", "KEY=GOLD")
        author.write(".env.example", "KEY=")
        author.build()
        packed = layer(author)
        assert packed >= {"plugins/tools/README.md", "plugins/tools/.env.example"}
        gold = [path for path in packed if b"GOLD" in (author.out / ".harbor-pack/layer" / path).read_bytes()]
        assert gold == []
        assert not any(path.endswith(("eval.yaml", "tool_handlers.yaml")) for path in packed)

    def test_two_plugins_of_one_name_are_an_error(self, author: Author) -> None:
        self.build(author)
        author.write("second/.claude-plugin/plugin.json", '{"name": "tools"}')
        author.eval(runner={"plugin_dirs": ["plug", "second"]})
        assert any("two plugins are named tools" in one for one in author.refused())


class TestLinks:
    def test_a_link_within_becomes_a_file_and_one_that_leaves_is_an_error(self, author: Author, tmp_path: Path) -> None:
        author.case("c1")
        author.write("CLAUDE.md", "notes")
        author.write(".claude/skills/a/SKILL.md", SKILL)
        (author.root / ".claude/skills/a/notes.md").symlink_to("../../../CLAUDE.md")
        author.build()
        assert "workspace/.claude/skills/a/notes.md" in layer(author)
        (tmp_path / "secret").write_text("s")
        (author.root / ".claude/skills/a/away").symlink_to(tmp_path / "secret")
        (said,) = author.refused()
        assert ".claude/skills/a/away" in said

    def test_a_pipe_and_a_circle_are_errors_and_do_not_block(self, author: Author) -> None:
        author.case("c1")
        author.write(".claude/skills/a/SKILL.md", SKILL)
        os.mkfifo(author.root / ".claude/skills/a/pipe")
        (author.root / ".claude/skills/a/round").symlink_to(".")
        said = author.refused()
        assert len(said) == 2


class TestServerScripts:
    def args(self, author: Author) -> list[str]:
        author.build()
        (server,) = read_manifest(author.out).mcp_servers
        return [server.command or "", *server.args]

    def test_a_script_of_the_project_is_packed_with_its_folder(self, author: Author) -> None:
        author.case("c1")
        author.write("srv/track/main.py", "x")
        author.write("srv/lib.py", "y")
        author.write("other/secret.py", "z")
        command = {
            "name": "t",
            "command": "python3",
            "args": ["srv/track/main.py", "--config=srv/lib.py", "other", "-v"],
        }
        author.eval(mcp_servers=[command])
        home = "/opt/harbor-pack/layer/servers"
        assert self.args(author) == [
            "python3", f"{home}/srv/track/main.py", f"--config={home}/srv/lib.py", "other", "-v"
        ]  # fmt: skip
        assert layer(author) == {"servers/srv/track/main.py", "servers/srv/lib.py"}
        assert home in author.text("task.toml")

    def test_a_script_beside_the_eval_is_packed_alone(self, author: Author) -> None:
        author.case("c1")
        author.write("server.py", "x", mode=0o755)
        author.eval(mcp_servers=[{"name": "t", "command": "./server.py"}])
        assert self.args(author) == ["/opt/harbor-pack/layer/servers/server.py"]
        assert layer(author) == {"servers/server.py"}

    def test_a_script_within_the_folder_of_the_cases_does_not_drag_them_along(self, author: Author) -> None:
        author.case("c1")
        author.write("cases/servers/s.py", "x")
        author.write("cases/c1/answers.yaml", "a: GOLD\n")
        author.eval(mcp_servers=[{"name": "t", "command": "python3", "args": ["cases/servers/s.py"]}])
        assert self.args(author)[1] == "/opt/harbor-pack/layer/servers/servers/s.py"
        assert layer(author) == {"servers/servers/s.py"}

    def test_words_that_are_no_files_stay(self, author: Author) -> None:
        author.case("c1")
        args = ["-c", "x" * 5000, "", "$HOME", "/usr/bin/env", "a\nb", "srv"]
        author.eval(mcp_servers=[{"name": "t", "command": "bash", "args": args}])
        assert self.args(author) == ["bash", *args]


class TestOwnImage:
    def test_an_image_that_is_used_as_it_is_gets_the_layer_with_each_task(self, author: Author) -> None:
        author.case("c1")
        author.write(".claude/skills/a/SKILL.md", SKILL)
        author.eval(sandbox={"image": "debian:12", "sealed": False})
        author.build()
        assert author.text("environment/layer/workspace/.claude/skills/a/SKILL.md") == SKILL
        assert read_manifest(author.out).image == "debian:12"

    def test_the_image_changes_its_name_with_the_layer_and_its_base_only(self, author: Author) -> None:
        author.case("c1")

        def image() -> str:
            author.build()
            return read_manifest(author.out).image

        plain = image()
        author.case("c2")
        assert image() == plain
        author.write("CLAUDE.md", "new")
        with_notes = image()
        author.eval(sandbox={"image": "debian:12"})
        on_debian = image()
        author.write("Dockerfile", "FROM debian:12\n")
        author.eval(sandbox={"dockerfile": "Dockerfile"})
        own = image()
        author.write("Dockerfile", "FROM debian:13\n")
        assert len({plain, with_notes, on_debian, own, image()}) == 5


def test_a_case_file_over_the_layer_is_warned_of_and_one_across_it_refused(author: Author) -> None:
    author.write(".claude/skills/a/SKILL.md", SKILL)
    author.write("CLAUDE.md", "project")
    author.case("c1")
    author.write("cases/c1/files/CLAUDE.md", "case")
    assert any("CLAUDE.md of the case takes the place" in one for one in author.warned())
    author.write("cases/c1/files/.claude/skills", "a file where a folder is")
    assert any(".claude/skills of the case lies across" in one for one in author.refused())


class TestWhatLiesInTheWay:
    """What is no file or folder of the project where one is looked for."""

    @pytest.mark.parametrize(
        "path", ["CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md", ".claude", ".claude/skills", ".claude/commands"]
    )
    @pytest.mark.parametrize("kind", ["fifo", "socket", "gone", "other"])
    def test_is_one_error_by_path(self, author: Author, path: str, kind: str) -> None:
        author.case("c1")
        place = author.root / path
        place.parent.mkdir(exist_ok=True)
        if kind != "other":
            put_special(place, kind)
        elif path.endswith(".md"):
            place.mkdir()
        else:
            place.write_text("x")
        (said,) = author.refused()
        assert said.startswith(f"{place}: ")
        assert ("leads nowhere" if kind == "gone" else "must be a ") in said

    @pytest.mark.parametrize("path", [".claude/settings.json", "plug/.claude-plugin/plugin.json"])
    def test_a_pipe_is_not_waited_for(self, author: Author, path: str) -> None:
        author.case("c1")
        author.write("plug/skills/lint/SKILL.md", SKILL)
        author.eval(runner={"plugin_dirs": ["plug"]})
        (author.root / path).parent.mkdir(parents=True)
        os.mkfifo(author.root / path)
        report = check(author.root)
        wanted = [] if path.startswith(".claude") else ["not a regular file or folder"]
        assert [any(word in str(one) for word in wanted) for one in report.problems.errors] == [True] * len(wanted)

    @pytest.mark.parametrize("path", [".claude/skills", ".claude", "CLAUDE.md", ".claude/skills/tidy"])
    def test_a_link_that_leaves_the_project_is_one_error_by_path(
        self, author: Author, tmp_path: Path, path: str
    ) -> None:
        author.case("c1")
        away = tmp_path / "away"
        (away / "skills/tidy").mkdir(parents=True)
        (away / "skills/tidy/SKILL.md").write_text(SKILL)
        (away / "skills/tidy/more.md").write_text("x")
        target = {".claude/skills": "skills", ".claude": "", "CLAUDE.md": "skills/tidy/more.md"}.get(
            path, "skills/tidy"
        )
        place = author.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(away / target)
        (said,) = author.refused()
        assert said.startswith(f"{place}: ")
        assert "link that leaves the" in said

    def test_a_link_to_a_large_foreign_folder_is_one_error_too(self, author: Author) -> None:
        author.case("c1")
        (author.root / ".claude").mkdir()
        (author.root / ".claude/skills").symlink_to("/etc")
        (said,) = author.refused()
        assert said.startswith(f"{author.root}/.claude/skills: is a link that leaves the project")

    def test_links_within_the_project_are_followed(self, author: Author) -> None:
        author.case("c1")
        author.write("skills/tidy/SKILL.md", SKILL)
        author.write("docs/notes.md", "notes\n")
        (author.root / ".claude").mkdir()
        (author.root / ".claude/skills").symlink_to("../skills")
        (author.root / ".claude/CLAUDE.md").symlink_to("../docs/notes.md")
        (author.root / "CLAUDE.md").symlink_to("docs/notes.md")
        author.eval(execution={"skill": "tidy"})
        author.build()
        assert layer(author) == {
            "workspace/.claude/skills/tidy/SKILL.md", "workspace/.claude/CLAUDE.md", "workspace/CLAUDE.md",
        }  # fmt: skip

    @pytest.mark.parametrize("target", ["cases", "cases/c1", "cases/c1/annotations.yaml", "."])
    def test_a_link_to_what_only_the_verifier_may_see_is_not_packed(self, author: Author, target: str) -> None:
        author.case("c1")
        author.write("cases/c1/annotations.yaml", "gold: SECRET\n")
        author.write(".claude/skills/tidy/SKILL.md", SKILL)
        (author.root / ".claude/skills/tidy/more").symlink_to(author.root / target)
        assert any("only the verifier may see" in said for said in author.warned())
        author.build()
        assert layer(author) == {"workspace/.claude/skills/tidy/SKILL.md"}


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_lies_in_the_place_of_a_dockerignore_is_an_error(author: Author, kind: str) -> None:
    author.case("c1")
    author.write("image/Dockerfile", "FROM debian:bookworm\n")
    place = author.root / "image/.dockerignore"
    put_special(place, kind)
    author.eval(sandbox={"dockerfile": "image/Dockerfile"})
    assert author.refused() == [f"{place}: must be a file (no folder, pipe, socket or device)"]
