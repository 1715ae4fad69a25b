#!/bin/sh
# Makes the base image from Debian's own packages, for machines that reach a package mirror but no image registry.
set -eu
. "$(dirname "$0")/lib.sh"

usage="usage: base-image.sh [--force]
Makes the image harbor-pack-base:bookworm by debootstrap, about a minute. It is left as it is when it is there and was
made by the same recipe; --force makes it anew. Needs root, a running engine and debootstrap.
The mirror is the one of this machine's apt; HARBOR_PACK_MIRROR overrides it."

suite=bookworm
image=harbor-pack-base:$suite
# python3 and python3-yaml for tasks, git for workspaces, sudo for the sealed sandbox's users.
packages=python3,python3-yaml,git,sudo,ca-certificates
recipe="2 $suite $packages"

case $* in '') force= ;; --force) force=yes ;; -h | --help) printf '%s\n' "$usage"; exit 0 ;; *) wrong_call ;; esac

present() {
    [ "$(docker image inspect --format '{{index .Config.Labels "harbor-pack.recipe"}}' "$image" 2>/dev/null)" = "$recipe" ]
}

engine_answers || fail "no Docker engine answers; start one: docker/engine.sh start"
lock base-image
if [ -z "$force" ] && present; then
    say "$image is there"
    exit 0
fi
have debootstrap || [ -x /usr/sbin/debootstrap ] || fail "debootstrap is not installed; on Debian and Ubuntu: apt-get install debootstrap"
[ "$(id -u)" = 0 ] || fail "debootstrap needs root: sudo docker/base-image.sh"
mirror=$(debian_mirror)
use_apt_proxy

# Not in /tmp, which may be small or mounted without devices.
work=$(mktemp -d "$(cache_dir)/base-image.XXXXXX")
trap 'umount "$work/tree/proc" "$work/tree/sys" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

old=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || true)
say "making $image with debootstrap (about a minute)"
PATH=$PATH:/usr/sbin:/sbin debootstrap --variant=minbase --include="$packages" "$suite" "$work/tree" "$mirror" >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    fail "debootstrap failed; the lines above are the end of its log"
}
# What a container does not need makes up nearly half of it.
rm -rf "$work"/tree/var/cache/apt/* "$work"/tree/var/lib/apt/lists/* "$work"/tree/var/log/* \
    "$work"/tree/usr/share/doc/* "$work"/tree/usr/share/man/* "$work"/tree/usr/share/locale/* "$work"/tree/dev/*
layer=$(tar -C "$work/tree" --numeric-owner -c . | docker import -)

# STOPSIGNAL: a container's first process ignores SIGTERM, and every stop would wait ten seconds for it.
# The classic builder first, since Debian's engine has no other; an engine without it takes its own.
dockerfile=$(printf '%s\n' "FROM $layer" "ENV LANG=C.UTF-8" "LABEL harbor-pack.recipe=\"$recipe\"" "STOPSIGNAL SIGKILL" 'CMD ["/bin/bash"]')
printf '%s\n' "$dockerfile" | DOCKER_BUILDKIT=0 docker build --quiet --tag "$image" - >"$work/log" 2>&1 ||
    printf '%s\n' "$dockerfile" | docker build --quiet --tag "$image" - >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    fail "docker build failed; the lines above are what it said"
}
[ -z "$old" ] || docker image rm "$old" >/dev/null 2>&1 || true # in use: it stays, without the name
say "made $image"
