#!/bin/sh
# tests/fuzz/run.sh NAME [SECONDS]: builds tests/fuzz/NAME.c with libFuzzer and the sanitizers, runs
# it over tests/fuzz/NAME/ (the corpus in the tree) and, for SECONDS (20), over what grows from it.
set -eu
cd "$(dirname "$0")/../.."
name=$1 seconds=${2:-20}
case $name in
http) sources="net/http.c" ;;
ws) sources="net/ws.c core/base/utf8.c" ;;
*) echo "run.sh: no such target: $name" >&2; exit 2 ;;
esac
mkdir -p build/fuzz/$name-corpus
# shellcheck disable=SC2086
clang-14 -std=gnu11 -g -O1 -I. -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=all -o build/fuzz/$name tests/fuzz/$name.c $sources core/base/base.c \
    /usr/lib/x86_64-linux-gnu/libbearssl.a
build/fuzz/$name -runs=0 -artifact_prefix=build/fuzz/$name- tests/fuzz/$name \
    >build/fuzz/$name.log 2>&1 ||
    { tail -n 40 build/fuzz/$name.log; echo "FAIL fuzz-$name: the corpus"; exit 1; }
build/fuzz/$name -max_total_time="$seconds" -timeout=5 -artifact_prefix=build/fuzz/$name- \
    build/fuzz/$name-corpus tests/fuzz/$name >build/fuzz/$name.log 2>&1 ||
    { tail -n 40 build/fuzz/$name.log; echo "FAIL fuzz-$name"; exit 1; }
echo "ok   fuzz-$name: $(tail -n 1 build/fuzz/$name.log)"
