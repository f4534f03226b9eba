#!/bin/bash
# Parts of the suite on aarch64, without such a processor: Debian's userland, wheels, QEMU.
#
#   tests/support/arm.sh [pytest's arguments]     without any: all of PARTS, twice where bits count
#   tests/support/arm.sh all                      all that runs on a processor: hours
#   FEATURES=+neon tests/support/arm.sh [...]     on a core that has these; "" is one of Linux's
#   WITH_TORCH=1 tests/support/arm.sh [...]       where torch can be imported
#   WORKERS=8 tests/support/arm.sh [...]          by so many processes in the place of two
#
# Says why and ends well where a tool is missing. The userland lies in .arm, or where ARM_USERLAND
# says; it is made once, with a network. Arguments in PYTEST_ADDOPTS reach pytest. Processes see no ARM core in /proc, so that Numba is told
# which one it compiles for: Cortex-A76 with sdot and udot, then one without; one with bfdot; last
# it is told nothing, and finds in /proc what Linux says of a Cortex-A76.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
where=${ARM_USERLAND:-$top/.arm}
BITS=(tests/nn/test_bnn_pynq.py tests/nn/test_conv2d.py tests/onebit/test_laid_out.py)
PARTS=(tests/products/test_matmul.py tests/onebit/test_onebit.py tests/nn/test_network.py
       tests/backends/host/test_grouped.py tests/nn/test_bound.py)
NARROW=(tests/backends/host/test_features.py tests/backends/host/test_grouped_narrow.py)
TORCHS=(tests/backends/host/test_lists.py tests/backends/host/test_ragged.py
        tests/backends/host/test_routes.py tests/backends/host/test_crew.py)
ALL=(tests/backends/host tests/inputs tests/nn tests/onebit tests/planning tests/products)
WHEELS=(numpy numba llvmlite onnx scipy typer rich platformdirs psutil threadpoolctl pyopencl
        array-api-compat pillow packaging pytest pytest-timeout
        pytest-xdist hypothesis)
# The newest of PyTorch whose wheel for aarch64 asks for nothing of NVIDIA's, and what it imports.
TORCH=(torch==2.10.0 filelock fsspec jinja2 markupsafe mpmath networkx sympy)

skip() {
  echo "make arm: skipped: $1"
  exit 0
}

for tool in mmdebstrap arch-test qemu-aarch64-static unshare; do
  command -v "$tool" > /dev/null ||
    skip "no $tool here; apt-get install mmdebstrap arch-test qemu-user-static brings all"
done
arch-test arm64 > /dev/null 2>&1 || skip "this kernel starts no aarch64 programs (binfmt_misc)"
rights=()
[ "$(id -u)" = 0 ] || rights=(--map-root-user --map-auto)
as_root() {
  unshare --mount "${rights[@]}" "$@"
}
as_root true 2> /dev/null || skip "neither root nor namespaces of users"

# Wheels for aarch64 into a folder of the userland: pip's arguments.
wheels() {
  local folder=$1 platforms=()
  shift
  for tag in manylinux2014 manylinux_2_17 manylinux_2_27 manylinux_2_28; do
    platforms+=(--platform "${tag}_aarch64")
  done
  as_root "${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --no-compile \
    --target "$where/$folder" "${platforms[@]}" --python-version 3.11 --only-binary=:all: "$@"
}

# PoCL from Debian: its wheel has no build for aarch64.
if [ ! -e "$where/ready" ]; then
  [ ! -e "$where" ] || as_root rm -rf --one-file-system "$where"
  mmdebstrap --quiet --architectures=arm64 --variant=essential \
    --include=python3-minimal,libpython3-stdlib,python3-distutils,libgomp1,pocl-opencl-icd \
    bookworm "$where"
  as_root mkdir -p "$where/src" "$where/shared"
  as_root touch "$where/ready"
