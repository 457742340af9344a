#!/bin/bash
# build.sh - build the other systems' programs, those whose tools are there; say which are not.
# usage: peers/build.sh OUT NAME...       OUT/NAME is then a program: NAME ROW WORKERS N
#                                         OUT/NAME.version says by which compiler
# Debian's packages: golang-go, erlang-base, libcaf-dev with g++, librust-tokio-dev with cargo. The
# .NET SDK's programs (orleans, akka, proto) download the packages that their .csproj names.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 1
shift

# build NAME PACKAGES [FOLDER]: by build_FOLDER, unless it is newer than its sources; FOLDER: NAME
build() {
    local name=$1 packages=$2 folder=${3:-$1}
    [ -e "$out/$name" ] && [ -z "$(find "$here/$folder" "$0" -newer "$out/$name")" ] && return
    rm -f "$out/$name"
    if ! "build_$folder" "$name" >"$out/$name.log" 2>&1; then
        echo "bench: $name is skipped: not installed ($packages), or it does not build:" \
            "$(tail -n 1 "$out/$name.log")" >&2
        rm -f "$out/$name"
    fi
}

build_go() {
    (cd "$here/go" && GOFLAGS=-mod=mod GO111MODULE=on GOPROXY=off go build -o "$out/go" .) || return
    go version >"$out/go.version"
}

build_erlang() {
    mkdir -p "$out/ebin" && erlc -o "$out/ebin" "$here/erlang/"*.erl || return
    cat >"$out/erlang" <<EOF
#!/bin/sh
test "\$1" = serve && name="-sname serves@localhost"
exec erl -noshell +S "\$2:\$2" +P 2000000 -pa "$out/ebin" -self "\$0" "\$2" \$name \\
    -start_epmd false -epmd_module remote -setcookie bench \\
    -kernel inet_dist_use_interface '{127,0,0,1}' -s bench main "\$@"
EOF
    chmod +x "$out/erlang"
    erl -noshell -eval 'io:format("Erlang/OTP ~s~n", [erlang:system_info(otp_release)]), halt().' \
        >"$out/erlang.version"
}

build_caf() {
    g++ -O2 -std=c++17 -o "$out/caf" "$here/caf/"*.cpp -lcaf_io -lcaf_core -pthread || return
    g++ --version | head -n 1 >"$out/caf.version"
}

# What the newest rustc says of itself and, as the last word, its folder: of rustup's toolchains and
# Debian's.
newest_rust() {
    local rustc
    for rustc in "${RUSTUP_HOME:-${HOME-}/.rustup}"/toolchains/*/bin/rustc $(type -aP rustc); do
        [ -x "$rustc" ] && echo "$("$rustc" --version) ${rustc%/*}"
    done | sort -k 2,2V | tail -n 1
}

# With Debian's registry; in a copy, since cargo writes beside the manifest.
build_tokio() {
    local rust
    rust=$(newest_rust) && [ -n "$rust" ] || return
    rm -rf "$out/tokio.src"
    cp -r "$here/tokio" "$out/tokio.src" || return
    (cd "$out/tokio.src" && PATH=${rust##* }:$PATH cargo build --release --offline) || return
    cp "$out/tokio.src/target/release/peer" "$out/tokio" || return
    echo "${rust% *}" >"$out/tokio.version"
}

# In a copy, since dotnet writes beside the project.
build_dotnet() {
    local name=$1 project=$out/dotnet.src/$1/$1.csproj
    type dotnet >/dev/null || return
    mkdir -p "$out/dotnet.src" && cp -r "$here/dotnet/." "$out/dotnet.src" || return
    dotnet build -m:1 -nologo -v q "$project" -c Release -o "$out/$name.bin" || return
    cat >"$out/$name" <<EOF
#!/bin/sh
DOTNET_PROCESSOR_COUNT=\$2 exec dotnet "$out/$name.bin/$name-peer.dll" "\$@"
EOF
    chmod +x "$out/$name"
    echo "dotnet $(dotnet --version)," \
        "$(sed -n 's/.*PackageReference Include="\([^"]*\)" Version="\([0-9.]*\)".*/\1 \2/p' \
            "$project" | head -n 1)" >"$out/$name.version"
}

for name; do
    case $name in
    go) build go golang-go ;;
    erlang) build erlang erlang-base ;;
    caf) build caf "libcaf-dev g++" ;;
    tokio) build tokio "librust-tokio-dev cargo" ;;
    orleans | akka | proto) build $name "the .NET SDK 10" dotnet ;;
    *) echo "bench: no such system: $name" >&2 && exit 2 ;;
    esac
done
exit 0
