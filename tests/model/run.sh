#!/bin/sh
# run.sh - check the models: the good ones pass exhaustively, every mutant is found out.
# usage: run.sh [model...]      Needs spin and a C compiler; works in a scratch directory.
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

# check MODEL [MUTANT] -> the verifier's output in $work/out
check()
{
    cd "$work" || exit 1
    rm -f pan* ./*.trail
    # A mutant is found early: compile fast, a small table.
    speed=-O2 table=26
    [ -n "$2" ] && speed=-O1 table=22
    spin ${2:+-D"$2"} -a "$here/$1.pml" >/dev/null &&
        ${CC:-cc} $speed -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c &&
        ./pan -m1000000 -w$table >out 2>&1
}

good()
{
    check "$1"
    states=$(sed -n 's/ states, stored.*//p' "$work/out" | tr -d ' ')
    if grep -q 'errors: 0' "$work/out" && ! grep -q 'max search depth too small' "$work/out"; then
        echo "model $1: ok, $states states"
    else
        echo "model $1: FAILED"
        cat "$work/out"
        failed=1
    fi
}

mutant()
{
    check "$1" "$2"
    if grep -q 'errors: [1-9]' "$work/out"; then
        echo "model $1: $2 is found"
    else
        echo "model $1: FAILED: $2 is not found"
        failed=1
    fi
}

# All: two at a time, since each takes one core and up to 2 GiB; those that take longest first.
if [ $# -eq 0 ]; then
    echo transaction deadlock poller park group deque retake outage index wait wait_any reader \
        call slab cancel side | xargs -n 1 -P 2 sh "$0"
    exit
fi

for model in "$@"; do
    good "$model"
    for m in $(grep -o 'MUTANT_[A-Z_]*' "$here/$model.pml" | sort -u); do
        mutant "$model" "$m"
    done
done
exit $failed