fi
# Wheels of a list, once, and all anew where the list has changed.
bring() {
  local folder=$1
  shift
  [ "$(cat "$where/ready-$folder" 2> /dev/null)" = "$*" ] && return
  as_root rm -rf --one-file-system "${where:?}/$folder"
  wheels "$folder" "$@"
  echo "$*" | as_root tee "$where/ready-$folder" > /dev/null
}
bring site "${WHEELS[@]}"
bring torch --no-deps "${TORCH[@]}"  # by itself: it takes long to import, and most tests do without

# What Linux says of a Cortex-A76, for LLVM, which names cores by numbers of implementer and part.
core() {
  printf '%s\n' 'processor : 0' \
    'Features : fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm asimddp' \
    'CPU implementer : 0x41' 'CPU architecture: 8' 'CPU variant : 0x1' 'CPU part : 0xd0b'
}

# Python's modules under `features`, in the checkout, which the userland has as /src.
inside() {
  local features=$1
  shift
  as_root bash -c '
    where=$1 top=$2 features=$3 core=$4 paths=$5
    shift 5
    mount --bind "$top" "$where/src"
    [ ! -d "$top/../shared" ] || mount --bind "$(readlink -f "$top/../shared")" "$where/shared"
    mount --rbind /proc "$where/proc"
    mount --rbind /sys "$where/sys" && mount --rbind /dev "$where/dev"
    told=(NUMBA_CPU_NAME=cortex-a76 NUMBA_CPU_FEATURES="$features")
    if [ -z "$features" ]; then
      told=()
      echo "$core" > "$where/tmp/cpuinfo" && mount --bind "$where/tmp/cpuinfo" "$where/proc/cpuinfo"
    fi
    cd "$where/src"
    exec env -i HOME=/root PATH=/usr/bin:/bin:/usr/sbin:/sbin TMPDIR=/tmp PYTHONPATH="$paths" \
      LD_LIBRARY_PATH=/site/numpy.libs QEMU_CPU=max,sve=off PYTHONPYCACHEPREFIX=/tmp/pyc \
      NUMBA_CACHE_DIR=/tmp/numba "${told[@]}" NUMBA_NUM_THREADS=2 \
      OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTEST_ADDOPTS="${PYTEST_ADDOPTS:-}" \
      chroot "$where" /bin/sh -c "cd /src && exec python3.11 -m \"\$@\"" sh "$@"
  ' sh "$where" "$top" "$features" "$(core)" "$paths" "$@"
}

# Machine code is kept in the userland; no test is held to a time that an emulator does not keep.
suite() {
  local features=$1
  shift
  inside "$features" pytest -m "not clock" -o cache_dir=/tmp/pytest -n "${WORKERS:-2}" "$@"
}

# One of those that `make arm` consists of: what it is, then the suite's arguments.
part() {
  echo "make arm: $1"
  shift
  suite "$@" || failed=1
  echo "make arm: $((SECONDS / 60)) min $((SECONDS % 60)) s from its start"
}

dots=+neon,+dotprod
paths=/src:/site
if [ "$*" = all ]; then
  paths+=:/torch
  suite "$dots" "${ALL[@]}"
elif [ $# -gt 0 ]; then
  paths+=${WITH_TORCH:+:/torch}
  suite "${FEATURES-$dots}" "$@"
else
  failed=0
  part "1 of 5, a core with udot and sdot" "$dots" "${BITS[@]}" "${PARTS[@]}"
  part "2 of 5, bits on a core without" +neon "${BITS[@]}"
  part "3 of 5, a core that Linux describes" "" "${NARROW[0]}"
  paths+=:/torch
  part "4 of 5, beside PyTorch" "$dots" "${NARROW[@]}" "${TORCHS[@]}"
  part "5 of 5, a core with bfdot" "$dots,+bf16" "${NARROW[@]}" "${TORCHS[@]}" -k bfloat16
  exit "$failed"
fi
