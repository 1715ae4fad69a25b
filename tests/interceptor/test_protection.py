"""The policy protects itself where the agent could reach it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interceptor.conftest import Hook

WRITERS = ["Write", "Edit", "MultiEdit", "NotebookEdit"]
POLICY = ["tool_handlers.yaml", "hooks/tools.py", "interceptions.jsonl", ".claude/settings.json",
    ".claude/settings.local.json",
          ".codex/hooks.json", "./hooks/../tool_handlers.yaml", "src/../.claude/./settings.json",
          "sub/.claude/settings.json"]  # fmt: skip
FREE = ["a.md", "src/hooks/useThing.ts", "hooks/other.py", "hooks/tools.pyc", ".claude/skills/s/SKILL.md",
    ".claude/agents/a.md",
        ".codex/config.toml", "settings.json", "src/settings.local.json", "src/hooks/tools.py", "tools.py",
        "hooks.json",
        "my_tool_handlers.yaml.md", ".claude/settings.md", "CLAUDE.md"]  # fmt: skip


@pytest.fixture
def guard(tools: Any, tmp_path: Path) -> Any:
    """A guard whose policy lies in the agent's own folder."""
    (tmp_path / "hooks").mkdir()
    for name in ("hooks/tools.py", "tool_handlers.yaml", "interceptions.jsonl"):
        (tmp_path / name).touch()
    return tools.Guard(f"{tmp_path}/hooks/tools.py", str(tmp_path), f"{tmp_path}/interceptions.jsonl", str(tmp_path))


def denies(tools: Any, guard: Any, command: str) -> bool:
    return guard.denies("Bash", {"command": command}, lambda: tools.Reading(command)) is not None


@pytest.mark.parametrize("tool", WRITERS)
def test_writes_to_the_policy_are_denied_and_no_others(tool: str, guard: Any, tmp_path: Path) -> None:
    key = "notebook_path" if tool == "NotebookEdit" else "file_path"
    for path in POLICY:
        assert guard.denies(tool, {key: path}, None), path
        assert guard.denies(tool, {key: f"{tmp_path}/{path}"}, None), path
    for path in FREE:
        assert not guard.denies(tool, {key: path}, None), path
        assert not guard.denies("Read", {key: path}, None), path


def test_links_and_other_names_of_the_policy_are_the_policy(guard: Any, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "tool_handlers.yaml")
    (tmp_path / "folder").symlink_to(tmp_path / "hooks")
    (tmp_path / "dangling").symlink_to(tmp_path / ".claude" / "settings.local.json")
    os.link(tmp_path / "hooks" / "tools.py", tmp_path / "hard")
    for path in ("link", "folder/tools.py", "dangling", "hard"):
        assert guard.denies("Write", {"file_path": path}, None), path
    assert not guard.denies("Write", {"file_path": "folder/other"}, None)


@pytest.mark.parametrize("given", [{"file_path": None}, {"file_path": 5}, {"file_path": ["tool_handlers.yaml"]}])
def test_a_path_that_is_no_text_is_denied(given: dict[str, Any], hook: Hook) -> None:
    assert hook.write().call("Write", given).decision == "deny"


