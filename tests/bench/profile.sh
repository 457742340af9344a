#!/bin/bash
# profile.sh - where a call's time goes: tables of every function that takes over 5 % of a row.
# usage: profile.sh [-o FOLDER] [-t nng|reactor] [BUILD] [ROW...]
#   BUILD: a build directory made with the release preset (build); ROW: rows of `bench`
#   (local-call remote-call-1024 remote-call-1$). Both processes of a row are in its table.
#   FOLDER: keeps what perf has recorded, for perf report and flame graphs.
#   -t: the transport of remote rows (nng)
# By perf (linux-perf) and its clock, which needs no counters of the processor. A share is of all
# samples of all threads: a function's own, and with what it calls. What runs on a fiber is called
# by teffi_fiber_main, not by the worker. (Callgrind cannot tell: it loses its stack with each
# switch of fibers.)
set -eu -o pipefail

percent=5
out=
transport=nng
while getopts o:t: option; do
    case $option in
    o) out=$OPTARG ;;
    t) transport=$OPTARG ;;
    *)
        sed -n '3,7s/^# *//p' "$0" >&2
        exit 2
        ;;
    esac
done
shift $((OPTIND - 1))
build=${1:-build}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- local-call remote-call-1024 remote-call-1$
bench=$build/tests/bench/bench
[ -x "$bench" ] || {
    echo "profile: no $bench: ninja -C $build benches" >&2
    exit 1
}
command -v perf >/dev/null || {
    echo "profile: perf is not installed (linux-perf)" >&2
    exit 1
}
if [ -z "$out" ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"

# Children, own, thread, symbol; the greatest first.
table() {
    local data=$out/${1%$}.perf
    # Several runs: samples are few, since a run is short.
    perf record -q -F 2000 -e cpu-clock --call-graph fp -o "$data" \
        sh -c 'for i in 1 2 3 4 5; do "$0" "$@"; done' "$bench" "$1" \
        --transport "$transport" >"$out/${1%$}.json"
    printf '\n#### %s\n\n| with calls | own | thread | function |\n|---|---|---|---|\n' "$1"
    perf report -i "$data" --children -F overhead_children,overhead,comm,sym -g none --stdio \
        -t '|' --percent-limit $percent 2>/dev/null |
        awk -F'|' '/^ *[0-9]/ { gsub(/ *$/, "", $3); gsub(/^ *| *$/, "", $4)
            printf "|%s|%s| %s | `%s` |\n", $1, $2, $3, $4 }'
    echo
    sed 's/^/    /' "$out/${1%$}.json"
}

for row; do
    table "$row"
done
