#!/bin/bash
# test.sh BUILD - the steps of the README: players come and go; the silo is killed while one is
# online, whose beats have ended; the reminder wakes that player, which goes offline.
set -u
bin=$1/samples/09-presence
dir=$(mktemp -d)
silo=
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$dir"' EXIT

fail() {
    echo "$1"
    "$bin/presence" "$address" tavern
    exit 1
}
start_silo() {
    : >"$dir/out"
    "$bin/presence-silo" --store "sqlite:$dir/presence.db" --reminder-period-min-ms 1000 \
        --wake-ms 1000 "$@" >"$dir/out" &
    silo=$!
    for _ in $(seq 1200); do
        address=$(sed -n 's/^ready //p' "$dir/out")
        [ -n "$address" ] && return
        sleep 0.05
    done
    echo "the silo did not start"
    exit 1
}
stop_silo() {
    kill -TERM "$silo"
    wait "$silo" || fail "the silo left with status $?"
}
# send NAME PLACE: one beat.
send() {
    echo "$*" | "$bin/presence" "$address" tavern send || fail "no beat of $1"
}
# sees LINES [NAME PLACE]: waits until the list of the lobby has just these lines; meanwhile sends
# beats of NAME.
sees() {
    for _ in $(seq 600); do
        [ $# -gt 1 ] && send "$2" "$3"
        list=$("$bin/presence" "$address" tavern | sort) || fail "no list"
        [ "$list" = "$1" ] && return
        sleep 0.1
    done
    fail "the list does not become '$1'"
}

start_silo --away-ms 600000
sees "nobody is online"
printf 'almaz cellar\n\xff\xfe attic\nchala \xff\nbiruk kitchen\n' |
    "$bin/presence" "$address" tavern send || fail "no beats"
sees "almaz is in cellar
biruk is in kitchen"
stop_silo

start_silo --away-ms 2000 # almaz's beats have ended, biruk's go on
sees "biruk is in kitchen" biruk kitchen
sees "nobody is online"
stop_silo

start_silo --away-ms 600000
sees "biruk is in kitchen" biruk kitchen
kill -KILL "$silo"
wait "$silo" 2>/dev/null
start_silo --away-ms 2000
sees "nobody is online"
stop_silo
echo "ok: players come and go; a reminder wakes one whose silo was lost"
