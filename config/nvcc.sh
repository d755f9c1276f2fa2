#!/bin/sh
# config/nvcc.sh: prints the path of an nvcc that can compile the GPU kernels: 12.8 or newer, from
# PATH, the toolkit's own folder or build/cuda (config/deps.sh), with the g++ that it needs. Where
# there is none it prints why and fails.
set -eu
why='there is no nvcc in PATH, /usr/local/cuda/bin or build/cuda'
for nvcc in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
    "$PWD/build/cuda/nvidia/cu13/bin/nvcc"; do
    [ -x "$nvcc" ] || continue
    last='' version=0.0
    for word in $("$nvcc" --version 2>/dev/null || true); do
        [ "$last" != release ] || version=${word%,} # Cuda compilation tools, release 13.0, V13...
        last=$word
    done
    minor=${version#*.}
    if [ $((${version%%.*} * 100 + ${minor%%.*})) -lt 1208 ]; then
        why="$nvcc is of release $version, and 12.8 or newer is needed"
    elif ! command -v g++ >/dev/null; then
        why="$nvcc needs g++ (Debian package g++)"
    else
        echo "$nvcc"
        exit 0
    fi
done
echo "$why"
exit 1
