#!/bin/bash
# test.sh BUILD - the steps of the README: count, kill the silo outright, count on.
set -u
bin=$1/samples/02-counter
dir=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null; wait; rm -rf "$dir"' EXIT

start() {
    : >"$dir/out"
    "$bin/counter-silo" --store "sqlite:$dir/counter.db" "$@" >"$dir/out" &
    pid=$!
    for _ in $(seq 1200); do
        address=$(sed -n 's/^ready //p' "$dir/out")
        [ -n "$address" ] && return
        sleep 0.05
    done
    echo "the silo did not start"
    exit 1
}
expect() {
    got=$("$bin/counter" "$address" "${@:2}")
    [ "$got" = "$1" ] || { echo "expected '$1', got '$got'"; exit 1; }
}

start
expect "apples is 3" apples 3
expect "apples is 5" apples 2
expect "pears is -1" pears -1
kill -KILL "$pid"
wait "$pid" 2>/dev/null
start --listen "$address"
expect "apples is 5" apples
expect "apples is 6" apples 1
kill -TERM "$pid"
wait "$pid" || { echo "the silo left with status $?"; exit 1; }
start
expect "apples is 6" apples
expect "pears is -1" pears
echo "ok: counters survive a kill and a clean stop"
