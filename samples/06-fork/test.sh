#!/bin/bash
# test.sh CRUNCH - each way has the same sum and leaves nothing out of order, in whatever time.
expected=$(printf '100000 numbers, W workers\n'
    printf '%-20s sum S in T ms, sorted in T ms (0 out of order)\n' \
        sequential "steal continuations" "steal children")
got=$("$1" 100000) || { echo "ended with status $?"; exit 1; }
sum=$(awk 'NR > 1 { for (i = 1; i < NF; i++) if ($i == "sum") print $(i + 1) }' <<<"$got" | sort -u)
[[ $sum =~ ^[0-9]+$ ]] || { echo "sums differ: $got"; exit 1; }
plain=$(sed -e "s/ $sum / S /; s/[0-9.]* ms/T ms/g; s/[0-9]* workers/W workers/" <<<"$got")
[ "$plain" = "$expected" ] || { echo "got: $got"; exit 1; }
"$1" 0 2>/dev/null && { echo "0 numbers were taken"; exit 1; }
exit 0
