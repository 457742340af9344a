#!/bin/bash
# make.sh - make the authorities and certificates of fuzz_identity and fuzz_conn, valid until
# 2120. Their keys are public, and nothing but these targets trusts them.
# usage: tests/fuzz/certificates/make.sh, in any folder; it replaces the files beside it
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
always=21200101000000Z
cat >"$work/ca.conf" <<END
[ca]
default_ca = test
[test]
database = $work/index
new_certs_dir = $work
rand_serial = yes
default_md = sha256
unique_subject = no
policy = any
[any]
commonName = supplied
END

make_key() { # NAME [ALGORITHM OPTION]
    openssl genpkey -algorithm "${2:-EC}" -pkeyopt "${3:-ec_paramgen_curve:prime256v1}" \
        -out "$work/$1.key" 2>/dev/null
}

# The key of NAME must exist. Only `openssl ca` sets the begin of the validity: these certificates
# are also valid on a machine whose clock is slow.
sign() { # AUTHORITY NAME END EXTENSION [OPTION]
    openssl req -new -key "$work/$2.key" -subj "/CN=$2" -out "$work/$2.csr"
    printf '[extensions]\n%s\n' "$4" >"$work/$2.ext"
    : >"$work/index"
    openssl ca -batch -notext -config "$work/ca.conf" -keyfile "$work/$1.key" \
        -cert "$work/$1.crt" -in "$work/$2.csr" -extfile "$work/$2.ext" -extensions extensions \
        -startdate 20200101000000Z -enddate "$3" -out "$work/$2.crt" ${5:-} 2>/dev/null
}

make_authority() { # NAME
    make_key "$1"
    sign "$1" "$1" "$always" 'basicConstraints=CA:TRUE' -selfsign
}

join() { # NAME FILE...
    local name=$1
    shift
    (cd "$work" && cat "$@") >"$name.pem"
}

for name in ca client-ca other-ca; do
    make_authority "$name"
    join "$name" "$name.crt"
done
for name in silo peer expired middle leaf client other; do
    make_key "$name"
done
make_key rsa RSA rsa_keygen_bits:2048
sign ca silo "$always" ''
sign ca peer "$always" 'subjectAltName=DNS:localhost,IP:127.0.0.1'
sign ca rsa "$always" 'keyUsage=digitalSignature'
sign ca expired 20200102000000Z ''
sign ca middle "$always" 'basicConstraints=CA:TRUE'
sign middle leaf "$always" ''
sign client-ca client "$always" ''
sign other-ca other "$always" ''
for name in silo peer rsa expired client other; do
    join "$name" "$name.crt" "$name.key"
done
join middle middle.crt middle.key
join chain leaf.crt middle.crt leaf.key
