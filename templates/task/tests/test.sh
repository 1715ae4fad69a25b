#!/bin/sh
# Judges what the agent left and writes the reward: all of it is in verify.py beside this script.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit 1
exec python3 -I "$here/verify.py" "$@"
