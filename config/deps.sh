#!/bin/sh
# config/deps.sh x86_64|aarch64 [gpu]: what `./configure --with-deps` installs. Debian packages
# (only the missing ones), for aarch64 the arm64 libraries unpacked under build/sysroot, build/venv
# with the Python packages of tests/requirements.txt; with gpu nvcc in build/cuda where the box has
# none, and in build/ptxas the assembler whose code older drivers know, too.
set -eu

packages="gcc g++ libc6-dev binutils linux-libc-dev ninja-build musl-dev libinih-dev libbearssl-dev
  python3 python3-venv strace curl openssl testssl.sh chromium clang-format-14 clang-14
  libclang-rt-14-dev libvulkan1 mesa-vulkan-drivers"
[ "$1" = x86_64 ] ||
    packages="$packages gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross
      linux-libc-dev-arm64-cross lld qemu-user"

die() {
    echo "configure: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "root or sudo is needed to run: $*"
    fi
}

install_packages() {
    command -v apt-get >/dev/null || die "--with-deps needs apt-get; install yourself:" $packages
    want=''
    for p in $packages; do
        case " $(dpkg-query -W -f '${db:Status-Status} ' "$p" 2>/dev/null)" in
        *" installed "*) ;;
        *) want="$want $p" ;;
        esac
    done
    [ -n "$want" ] || return 0
    echo "configure: installing$want"
    as_root apt-get -qq update || echo "configure: apt-get update complained; going on" >&2
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y --no-install-recommends install $want || die "apt-get failed"
}

# apt gets a state of its own under build/, so the system learns of no second architecture.
fetch_sysroot() {
    [ ! -f build/sysroot/complete ] || return 0
    echo "configure: fetching the arm64 libraries into build/sysroot"
    apt=$PWD/build/apt
    rm -rf "$apt" build/sysroot
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" build/sysroot
    : >"$apt/status"
    cat >"$apt/apt.conf" <<TEXT
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
TEXT
    export APT_CONFIG="$apt/apt.conf"
    apt-get -qq update || echo "configure: apt-get update complained; going on" >&2
    (cd "$apt" && apt-get -qq download musl-dev libinih-dev libbearssl-dev) ||
        die "cannot download the arm64 packages"
    for deb in "$apt"/*.deb; do
        dpkg-deb -x "$deb" build/sysroot
    done
    : >build/sysroot/complete
    rm -rf "$apt"
}

# Without the network of PyPI the program can still be built: only tests miss the venv, and say so.
make_venv() {
    ! cmp -s tests/requirements.txt build/venv/requirements.txt || return 0
    echo "configure: making build/venv"
    rm -rf build/venv
    pip="build/venv/bin/pip -q --disable-pip-version-check"
    if /usr/bin/python3 -m venv build/venv && $pip install --no-deps -r tests/requirements.txt; then
        cp tests/requirements.txt build/venv/
    else
        echo "configure: no build/venv (see above): the tests that need it are going to say so" >&2
    fi
}

# fetch WHAT FOLDER LIST, from PyPI
fetch() {
    echo "configure: fetching $1 into $2"
    rm -rf "$2"
    python=build/venv/bin/python3
    [ -x $python ] || python=python3
    $python -m pip install -q --disable-pip-version-check --no-deps --target "$2" -r "$3" ||
        echo "configure: no $1 (see above)" >&2
}

# The compiler of the GPU kernels, where the box has none; without it the build is for CPUs only.
fetch_nvcc() {
    sh config/nvcc.sh >/dev/null || fetch nvcc build/cuda config/cuda.txt
    [ -x build/ptxas/nvidia/cuda_nvcc/bin/ptxas ] || fetch 'ptxas 12.9' build/ptxas config/ptxas.txt
}

install_packages
mkdir -p build
[ "$1" = x86_64 ] || fetch_sysroot
make_venv
[ -z "${2:-}" ] || fetch_nvcc
