#!/bin/sh
# netns.sh - two silos in network namespaces of their own, a veth pair between them, a client beside
# one.
# usage: netns.sh SILO_PROGRAM CALLER_PROGRAM. Needs root and iproute2; exit status 77: not possible
#        here.
set -u
silo=$1 caller=$2
a=teff-a-$$ b=teff-b-$$
tmp=$(mktemp -d)
pids=

skip() {
    echo "skipped: $1"
    exit 77
}

cleanup() {
    for pid in $pids; do
        kill -TERM "$pid" 2>/dev/null && wait "$pid"
    done
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$tmp"
}
trap cleanup EXIT

fail() {
    echo "failed: $1"
    cat "$tmp"/*.log
    exit 1
}

[ "$(id -u)" = 0 ] || skip "needs root"
command -v ip >/dev/null || skip "needs iproute2"
ip netns add "$a" 2>/dev/null && ip netns add "$b" 2>/dev/null || skip "no network namespaces here"
ip netns exec "$a" true 2>/dev/null || skip "nothing runs in a network namespace here"
ip link add va netns "$a" type veth peer name vb netns "$b" 2>/dev/null || skip "no veth pairs here"
ip -n "$a" addr add 10.77.0.1/24 dev va && ip -n "$a" link set va up && ip -n "$a" link set lo up
ip -n "$b" addr add 10.77.0.2/24 dev vb && ip -n "$b" link set vb up && ip -n "$b" link set lo up

# ready FILE PID: until the silo has printed its line, or has ended
ready() {
    tries=0
    until grep -q '^ready ' "$1"; do
        kill -0 "$2" 2>/dev/null || fail "a silo ended"
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "a silo was not ready in 60 s"
        sleep 0.1
    done
}

ip netns exec "$a" "$silo" --insecure --listen 10.77.0.1:7701 >"$tmp/a.log" 2>&1 &
pid_a=$!
pids="$pid_a"
ready "$tmp/a.log" $pid_a
ip netns exec "$b" "$silo" --insecure --listen 10.77.0.2:7702 --seed 10.77.0.1:7701 \
    >"$tmp/b.log" 2>&1 &
pid_b=$!
pids="$pid_b $pid_a"
ready "$tmp/b.log" $pid_b

seen=$(ip netns exec "$b" "$caller" 10.77.0.1:7701 200 2>"$tmp/c.log") || fail "calls failed"
[ "$seen" = 2 ] || fail "$seen silos answered, expected 2"
seen=$(ip netns exec "$a" "$caller" 10.77.0.2:7702 200 2>"$tmp/c.log") || fail "calls failed"
[ "$seen" = 2 ] || fail "$seen silos answered, expected 2"

kill -TERM "$pid_b"
wait "$pid_b" || fail "the second silo did not end cleanly"
pids="$pid_a"
seen=$(ip netns exec "$b" "$caller" 10.77.0.1:7701 200 2>"$tmp/c.log") || fail "calls failed"
[ "$seen" = 1 ] || fail "$seen silos answered, expected 1"
kill -TERM "$pid_a"
wait "$pid_a" || fail "the first silo did not end cleanly"
pids=
echo "ok: two silos in two namespaces"
