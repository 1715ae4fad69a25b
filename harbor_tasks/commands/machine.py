"""Commands about this machine."""

from __future__ import annotations

from harbor_tasks.commands.base import Json, app
from harbor_tasks.errors import printable
from harbor_tasks.output import print_json


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is missing on this machine, and how to get it."""
    from harbor_tasks.doctor import diagnose

    findings = diagnose()
    if as_json:
        print_json([{"name": f.name, "ok": f.ok, "detail": f.detail, "how": f.how} for f in findings])
        return
    for finding in findings:
        how = "" if finding.ok or not finding.how else f"; {finding.how}"
        print(printable(f"{'ok' if finding.ok else 'missing':8}{finding.name:18}{finding.detail}{how}"))
