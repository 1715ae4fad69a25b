#!/bin/sh
# Installs Harbor into an environment of its own: it needs a newer Python than harbor-pack does.
set -eu
. "$(dirname "$0")/lib.sh"

usage="usage: harbor.sh [--path]
Installs Harbor with pip into an environment of its own, and prints the path of its command. What is there already and
fits is left alone. --path only prints the path, whether it is there or not.
HARBOR_PYTHON names the interpreter; else the newest suitable one on PATH or of pyenv is taken."

# The range that harbor-pack's tasks are tested with.
requirement='harbor>=0.26,<0.27'

home=$(cache_dir)/harbor
bin=$home/bin/harbor
case $* in '') ;; --path) echo "$bin"; exit 0 ;; -h | --help) printf '%s\n' "$usage"; exit 0 ;; *) wrong_call ;; esac

suitable() { "$1" -I -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; }

# 3.13 and 3.12 first: Harbor's compiled dependencies come later to a newer Python.
find_python() {
    pyenv=${PYENV_ROOT:-${HOME:?is not set}/.pyenv}/versions
    for python in ${HARBOR_PYTHON:-python3.13 "$pyenv"/3.13.*/bin/python python3.12 "$pyenv"/3.12.*/bin/python python3 python3.14}; do
        if suitable "$python"; then
            echo "$python"
            return 0
        fi
    done
    fail "Harbor needs Python 3.12 or newer with its venv module; install one (on Debian 13 and Ubuntu: apt-get install python3-venv) or name one in HARBOR_PYTHON"
}

lock harbor
if [ "$(cat "$home/requirement" 2>/dev/null)" = "$requirement" ] && "$home/bin/python" -I -c 'import harbor' 2>/dev/null; then
    say "harbor is there"
else
    python=$(find_python)
    say "installing $requirement with $python (one to three minutes)"
    rm -rf "$home"
    "$python" -m venv "$home"
    "$home/bin/python" -m pip install -qq --disable-pip-version-check "$requirement" >&2 || fail "pip cannot install $requirement; its lines are above"
    echo "$requirement" >"$home/requirement"
fi
echo "$bin"
