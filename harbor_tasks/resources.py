"""Where the files that are not Python modules lie: templates, the interceptor's scripts, docker helpers, examples."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType


def resource(*parts: str) -> Path:
    """The path of a shipped file or folder, e.g. ``resource("interceptor", "tools.py")``.

    In a wheel these folders lie in ``harbor_tasks/data``; in a checkout at the top level beside the package.
    """
    package = Path(__file__).resolve().parent
    installed = package / "data"
    root = installed if installed.is_dir() else package.parent
    return root.joinpath(*parts)


def script_text(name: str) -> str:
    """The text of a script of ``interceptor/``."""
    return resource("interceptor", f"{name}.py").read_text(encoding="utf-8")


@cache
def script_module(name: str) -> ModuleType:
    """A script of ``interceptor/`` as a module, so that the package uses the sandbox's own code and no copy of it."""
    path = resource("interceptor", f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"harbor_pack_sandbox_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
