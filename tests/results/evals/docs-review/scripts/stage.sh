#!/bin/sh
# Documents that every case starts with.
set -eu
cp "$AGENT_EVAL_PROJECT_ROOT"/docs/*.md .
