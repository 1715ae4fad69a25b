#!/bin/sh
set -eu
cat > triage.json <<'END'
{
 "title": "PDF export hangs at 80 % when a room name has an umlaut",
 "body": "Since 4.2.1: a room called Kueche stops the export.",
 "component": "export",
 "severity": "major",
 "duplicate_of": null
}
END
