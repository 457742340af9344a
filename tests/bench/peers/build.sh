#!/bin/bash
# build.sh - build the other systems' programs, those whose tools are there; say which are not.
# usage: peers/build.sh OUT       OUT/SYSTEM is then a program: SYSTEM ROW WORKERS N
# Debian's packages: golang-go, erlang-base, libcaf-dev with g++, librust-tokio-dev with cargo.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 1

# build SYSTEM PACKAGE SOURCE COMMAND...: unless it is newer than its source
build() {
    local system=$1 packages=$2 source=$3
    shift 3
    [ "$out/$system" -nt "$here/$source" ] && return
    rm -f "$out/$system"
    if ! "$@" >"$out/$system.log" 2>&1; then
        echo "sched: $system is skipped: not installed ($packages), or it does not build:" \
            "$(tail -n 1 "$out/$system.log")" >&2
        rm -f "$out/$system"
    fi
}

build_go() {
    (cd "$here/go" && GOFLAGS=-mod=mod GO111MODULE=on GOPROXY=off go build -o "$out/go" .)
}

build_erlang() {
    mkdir -p "$out/ebin" && erlc -o "$out/ebin" "$here/erlang/bench.erl" || return
    cat >"$out/erlang" <<EOF
#!/bin/sh
exec erl -noshell +S "\$2:\$2" +P 2000000 -pa "$out/ebin" -s bench main "\$@"
EOF
    chmod +x "$out/erlang"
}

build_caf() {
    g++ -O2 -std=c++17 -o "$out/caf" "$here/caf/bench.cpp" -lcaf_core -pthread
}

# Debian's cargo, with Debian's registry; in a copy, since cargo writes beside the manifest.
build_tokio() {
    rm -rf "$out/tokio.src"
    cp -r "$here/tokio" "$out/tokio.src" || return
    (cd "$out/tokio.src" && PATH=/usr/bin:$PATH cargo build --release --offline) || return
    cp "$out/tokio.src/target/release/peer" "$out/tokio"
}

build go golang-go go/bench.go build_go
build erlang erlang-base erlang/bench.erl build_erlang
build caf "libcaf-dev g++" caf/bench.cpp build_caf
build tokio "librust-tokio-dev cargo" tokio/src/main.rs build_tokio
exit 0
