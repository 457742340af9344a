#!/bin/bash
# netns.sh BUILD - the demo with two silos in network namespaces of their own, a veth pair between
# them. Needs root and iproute2; exit status 77: not possible here.
set -u
a=teff-words-a-$$ b=teff-words-b-$$
skip() {
    echo "skipped: $*"
    exit 77
}
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null' EXIT

[ "$(id -u)" = 0 ] || skip "needs root"
command -v ip >/dev/null || skip "needs iproute2"
{ ip netns add "$a" && ip netns add "$b"; } 2>/dev/null || skip "no network namespaces here"
ip netns exec "$a" true 2>/dev/null || skip "nothing runs in a network namespace here"
ip link add wa netns "$a" type veth peer name wb netns "$b" 2>/dev/null || skip "no veth pairs here"
ip -n "$a" addr add 10.78.0.1/24 dev wa && ip -n "$a" link set wa up && ip -n "$a" link set lo up
ip -n "$b" addr add 10.78.0.2/24 dev wb && ip -n "$b" link set wb up && ip -n "$b" link set lo up

HOSTS="$a=10.78.0.1:7101 $b=10.78.0.2:7101" "$(dirname "$0")/demo.sh" "$1" --quiet
