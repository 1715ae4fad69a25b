"""Names that are safe everywhere: of task directories, of Harbor's tasks, of the image.

A case id may be any folder name. One that is safe is kept; any other gets a slug and a short hash of itself, so that a
name depends on the ids alone, never on their order.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from harbor_tasks.tasks.plan import TaskName

MAX_LENGTH = 63
_SAFE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9_-])?")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
HARBOR_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
IMAGE_REFERENCE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*/[a-z0-9]+(?:-[a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def task_names(eval_name: str, case_ids: Iterable[str]) -> tuple[TaskName, ...]:
    """The names of all tasks of an eval, in the order of its case ids."""
    ids = list(case_ids)
    org = org_name(eval_name)
    return tuple(
        TaskName(case_id, directory, f"{org}/{directory}")
        for case_id, directory in zip(ids, _directories(ids), strict=True)
    )


def org_name(eval_name: str) -> str:
    """The part of a task's name before the slash."""
    if is_safe(eval_name):
        return eval_name
    return slug(eval_name) or hashed(eval_name)


def is_safe(name: str) -> bool:
    """Whether a name can be used as it is: as a folder on any file system, in Harbor, in a command line."""
    return bool(_SAFE.fullmatch(name)) and ".." not in name and not _DEVICE.fullmatch(name)


def slug(text: str) -> str:
    """The letters and digits of a text in lower case and ASCII, with single hyphens between; may be empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii").lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[: MAX_LENGTH - 9].rstrip("-")


def hashed(text: str, digits: int = 8) -> str:
    """A slug of the text and the first digits of its hash."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    return f"{(slug(text) or 'task')[: MAX_LENGTH - 1 - digits].rstrip('-')}-{digest}"


def image_reference(org: str, parts: Sequence[bytes]) -> str:
    """The reference of an image that is made of these parts: the same parts, the same reference."""
    content = hashlib.sha256()
    for part in parts:
        content.update(len(part).to_bytes(8, "big"))
        content.update(part)
    return f"harbor-pack/{slug(org) or 'eval'}:{content.hexdigest()[:16]}"


def _directories(ids: list[str]) -> list[str]:
    """One folder name per id, no two alike where upper and lower case are one."""
    taken = Counter(case_id.lower() for case_id in ids)
    found = [case_id if is_safe(case_id) and taken[case_id.lower()] == 1 else hashed(case_id) for case_id in ids]
    for digits in (8, 16, 32):  # an id may look like another one's slug and hash, and short hashes may be alike
        count = Counter(name.lower() for name in found)
        if len(count) == len(found):
            break
        found = [
            name if count[name.lower()] == 1 else hashed(case_id, digits)
            for name, case_id in zip(found, ids, strict=True)
        ]
    return found
