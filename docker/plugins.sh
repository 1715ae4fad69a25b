#!/bin/sh
# Gives the docker command its compose and buildx plug-ins, which Debian packages one release later than bookworm.
set -eu
. "$(dirname "$0")/lib.sh"

usage="usage: plugins.sh [compose] [buildx]
Installs the named plug-ins (both, if none is named) for this user, under \${DOCKER_CONFIG:-~/.docker}/cli-plugins.
A plug-in that the docker command has already is left alone. The packages come from the mirror of this machine's apt,
whose own lists and sources are not touched; HARBOR_PACK_MIRROR overrides it."

suite=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

case ${1:-} in -h | --help) printf '%s\n' "$usage"; exit 0 ;; esac
[ $# -gt 0 ] || set -- compose buildx
for name in "$@"; do
    case $name in compose | buildx) ;; *) wrong_call ;; esac
done
have docker || fail "the docker command is not installed; on Debian and Ubuntu: apt-get install docker.io"

lock plugins
wanted=
for name in "$@"; do
    if docker "$name" version >/dev/null 2>&1; then
        say "docker $name is there"
    else
        wanted="$wanted $name"
    fi
done
[ -n "$wanted" ] || exit 0
have dpkg || fail "no dpkg here; install Docker's compose and buildx plug-ins with this system's package manager"
[ -r "$keyring" ] || fail "Debian's keys are not installed; apt-get install debian-archive-keyring"
mirror=$(debian_mirror)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
echo "deb [signed-by=$keyring] $mirror $suite main" >"$work/sources.list"

# apt with sources, lists and cache of its own; as the present user, since its usual one cannot write here.
own_apt() {
    apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)" \
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

own_apt update >&2 || fail "Debian's $suite cannot be read from this machine's mirror"
plugins=${DOCKER_CONFIG:-${HOME:?is not set}/.docker}/cli-plugins
mkdir -p "$plugins"
for name in $wanted; do
    (cd "$work/debs" && own_apt download "docker-$name" >&2) || fail "package docker-$name cannot be fetched"
    dpkg -x "$work"/debs/docker-"$name"_*.deb "$work/root"
    program=$(find "$work/root" -type f -name "docker-$name" -path '*/cli-plugins/*')
    [ -n "$program" ] || fail "package docker-$name holds no plug-in"
    install -m 755 "$program" "$plugins/.docker-$name.new"
    mv "$plugins/.docker-$name.new" "$plugins/docker-$name"
    docker "$name" version >/dev/null 2>&1 || fail "docker $name is installed but does not run here"
    say "installed $plugins/docker-$name"
done