NAMED = [
    "echo 'handlers: []' > tool_handlers.yaml", "cat ./tool_handlers.yaml", "rm -f hooks/tools.py",
    "echo x >> hooks/tools.py",
    "echo x >hooks/'tools'.py", "sed -i s/a/b/ tool_'handlers'.yaml", "cp x \"tool_handlers.yaml\"",
    "cd hooks && rm tools.py",
    "mkdir -p .claude && echo '{\"disableAllHooks\":true}' > .claude/settings.local.json",
    "cd .claude; echo {} > settings.json",
    "tee .claude/settings.json <<'EOF'\n{}\nEOF", "cat > .codex/hooks.json <<'EOF'\n{}\nEOF",
    ": > interceptions.jsonl",
    "python3 -c \"open('tool_handlers.yaml', 'w')\"",
    "python3 - <<'EOF'\nopen('.claude/settings.json', 'w').write('{}')\nEOF",
    "bash -c 'rm tool_handlers.yaml'", "echo $(rm tool_handlers.yaml)", "ln -s tool_handlers.yaml x",
    "rm tool_*.yaml", "cat hooks/*.py",
    "cp a .claude/settings.*", "echo x > \"$CLAUDE_PROJECT_DIR/hooks/tools.py\"",
    "rm ${CLAUDE_PROJECT_DIR}/tool_handlers.yaml",
    "rm -rf .claude", "mv .claude old", "rm -r hooks", "mv hooks/ x", "rm -rf .",
    "cd / && rm -rf tmp/../$HOME/.claude/settings.json",
    "dd of=tool_handlers.yaml", "cp --target=tool_handlers.yaml x",
    "truncate -s0 --reference=a tool_handlers.yaml 'x",
    "git checkout -- .claude/settings.json", "patch -p1 <<'EOF'\n+++ b/tool_handlers.yaml\nEOF",
    "curl -o.claude/settings.json x", "curl -otool_handlers.yaml x",
    "cp settings.local.json .claude/", "cp -t .claude settings.json", "cp --target-directory=.claude settings.json",
    "install -t hooks evil/tools.py", "install -m 755 x/tools.py hooks",
    "rsync -a evil/ .claude", "tar xf a.tgz -C .claude",
    "tar -C.claude -xf a", "unzip a.zip -d .claude", "wget -P .claude http://x/settings.json", "cp -r evil/.claude .",
    "cp evil/tools.py hooks/", "ln -sfn evil .claude", "mv .claude{,.bak}", "rm -rf .c*",
    "rm -rf .claud?", "rm -rf ho*",
    "rm -rf *", "rm -rf ./*", "rm -rf $PWD/.claude", 'rm -rf "${PWD}/hooks"', "find .claude -delete",
    "find hooks -name '*.py' -exec rm {} +", "git checkout -- .claude", "git restore .claude", "git rm -r .claude",
    "git clean -fdx", "xargs rm -rf <<< hooks", "echo hooks | xargs rm -rf", "rm tool_handlers.yam[l]",
    "rm hook[s]/tools.py", "rm .[c]laude/settings.json", "cat .claude/setting[s].json", "> $(pwd)/hooks/tools.py",
    "d=.claude; echo x > $d/settings.json", "d=.claude && echo x > \"${d}/settings.local.json\"",
    "cd src; cd ..; rm -rf hooks", "cd hooks; rm -f tools.py", "env -C hooks rm tools.py", "git -C hooks rm tools.py",
    "cd .c* && rm settings.json", "cd .claude && rm -rf *", "echo x > .claude/settings{,.local}.json",
    "rm tool_handlers.{yaml,}", "rm hooks/{a,tools}.py", "cp evil/* .claude/", "sed -i s/a/b/ *", "(cd src); rm -rf *",
    "cd src | rm -rf *", "cd \"$CLAUDE_PROJECT_DIR\" && rm -rf .claude", "sudo rm -rf .claude",
    "cp x .claude/settings.json",
]  # fmt: skip
UNNAMED = [
    "ls", "ls -la .claude", "cat .claude/skills/s/SKILL.md", "cat src/hooks/tools.py", "rm -rf build", "rm x.jsonl",
    "cat settings.json",
    "cp a src/hooks/useThing.ts", "git commit -m 'mention tool_handlers.yaml and hooks/tools.py'", "echo settings",
    "rm -rf .claude/skills/s",
    "cat > notes.md <<'EOF'\nedit tool_handlers.yaml\nEOF", "cd src && python3 tools.py", "ls *.md", "rm *.log", "",
    "pytest -k 'a or b'", "cd src && rm -rf *", "ls *", "wc -l *", "grep x *",
    "cat *", "ls src/*", "cd src || exit 1; rm -rf *",
    "git checkout main", "git stash", "git status", "git checkout -- .",
    "git add .", "tar xf a.tgz", "cp -r a b", "mv a b",
    "cp a.md .claude/agents/", "cp -r skills/x .claude/skills/", "find . -name '*.pyc' -delete", "rm -rf $TMPDIR/x",
    "for f in *.md; do wc -l \"$f\"; done", "mkdir -p .claude/skills/x",
    "chmod +x run.sh", "ln -s ../a b", "cd src; ls ..",
    "echo ${HOME}", "rm -rf build/* dist/*", "git -C src status", "rm -f *.pyc src/*.o", "cd sub && git clean -fdx",
]  # fmt: skip


@pytest.mark.parametrize("command", NAMED)
def test_a_command_that_names_the_policy_is_denied(command: str, guard: Any, tools: Any, tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text("{}")
    absolute = command.replace("tool_handlers.yaml", f"{tmp_path}/tool_handlers.yaml")
    assert denies(tools, guard, command)
    assert denies(tools, guard, absolute)


@pytest.mark.parametrize("command", UNNAMED)
def test_other_commands_are_not(command: str, guard: Any, tools: Any, tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text("{}")
    assert not denies(tools, guard, command)


PATCH = "*** Begin Patch\n*** {} File: {}\n+x\n*** End Patch\n"


def test_patches_are_judged_by_the_paths_in_them(guard: Any) -> None:
    for verb in ("Add", "Update", "Delete"):
        for path in POLICY:
            assert guard.denies("apply_patch", {"command": PATCH.format(verb, path)}, None), path
        for path in FREE:
            assert not guard.denies("apply_patch", {"command": PATCH.format(verb, path)}, None), path
    moved = "*** Begin Patch\n*** Update File: a.md\n*** Move to: tool_handlers.yaml\n*** End Patch"
    assert guard.denies("apply_patch", {"command": moved}, None)
    assert not guard.denies("apply_patch", {"command": "*** Begin Patch\n+ tool_handlers.yaml\n*** End Patch"}, None)


def test_the_script_protects_itself_before_any_handler_and_says_which_file(hook: Hook) -> None:
    hook.write({"match": "m", "patterns": ["Write", "Bash"], "rewrite": {"content": "x"}, "input_filters": ["rm"]})
    for done in (
        hook.call("Write", {"file_path": "tool_handlers.yaml", "content": ""}),
        hook.bash("rm tool_handlers.yaml"),
    ):
        assert done.decision == "deny"
        assert "tool_handlers.yaml" in done.reason
    assert hook.write().call("Edit", {"file_path": ".codex/hooks.json"}).decision == "deny"
    assert hook.call("Write", {"file_path": "src/hooks/useThing.ts", "content": ""}).decision == "none"
    assert hook.bash("ls").decision == "none"


def test_a_log_elsewhere_is_protected_too(hook: Hook, tmp_path_factory: pytest.TempPathFactory) -> None:
    log = tmp_path_factory.mktemp("log") / "calls.jsonl"
    hook.options = ["--log", str(log)]
    hook.write()
    assert hook.call("Write", {"file_path": str(log), "content": ""}).decision == "deny"
    assert hook.bash(f": > {log}").decision == "deny"
    assert len(log.read_text().splitlines()) == 2


def test_out_of_reach_nothing_is_protected(hook: Hook) -> None:
    hook.options = ["--sealed"]
    hook.write()
    assert hook.call("Write", {"file_path": "tool_handlers.yaml", "content": ""}).decision == "none"
    assert hook.bash("rm tool_handlers.yaml").decision == "none"
