#!/bin/sh
set -eu
cat > triage.json <<'END'
{
 "title": "Renaming a shared folder deletes it on all machines",
 "body": "Twenty people affected.",
 "component": "sync",
 "severity": "critical",
 "duplicate_of": null
}
END
