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
# Installs the wheels of dist/ on bare Debian without a compiler, then compiles and runs a model there.
# For aarch64, this machine compiles the demo's models, and an emulator runs them. Needs root and
# debootstrap; for aarch64 also qemu-user and .venv.
#
#   ci/test-wheels.sh [RELEASE...] [aarch64]
#
# By default: bookworm (Python 3.11), trixie (Python 3.13) and aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."
source ci/roots.sh
require debootstrap unshare
own_mounts "$0" "$@"

scratch=$(mktemp -d)
trap 'remove_root "$scratch"' EXIT
[[ $# -gt 0 ]] || set -- bookworm trixie aarch64

wheel_for() { # CPU TAG
  local found=(dist/tvm_fixes-*-"$2"-*"$1".whl)
  [[ -f ${found[0]} ]] || { echo "dist/ has no wheel for $2 on $1: run make wheels" >&2; exit 1; }
  echo "${found[0]}"
}

tag_of='import sys; print("cp%d%d" % sys.version_info[:2])'

install_in() {
  local release=$1 root=$scratch/$1 wheel
  bare_root "$release" "$root"
  inside "$root" apt-get update >"$root.out"
  inside "$root" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    python3 python3-venv >>"$root.out" 2>&1 || { tail "$root.out" >&2; exit 1; }
  inside "$root" useradd --create-home user
  wheel=$(wheel_for x86_64 "$(inside "$root" python3 -c "$tag_of")")
  cp "$wheel" constraints.txt ci/wheel_model.py "$root/home/user"
  if inside "$root" bash -c 'command -v cc c++ gcc g++ clang ld'; then
    echo "$release has a compiler" >&2
    exit 1
  fi
  took "$release: $(inside "$root" python3 --version) without a compiler"

  inside "$root" su user -c 'cd && python3 -m venv env && PIP_CONSTRAINT=constraints.txt \
    env/bin/pip install --quiet "./$0[compare,linker]"' "${wheel##*/}"
  took "$release: pip install $(basename "$wheel")[compare,linker]"
  inside "$root" su user -c 'cd && env/bin/python wheel_model.py model.onnx &&
    env/bin/tvm-fixes compile model.onnx -o out && env/bin/python wheel_model.py model.onnx --run out &&
    env/bin/tvm-fixes inspect out'
  took "$release: compile and run"
  remove_root "$root"
}

# Runs Debian's Python for aarch64 in the emulator. Only debootstrap's first stage works without
# running programs for aarch64, so this unpacks the packages itself.
emulate() {
  local root=$scratch/aarch64 site=$scratch/site tag wheel python package
  require qemu-aarch64
  .venv/bin/python -m ci.aarch64_models make "$scratch/models"
  took "aarch64: compile the demo's models"
  mkdir "$root"
  debootstrap --foreign --arch arm64 --variant minbase --include python3 bookworm "$root" "$mirror" \
    >"$root.log" 2>&1 || { tail "$root.log" >&2; exit 1; }
  for package in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
  python=$(echo "$root"/usr/bin/python3.[0-9]*)
  tag=cp3${python##*python3.}
  wheel=$(wheel_for aarch64 "$tag")
  PIP_CONSTRAINT=constraints.txt .venv/bin/python -m pip install --quiet --target "$site" \
    --only-binary :all: --python-version "${tag#cp}" --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 "$wheel"
  took "aarch64: install"
  env -i HOME="$scratch" LANG=C.UTF-8 PYTHONPATH="$site" QEMU_LD_PREFIX="$root" \
    qemu-aarch64 "$python" ci/aarch64_models.py check "$scratch/models"
  took "aarch64: run the demo's models"
}

for where; do
  if [[ $where == aarch64 ]]; then emulate; else install_in "$where"; fi
done
printf '==> All passed in %d s\n' "$SECONDS"
