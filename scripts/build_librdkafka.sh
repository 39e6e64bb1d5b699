#!/bin/sh
# Build a librdkafka that knows Kerberos into FOLDER, of the version that confluent-kafka has, and print the line that uses it.
# Usage: build_librdkafka.sh FOLDER [REPOSITORY]
# PYTHON is the Python with confluent-kafka; REPOSITORY is a git repository of librdkafka.
# Needs git, a C compiler, make and pkg-config, and the headers of libsasl2, OpenSSL, zlib, zstd and curl; on Debian:
#   apt-get install git gcc make pkg-config libsasl2-dev libssl-dev zlib1g-dev libzstd-dev libcurl4-openssl-dev
# To run, it needs Cyrus SASL's plugin of GSSAPI, and kinit; on Debian: libsasl2-modules-gssapi-mit, krb5-user
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
repository=${2:-https://github.com/confluentinc/librdkafka.git}
version=$("${PYTHON:-python3}" -c 'import confluent_kafka; print(confluent_kafka.libversion()[0])')
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
git -c advice.detachedHead=false clone --quiet --depth 1 --branch "v$version" "$repository" "$sources"
cd "$sources"
./configure --prefix="$folder" --enable-gssapi >output.log 2>&1 || { tail -20 output.log >&2; exit 1; }
make -C src -j "$(nproc)" >>output.log 2>&1 && make -C src install >>output.log 2>&1 || { tail -20 output.log >&2; exit 1; }
echo "export LD_PRELOAD=$folder/lib/librdkafka.so.1"
