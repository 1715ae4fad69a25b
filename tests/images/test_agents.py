"""Agent programs in the image: which npm packages are asked for, and what of them arrives."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import MachineError

pytestmark = pytest.mark.engine

# Packs what the real packages hold, as far as it matters, and notes how it was called.
NPM = """#!/bin/sh
set -eu
[ "$1 $2" = "pack --silent" ]
case $3 in
@anthropic-ai/claude-code-linux-*) program=package/claude ;;
@openai/codex@*-linux-*) program=package/vendor/$(uname -m)-unknown-linux-musl/bin/codex ;;
*) exit 1 ;;
esac
mkdir -p "${program%/*}"
{ echo '#!/bin/sh'; echo "echo $3 certificates: $(head -n 1 "${NODE_EXTRA_CA_CERTS:-/dev/null}")"; } >"$program"
chmod 775 "$program"
echo '{}' >package/package.json
tar -czf some.tgz --owner=1234 package
rm -rf package
echo some.tgz
"""


@pytest.fixture
def with_npm(make_eval: Callable[..., Path], base_image: str) -> Callable[[str], Path]:
    """An eval whose base has this script for an npm."""

    def make(npm: str) -> Path:
        folder = make_eval(sandbox={"dockerfile": "image/Dockerfile"})
        (folder / "image").mkdir()
        (folder / "image/npm").write_text(npm)
        (folder / "image/npm").chmod(0o755)
        (folder / "image/Dockerfile").write_text(f"FROM {base_image}\nCOPY npm /usr/local/bin/npm\n")
        return folder

    return make


def run(image: str, script: str) -> list[str]:
    command = ["docker", "run", "--rm", "--network", "none", "--user", "agent", image, "sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_native_programs_come_from_npm_at_pinned_versions_and_nothing_else_does(
    with_npm: Callable[[str], Path], ensure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = tmp_path / "authorities.pem"
    authorities.write_text("of the caller\n")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(authorities))
    image = ensure(with_npm(NPM), agents=("codex", "claude-code"))
    assert image.agents == ("claude-code", "codex")
    claude, codex, *files = run(
        image.tag,
        "claude --version; codex --version; "
        "cd /usr/local/lib/harbor-pack/programs && find . -type f -printf '%P %m %U\\n' | sort",
    )
    assert claude.startswith("@anthropic-ai/claude-code-linux-")
    assert claude.rpartition("@")[2].split()[0].count(".") == 2
    assert claude.endswith("certificates: of the caller")
    assert codex.startswith("@openai/codex@")
    assert files == ["claude-code/claude 755 0", "claude-code/package.json 644 0", "codex/bin/codex 755 0"]
    assert run(image.tag, "find / -name 'certificates.pem' 2>/dev/null; true") == []
    (stage,) = [line.split()[1].rpartition(":")[2] for line in ensure.said if "the runtime image" in line]
    stages = ["docker", "image", "ls", "--quiet", "--filter", f"label=harbor-pack.stage={stage}"]
    assert subprocess.run(stages, capture_output=True, text=True, check=True).stdout == ""


def test_an_npm_that_cannot_fetch_is_this_machines_fault_and_there_is_a_way_without(
    with_npm: Callable[[str], Path], ensure: Any
) -> None:
    with pytest.raises(MachineError, match=r"npm cannot fetch @anthropic-ai/claude-code.*--agent none") as error:
        ensure(with_npm("#!/bin/sh\nexit 1\n"), agents=("claude-code",))
    assert "\n" not in str(error.value)


def test_certificates_that_cannot_be_read_are_named(
    with_npm: Callable[[str], Path], ensure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/nowhere.pem")
    with pytest.raises(MachineError, match=r"NODE_EXTRA_CA_CERTS=/nowhere\.pem: cannot be read"):
        ensure(with_npm(NPM), agents=("claude-code",))
