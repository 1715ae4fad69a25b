# Shared by the helpers in this folder: sourced, never run. POSIX sh, no bash needed.
# shellcheck shell=sh disable=SC2154 # $usage is the caller's

prog=${0##*/}

say() { printf '%s: %s\n' "$prog" "$*" >&2; }

# Exit codes are those of harbor-pack: 2 for a wrong call, 3 for what this machine lacks.
fail() { say "$*"; exit 3; }
wrong_call() { printf '%s\n' "$usage" >&2; exit 2; }

have() { command -v "$1" >/dev/null 2>&1; }

engine_answers() { have docker && docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# The folder that keeps what the helpers make: logs, process ids, the environment of Harbor.
cache_dir() {
    dir=${HARBOR_PACK_CACHE:-${XDG_CACHE_HOME:-${HOME:?is not set}/.cache}/harbor-pack}
    mkdir -p "$dir" && (cd "$dir" && pwd)
}

# Holds NAME for the rest of the script, so that two calls at once do not do the same work twice.
# Where flock is missing (it is on every Debian) the second call is merely slower.
lock() {
    have flock || return 0
    exec 9>"$(cache_dir)/$1.lock"
    flock -w 1200 9 || fail "another $prog has been at work for 20 minutes; gave up waiting"
}

# The Debian mirror that this machine's own apt uses. apt itself reads its sources, in whichever form they are
# written; empty lists keep it from looking at anything but the sources. Third-party sources have no "main" of
# the release, or another release name.
debian_mirror() {
    if [ -n "${HARBOR_PACK_MIRROR:-}" ]; then
        printf '%s\n' "${HARBOR_PACK_MIRROR%/}"
        return 0
    fi
    have apt-get || fail "no apt here to read a mirror from; set HARBOR_PACK_MIRROR to the URL of a Debian mirror"
    release=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-stable}")
    lists=$(mktemp -d)
    mkdir "$lists/partial"
    mirror=$(apt-get --print-uris -o Dir::State::Lists="$lists" -o Debug::NoLocking=1 update 2>/dev/null |
        sed -nE "s#^'([^']*[^/])/+dists/($release|stable|testing|unstable|sid)/main/binary-.*#\1#p" | head -n 1)
    rm -rf "$lists"
    case $(. /etc/os-release && printf '%s' "${ID:-}"):$mirror in
        debian:?*) printf '%s\n' "$mirror" ;;
        debian:) fail "apt's sources name no Debian mirror; set HARBOR_PACK_MIRROR to the URL of one" ;;
        *) fail "this is not Debian; set HARBOR_PACK_MIRROR to the URL of a Debian mirror" ;;
    esac
}

# Programs that fetch by themselves (debootstrap) do not know apt's proxy.
use_apt_proxy() {
    have apt-config || return 0
    for scheme in http https; do
        eval "set_already=\${${scheme}_proxy:-}"
        [ -z "$set_already" ] || continue
        proxy=$(apt-config dump --format '%v%n' "Acquire::$scheme::Proxy" | head -n 1)
        case $proxy in "" | DIRECT) ;; *) export "${scheme}_proxy=$proxy" ;; esac
    done
}
