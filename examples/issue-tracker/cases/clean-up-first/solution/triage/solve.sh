#!/bin/sh
set -eu
cat > triage.json <<'END'
{
 "title": "Pasting a wall from another drawing empties the undo history",
 "body": "Nothing can be taken back.",
 "component": "editor",
 "severity": "major",
 "duplicate_of": null
}
END
