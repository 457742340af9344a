#!/bin/bash
# test.sh GAME - the game ends by itself, its balls bounce the same in each run, and the grain has
# counted them; in a terminal it draws.
got=$("$1" --ticks 120) || { echo "ended with status $?"; exit 1; }
for line in '^ready ' '^59 ticks, ' '^119 ticks, ' '^120 ticks, [0-9.]* a second, ' \
    "^10000 balls bounced 3245 times in 120 ticks$"; do
    grep -q "$line" <<<"$got" || { echo "no '$line' in: $got"; exit 1; }
done
"$1" --balls 0 2>&1 | grep -q "expected a number" || { echo "0 balls were taken"; exit 1; }
if command -v script >/dev/null; then # it gives the game a terminal
    got=$(script -qec "$1 --ticks 2 --balls 1" /dev/null)
    grep -q $'\033\[H' <<<"$got" || { echo "no picture: $got"; exit 1; }
fi
exit 0
