"""What the helpers of ``docker/`` put on this machine: where it lies, and how a user calls the helper that gets it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from harbor_tasks.errors import display_path
from harbor_tasks.resources import resource

HARBOR = ("harbor", "bin")
AGENTS = ("agents", "bin")
"""Folders of the cache: where ``harbor.sh`` and ``agents.sh`` put their programs."""


def cache_folder(*parts: str) -> Path:
    """A place in the user's cache, whether it is there or not; the same as ``cache_dir`` of ``docker/lib.sh``."""
    base = os.environ.get("HARBOR_PACK_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "harbor-pack"
    return Path(base).expanduser().absolute().joinpath(*parts)


def find_program(name: str, made_in: tuple[str, ...], caller: Mapping[str, str]) -> str | None:
    """A program: the one on the caller's PATH, else the one that a helper put into this folder of the cache."""
    return shutil.which(name, path=caller.get("PATH")) or shutil.which(name, path=str(cache_folder(*made_in)))


def call_of(helper: str) -> str:
    """A helper as the user would call it from here."""
    return f"sh {display_path(resource('docker', helper))}"
