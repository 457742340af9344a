#!/bin/bash
# test.sh BUILD - the steps of the README: three people in a room; one of them is killed, then the
# silo is; the others go on.
set -u
bin=$1/samples/07-chat
dir=$(mktemp -d)
silo=
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$dir"' EXIT

start_silo() {
    : >"$dir/out"
    "$bin/chat-silo" --store "sqlite:$dir/chat.db" "$@" >"$dir/out" 4>&- 5>&- 6>&- &
    silo=$!
    for _ in $(seq 1200); do
        address=$(sed -n 's/^ready //p' "$dir/out")
        [ -n "$address" ] && return
        sleep 0.05
    done
    fail "the silo did not start"
}
fail() {
    echo "$1"
    tail -n +1 "$dir"/*.heard
    exit 1
}
# hears NAME LINE: waits until NAME's terminal shows the line.
hears() {
    for _ in $(seq 1200); do
        grep -qxF "$2" "$dir/$1.heard" && return
        sleep 0.05
    done
    fail "$1 does not hear '$2'"
}
# enters NAME FD: NAME's terminal; what is written to the descriptor FD is what NAME types. No other
# program gets the descriptor, so that NAME's input ends when the shell closes it.
enters() {
    mkfifo "$dir/$1.in"
    "$bin/chat" "$address" kitchen "$1" <"$dir/$1.in" >"$dir/$1.heard" 4>&- 5>&- 6>&- &
    eval "$1=\$!; exec $2>\"$dir/$1.in\""
    hears "$1" "* $1 is in kitchen"
}

start_silo
enters almaz 4
enters biruk 5
enters chaltu 6
echo "is the coffee ready?" >&4
hears biruk "almaz: is the coffee ready?"
hears chaltu "almaz: is the coffee ready?"
echo "not yet" >&5
hears almaz "biruk: not yet"
kill -KILL "$chaltu"
echo "now it is" >&5
hears almaz "biruk: now it is"
grep -q "almaz:" "$dir/almaz.heard" && fail "almaz hears herself"

kill -KILL "$silo"
wait "$silo" 2>/dev/null
start_silo --listen "$address"
hears almaz "* joins again"
hears biruk "* joins again"
for i in $(seq 100); do # biruk's terminal may join the room a little later
    echo "still there? ($i)" >&4
    grep -q "still there" "$dir/biruk.heard" && break
    sleep 0.2
done
hears biruk "$(grep -m1 "still there" "$dir/biruk.heard")"

enters dawit 7
hears dawit "almaz: is the coffee ready?"
exec 4>&- 5>&- 7>&-
wait "$almaz" || fail "almaz left with status $?"
wait "$biruk" || fail "biruk left with status $?"
wait "$dawit" || fail "dawit left with status $?"
kill -TERM "$silo"
wait "$silo" || fail "the silo left with status $?"
echo "ok: a room notifies its listeners; they survive the loss of the silo"
