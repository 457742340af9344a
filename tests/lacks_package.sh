#!/bin/sh
# Stands for a test of a store engine that this build lacks. Usage: lacks_package.sh PACKAGE
echo "skipped: built without $1, or with the engine's option disabled"
exit 77
