#!/bin/sh
# An outside project uses an installed teff: once with Meson, once with protoc, pkg-config and cc.
# Usage: test.sh BUILD_DIR SOURCE_DIR, as tests/install/meson.build calls it.
set -eu

build=$1
outside=$2
scratch=$(mktemp -d -t teff-install-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

# The build's own prefix may be anything: the copy is moved to a prefix of ours, teff.pc with it.
DESTDIR=$scratch/stage meson install -C "$build" --no-rebuild --quiet
pc=$(find "$scratch/stage" -name teff.pc)
libdir=$(dirname "$(dirname "$pc")")
stage_prefix=$(sed -n 's/^prefix=//p' "$pc")
mv "$scratch/stage$stage_prefix" "$prefix"
libdir=$prefix${libdir#"$scratch/stage$stage_prefix"}
sed -i "s|^prefix=.*|prefix=$prefix|" "$libdir"/pkgconfig/teff*.pc

export PKG_CONFIG_PATH="$libdir/pkgconfig"
export LD_LIBRARY_PATH="$libdir"

expect() {
    said=$("$@")
    [ "$said" = "teff greets you" ] || { echo "$1 said: $said"; exit 1; }
}

echo "== protoc, pkg-config, cc"
cp -r "$outside" "$scratch/plain"
cd "$scratch/plain"
protoc --plugin="$(pkg-config --variable=protoc_plugin teff)" -I. \
    -I"$(pkg-config --variable=protodir teff)" --teff_out=. greet.proto
# shellcheck disable=SC2046 # words are what pkg-config gives
${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags teff) \
    main.c greet.pb-c.c greet.teff.c -o plain $(pkg-config --libs teff)
expect ./plain

echo "== a cluster of the testing library"
# shellcheck disable=SC2046
${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags teff-testing) \
    cluster.c greet.pb-c.c greet.teff.c -o cluster $(pkg-config --libs teff-testing)
expect ./cluster

echo "== protoc finds the plugin on PATH"
export PATH="$prefix/bin:$PATH"
mkdir again
protoc -I. -I"$(pkg-config --variable=protodir teff)" --teff_out=again greet.proto
cmp greet.teff.c again/greet.teff.c
protoc-gen-teff --version

echo "== Meson"
meson setup "$scratch/meson" "$outside" > "$scratch/meson.log" 2>&1 ||
    { cat "$scratch/meson.log"; exit 1; }
ninja -C "$scratch/meson" > "$scratch/meson.log" 2>&1 || { cat "$scratch/meson.log"; exit 1; }
expect "$scratch/meson/outside"

echo "== every public header stands alone, in C and in C++"
for header in "$prefix"/include/teff/*.h; do
    printf '#include <teff/%s>\nint one;\n' "$(basename "$header")" > one.c
    # shellcheck disable=SC2046
    ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags teff) \
        -fsyntax-only one.c
    [ -z "${CXX:-}" ] || "$CXX" -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror \
        $(pkg-config --cflags teff) -fsyntax-only one.c
done
echo "install: ok"
