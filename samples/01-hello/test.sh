#!/bin/bash
# test.sh HELLO - it says what the README shows.
expected="Hello, Almaz! This is Addis Ababa. (1)
Hello, Biruk! This is Addis Ababa. (2)
Hello, Chaltu! This is Lalibela. (1)"
got=$("$1") || { echo "ended with status $?"; exit 1; }
[ "$got" = "$expected" ] || { echo "got: $got"; exit 1; }
