#!/bin/sh
set -eu
cat > triage.json <<'END'
{
 "title": "Tooltip of the Offset tool is misspelled (Ofset)",
 "body": "Hover over the tool.",
 "component": "editor",
 "severity": "minor",
 "duplicate_of": null
}
END
