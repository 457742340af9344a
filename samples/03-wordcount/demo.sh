#!/bin/bash
# demo.sh BUILD [silo options...] - three silo processes count the words of the licence texts that
# Debian ships; the result is compared with coreutils. Progress goes to standard error.
# Environment: LISTEN, what to listen on (127.0.0.1:0); or HOSTS, a list of NAMESPACE=HOST:PORT: a
# silo in each of these network namespaces, joined through the first, and the client beside it.
set -u -o pipefail
bin=$1/samples/03-wordcount
shift
dir=$(mktemp -d)
pids=()
stop() {
    [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null
    wait
    rm -rf "$dir"
}
trap stop EXIT
fail() {
    echo "demo: failed: $*" >&2
    exit 1
}

read -r -a hosts <<<"${HOSTS:-here here here}"
# beside NAMESPACE=... COMMAND: run it there
beside() {
    case $1 in
    *=*) exec ip netns exec "${1%%=*}" "${@:2}" ;;
    *) exec "${@:2}" ;;
    esac
}
# ready N: its address, once the Nth silo has printed its line
ready() {
    address=
    for _ in $(seq 1200); do
        address=$(sed -n 's/^ready //p' "$dir/silo$1")
        [ -n "$address" ] && break
        kill -0 "${pids[$1]}" 2>/dev/null || fail "silo $1 did not start"
        sleep 0.05
    done
    [ -n "$address" ] || fail "silo $1 was not ready in 60 s"
    echo "demo: silo $1 serves at $address" >&2
    gateways=$gateways${gateways:+,}$address
}

gateways=
for i in "${!hosts[@]}"; do
    host=${hosts[$i]} how=(--listen "${LISTEN:-127.0.0.1:0}" --store "sqlite:$dir/cluster.db")
    if [ "$host" != here ]; then
        how=(--insecure --listen "${host#*=}" --store "sqlite:$dir/cluster.db")
        [ "$i" = 0 ] || how=(--insecure --listen "${host#*=}" --seed "${gateways%%,*}")
    fi
    beside "$host" "$bin/words-silo" "${how[@]}" "$@" >"$dir/silo$i" &
    pids+=($!)
    [ "$host" = here ] || ready "$i"
done
for i in "${!hosts[@]}"; do
    [ "${hosts[$i]}" != here ] || ready "$i"
done

# The common licences, then copyright files until there are enough words; again if need be.
mapfile -t texts < <(find /usr/share/common-licenses -type f | LC_ALL=C sort
    ls /usr/share/doc/*/copyright 2>/dev/null | LC_ALL=C sort)
files=() have=0
while [ $have -lt 120000 ]; do
    before=$have
    for text in "${texts[@]}"; do
        [ -r "$text" ] || continue
        files+=("$text")
        have=$((have + $(wc -w <"$text")))
        [ $have -lt 120000 ] || break
    done
    [ $have -gt "$before" ] || fail "no licence texts on this machine"
done

split() {
    cat "${files[@]}" | LC_ALL=C tr -cs 'A-Za-z' '\n' | LC_ALL=C tr 'A-Z' 'a-z' | sed '/^$/d'
}
words=$(split | wc -l)
echo "demo: $words words in ${#files[@]} texts" >&2
(beside "${hosts[0]}" "$bin/count" "$gateways" "${files[@]}") >"$dir/ours" ||
    fail "the client ended with status $?"
split | LC_ALL=C sort | uniq -c | awk '{print $1, $2}' >"$dir/theirs"
cmp "$dir/ours" "$dir/theirs" || fail "not the same as sort | uniq -c"

# The seed of others goes last: they keep their rows in its store.
for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill -TERM "${pids[$i]}"
    [ "${hosts[0]}" = here ] || wait "${pids[$i]}" || fail "a silo left with status $?"
done
for pid in "${pids[@]}"; do
    wait "$pid" || fail "a silo left with status $?"
done
pids=()
distinct=$(wc -l <"$dir/ours")
echo "demo: ok: ${#hosts[@]} silos, $words words, $distinct distinct, same as sort | uniq -c"
