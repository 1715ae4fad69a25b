"""Whose fault a failed build is: the author's base or Dockerfile, or this machine."""

from __future__ import annotations

import re

from harbor_tasks.errors import AuthorError, HarborPackError, MachineError
from harbor_tasks.images.dockerfile import Dockerfile
from harbor_tasks.images.output import BuildFailedError

_OWN_WORD = re.compile(r"harbor-pack( \(this machine\))?: (.*)")
_NO_SHELL = re.compile(r"/bin/sh\b.*no such file|no such file.*/bin/sh\b", re.IGNORECASE)


def failed(what: str, error: BuildFailedError, dockerfile: Dockerfile | None, step: int) -> HarborPackError:
    """The error for a build that failed: in the words of the scripts in docker/sandbox/build, else the engine's.

    ``dockerfile`` is the author's, if ``what`` was built from it; ``step`` the number of its instruction that failed.
    """
    for line in error.tail:
        found = _OWN_WORD.search(line)
        if found is not None:
            return MachineError(found[2]) if found[1] else AuthorError(found[2])
    tail = "".join(f"\n  {line}" for line in error.tail)
    if dockerfile is not None:
        place = what
        if 0 < step <= len(dockerfile.instructions):
            place = f"{what}:{dockerfile.instructions[step - 1].line}"
        return AuthorError(f"{place}: does not build: {error.message}{tail}")
    if _NO_SHELL.search(error.message):
        return AuthorError(
            "the base image has no /bin/sh, and so neither python3 nor a way to install it; take a base that is made "
            "from Debian or Ubuntu (sandbox.image)"
        )
    return MachineError(f"{what} does not build: {error.message}{tail}")
