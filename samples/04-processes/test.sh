#!/bin/bash
# test.sh ORDERS - it says what the README shows.
expected="Almaz 100: the balance is 100
Biruk 40: the balance is 40
gold for Chaltu: is no order
Almaz 150: the balance is 250
Biruk 5000: refused by the auditor
2 parsers were started"
got=$("$1") || { echo "ended with status $?"; exit 1; }
[ "$got" = "$expected" ] || { echo "got: $got"; exit 1; }
