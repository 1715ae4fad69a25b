#!/bin/sh
# Starts a Docker engine on a machine that has the programs but no running engine (a container, a bare VM, CI).
set -eu
. "$(dirname "$0")/lib.sh"

usage="usage: engine.sh start [-- DOCKERD-OPTION...] | stop | status
  start   starts dockerd in the background and waits until it answers; an engine that runs already is left alone
  stop    ends the engine that 'start' started, by its process id, and no other
  status  says what runs; exit code 0 if an engine answers, 3 if none does
DOCKER_HOST (a unix:// address) says where the engine listens and where it is looked for."

wait_seconds=60

state=$(cache_dir)/engine
pid_file=$state/dockerd.pid
log=$state/dockerd.log

# The id of the engine that we started, if it still runs. Ids are used again: the program must be dockerd.
our_pid() {
    [ -r "$pid_file" ] || return 1
    pid=$(cat "$pid_file")
    case $pid in '' | *[!0-9]*) return 1 ;; esac
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && printf '%s\n' "$pid"
}

check_machine() {
    case ${DOCKER_HOST:-unix:} in unix:*) ;; *) fail "the engine at DOCKER_HOST=$DOCKER_HOST does not answer, and only a local one can be started" ;; esac
    missing=
    for program in docker dockerd iptables; do
        have "$program" || [ -x "/usr/sbin/$program" ] || missing="$missing $program"
    done
    [ -z "$missing" ] || fail "not installed:$missing; on Debian and Ubuntu: apt-get install docker.io iptables"
    [ "$(id -u)" = 0 ] || fail "starting an engine needs root: sudo docker/engine.sh start"
}

start() {
    lock engine
    if engine_answers; then
        say "an engine runs already; left alone"
        return 0
    fi
    if pid=$(our_pid); then
        say "dockerd runs (process $pid) but does not answer yet; waiting"
    else
        check_machine
        mkdir -p "$state"
        [ -z "${DOCKER_HOST:-}" ] || set -- --host "$DOCKER_HOST" "$@"
        # Its own session, so that Ctrl-C in this terminal does not end it; 9 is the lock, which it must not keep.
        PATH=$PATH:/usr/sbin:/sbin setsid dockerd "$@" </dev/null >"$log" 2>&1 9>&- &
        pid=$!
        printf '%s\n' "$pid" >"$pid_file"
    fi
    waited=0
    until engine_answers; do
        kill -0 "$pid" 2>/dev/null || give_up "dockerd ended"
        [ "$waited" -lt "$wait_seconds" ] || give_up "dockerd does not answer after $wait_seconds s"
        sleep 1
        waited=$((waited + 1))
    done
    say "engine $(docker version --format '{{.Server.Version}}') runs, process $pid, log $log"
}

give_up() {
    tail -n 5 "$log" >&2 || true
    fail "$1; the lines above are the end of $log"
}

stop() {
    if ! pid=$(our_pid); then
        rm -f "$pid_file"
        say "no engine here was started by this script; nothing to stop"
        return 0
    fi
    kill "$pid"
    waited=0
    while our_pid >/dev/null; do
        [ "$waited" -lt 30 ] || fail "dockerd (process $pid) has not ended after 30 s; see $log"
        sleep 1
        waited=$((waited + 1))
    done
    rm -f "$pid_file"
    say "stopped"
}

status() {
    if engine_answers; then
        by="not started by this script"
        ! pid=$(our_pid) || by="process $pid, log $log"
        echo "running: $(docker version --format '{{.Server.Version}}'), $by"
    else
        echo "not running; start one: docker/engine.sh start"
        return 3
    fi
}

command=${1:-}
[ $# -eq 0 ] || shift
[ "${1:-}" != -- ] || shift
case $command in
    start) start "$@" ;;
    stop) stop ;;
    status) status ;;
    -h | --help) printf '%s\n' "$usage" ;;
    *) wrong_call ;;
esac
