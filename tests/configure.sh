#!/bin/sh
# ./configure in a copy of the tree: refuses what it does not know, and needs little of the machine.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp -r configure build.ninja config tests "$dir"
[ ! -d build/cuda ] || { mkdir "$dir/build" && ln -s "$PWD/build/cuda" "$dir/build/cuda"; }
cd "$dir"

check() { # check NAME WANTED-STATUS WANTED-TEXT command...
    name=$1 status=$2 text=$3
    shift 3
    got=0
    "$@" >out 2>&1 || got=$?
    if [ "$got" = "$status" ] && grep -q -e "$text" out; then
        echo "ok   $name"
    else
        echo "FAIL $name: status $got, wanted $status and '$text' in:"
        cat out
    fi
}

bin=$dir/bin # a PATH without gcc, and without anything else that is not listed
mkdir bin
for tool in sh cat cut dirname echo ln mkdir python3 readelf ninja tr cp; do
    ln -s "$(command -v $tool)" bin/$tool
done

check help 0 with-deps ./configure --help
check unknown_option 1 "unknown option '--nonsense'" ./configure --nonsense
check unknown_target 1 'x86_64 and aarch64' ./configure --target=sparc
check wrong_sm 1 "'81' is none of" ./configure --sm=80,81
check some_architectures 0 'release build' ./configure --sm=90,80
check architectures_in_order 0 '^gpu_images = sm:80:.* sm:90:.* ptx:80:.*$' cat build/config.ninja
mkdir gpu
printf '#!/bin/sh\nprintf "8.9\\n12.1\\n8.9\\n"\n' >gpu/nvidia-smi
chmod +x gpu/nvidia-smi
check gpus_of_this_box 0 'release build' env PATH="$dir/gpu:$PATH" ./configure --sm=here
check newer_minor_numbers_too 0 '^gpu_images = sm:89:.* sm:120:.* ptx:80:.*$' cat build/config.ninja
printf '#!/bin/sh\nprintf "7.0\\n8.6\\n7.0\\n"\n' >gpu/nvidia-smi
check newer_ones_beside_old_ones 0 'release build' env PATH="$dir/gpu:$PATH" ./configure --sm=here
check of_these_alone 0 '^gpu_images = sm:86:build/gpu/sm_86.cubin ptx:' cat build/config.ninja
printf '#!/bin/sh\necho 7.0\n' >gpu/nvidia-smi
check no_kernels_for_old_ones 0 'there is no GPU' env PATH="$dir/gpu:$PATH" ./configure --sm=here
check here_is_not_there 1 'such as --sm=87' ./configure --sm=here --target=aarch64
check no_kernels_wanted 0 'CPU: as --sm=none says' ./configure --sm=none
check none_and_some 1 "'none' is none of" ./configure --sm=none,90
check nearly_here 1 "'heres' is none of" ./configure --sm=heres
check none_are_joined 0 '^gpu_image = build/gpu/none$' cat build/config.ninja
check relative_prefix 1 absolute ./configure --prefix=here
check sanitized_arm 1 sanitize ./configure --target=aarch64 --sanitize
check missing_gcc_is_named 1 'apt-get install gcc' env PATH="$bin" ./configure
ln -s "$(command -v gcc)" bin/gcc
check bare_path 0 'release build for x86_64' env PATH="$bin" ./configure
check no_kernels_is_said 0 'no GPU kernels in this build.*g++' env PATH="$bin" ./configure
check kernels_need_gxx 1 'sm=80: .*g++' env PATH="$bin" ./configure --sm=80
check no_musl_headers_of_arm 1 'with-deps --target=aarch64' ./configure --target=aarch64
