#!/bin/sh
# Puts the agent programs on this machine, in the versions that the runtime image holds.
set -eu
. "$(dirname "$0")/lib.sh"

usage="usage: agents.sh [--path]
Fetches the native programs of the agents with npm, and prints the folder that holds them, to be put on PATH. What is
there already is left alone. --path only prints the folder, whether it is there or not."

dockerfile=$(dirname "$0")/Dockerfile
home=$(cache_dir)/agents
bin=$home/bin
case $* in '') ;; --path) echo "$bin"; exit 0 ;; -h | --help) printf '%s\n' "$usage"; exit 0 ;; *) wrong_call ;; esac

case $(uname -s)-$(uname -m) in
    Linux-x86_64) platform=linux-x64 ;;
    Linux-aarch64) platform=linux-arm64 ;;
    *) fail "only programs for Linux on x86_64 and aarch64 are fetched here; npm install -g @anthropic-ai/claude-code @openai/codex" ;;
esac

pinned() { sed -n "s/^ARG $1=//p" "$dockerfile"; }

# Takes an npm package at a version, and links the program in it into the folder.
install_program() { # NAME PACKAGE@VERSION PROGRAM
    if [ "$(cat "$home/$1/package.name" 2>/dev/null)" = "$2" ] && [ -x "$bin/$1" ]; then
        say "$2 is there"
        return 0
    fi
    have npm || fail "npm is needed to fetch $2; install it with this system's package manager (Debian: apt-get install npm)"
    say "fetching $2"
    rm -rf "${home:?}/$1" "$home/$1.new"
    mkdir -p "$home/$1.new" "$bin"
    (cd "$home/$1.new" && npm pack --silent "$2" >name && tar -xzf "$(cat name)" --no-same-owner && rm -f "$(cat name)" name) ||
        fail "npm cannot fetch $2; its lines are above"
    [ -x "$home/$1.new/package/$3" ] || fail "the npm package $2 holds no program $3"
    echo "$2" >"$home/$1.new/package.name"
    mv "$home/$1.new" "$home/$1"
    ln -sf "../$1/package/$3" "$bin/$1"
}

lock agents
install_program claude "@anthropic-ai/claude-code-$platform@$(pinned CLAUDE_CODE_VERSION)" claude
install_program codex "@openai/codex@$(pinned CODEX_VERSION)-$platform" "vendor/$(uname -m)-unknown-linux-musl/bin/codex"
echo "$bin"
