#!/bin/sh
set -eu
cat > RELEASE_NOTES.md <<'END'
# Lectern 2.4: slides that follow you

For customers. Version 2.4.0.

## New features

- Slides follow the speaker on the second screen
- Keyboard shortcut for the laser pointer

## Fixes

- Embedded videos no longer restart on every slide change
- The timer survives a change of display
END
