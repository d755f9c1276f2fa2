#!/bin/sh
# tests/fuzz/run.sh NAME [SECONDS]: builds tests/fuzz/NAME.c with libFuzzer and the sanitizers, runs
# it over tests/fuzz/NAME/ (the corpus in the tree) and, for SECONDS (10), over what grows from it.
set -eu
cd "$(dirname "$0")/../.."
name=$1 seconds=${2:-10} more='' dictionary=''
base="core/base/arena.c core/base/err.c core/base/json.c core/base/json_prefix.c core/base/utf8.c"
base="$base core/base/file.c"
case $name in
http) sources="net/http.c" ;;
ws) sources="net/ws.c core/base/utf8.c" ;;
json) sources=$base ;;
safetensors) sources="$base core/base/weight.c core/model/safetensors.c" ;;
template) sources="$base core/base/clock.c core/base/date.c core/model/template*.c"
    sources="$sources core/model/unicode_table.c" more=tests/template/styles
    sources="$sources core/model/tool_*.c core/model/answer.c core/model/harmony.c"
    dictionary=-dict=tests/fuzz/template.dict ;;
tokenizer) sources="$base core/model/tokenizer*.c core/model/bpe.c core/model/nfc.c"
    sources="$sources core/model/split*.c core/model/vocab.c core/model/unicode_table.c" ;;
split) sources="$base core/model/split*.c core/model/unicode_table.c" ;;
files) sources="$base core/base/weight.c core/base/log.c core/base/clock.c core/base/date.c"
    sources="$sources core/model/config.c core/model/family.c core/model/fields.c"
    sources="$sources core/model/gemma4.c core/model/mixers.c core/model/mixtures.c"
    sources="$sources core/model/quant.c core/model/rope.c"
    sources="$sources core/model/safetensors.c config/options.c config/value.c" ;;
bodies) sources="$base net/params.c net/fields.c net/forms.c net/input.c net/blocks.c net/turns.c
    net/messages.c net/refusal.c net/keys.c core/engine/sample.c" ;;
answers) sources="$base core/engine/grammar.c core/engine/schema.c core/engine/apart.c"
    sources="$sources core/engine/range.c core/engine/regex*.c core/engine/format.c"
    sources="$sources core/engine/number.c core/engine/string.c core/engine/tags.c"
    sources="$sources core/engine/foresee.c"
    sources="$sources net/kinds.c net/store.c net/refusal.c tests/unit/words.c"
    sources="$sources core/engine/mask*.c core/model/answer.c core/model/tool_*.c"
    sources="$sources core/model/harmony.c"
    sources="$sources core/model/tokenizer*.c core/model/bpe.c core/model/nfc.c"
    sources="$sources core/model/split*.c core/model/vocab.c core/model/unicode_table.c" ;;
*) echo "run.sh: no such target: $name" >&2; exit 2 ;;
esac
mkdir -p build/fuzz/$name-corpus
# shellcheck disable=SC2086
clang-14 -std=gnu11 -g -O1 -I. -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=all -o build/fuzz/$name tests/fuzz/$name.c $sources core/base/base.c \
    /usr/lib/x86_64-linux-gnu/libbearssl.a /usr/lib/x86_64-linux-gnu/libinih.a -lm
# shellcheck disable=SC2086
build/fuzz/$name -runs=0 -artifact_prefix=build/fuzz/$name- tests/fuzz/$name $more \
    >build/fuzz/$name.log 2>&1 ||
    { tail -n 40 build/fuzz/$name.log; echo "FAIL fuzz-$name: the corpus"; exit 1; }
# shellcheck disable=SC2086
build/fuzz/$name -max_total_time="$seconds" -timeout=5 -artifact_prefix=build/fuzz/$name- \
    $dictionary build/fuzz/$name-corpus tests/fuzz/$name $more >build/fuzz/$name.log 2>&1 ||
    { tail -n 40 build/fuzz/$name.log; echo "FAIL fuzz-$name"; exit 1; }
echo "ok   fuzz-$name: $(tail -n 1 build/fuzz/$name.log)"
