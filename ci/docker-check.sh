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
# Builds and tests the images of docker/ without a Docker engine; needs root, buildah and debootstrap.
# The base of the images is a Debian root made here, not an image from a registry.
#
#   ci/docker-check.sh [cpu] [cuda]
#
# It needs no GPU; ci/gpu-check.sh has the tests that do.
set -euo pipefail
cd "$(dirname "$0")/.."
source ci/roots.sh
require buildah debootstrap

scratch=$(mktemp -d)
export BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$scratch/storage" --runroot "$scratch/run" "$@"; }
cleanup() {
  buildah umount --all >/dev/null 2>&1 || true
  buildah rm --all >/dev/null 2>&1 || true
  umount "$scratch/storage/overlay" 2>/dev/null || true
  rm -rf --one-file-system "$scratch"
}
trap cleanup EXIT

mounts=()
while read -r mount; do mounts+=(-v "$mount:ro"); done < <(registry_mounts "$scratch")

mkdir "$scratch/root"
debian_root bookworm "$scratch/root" python3,python3-venv,python3-dev,ca-certificates
tar -C "$scratch/root" -c . | gzip -1 >"$scratch/root.tar.gz"
rm -rf "$scratch/root"
mkdir "$scratch/base"
mv "$scratch/root.tar.gz" "$scratch/base"
printf 'FROM scratch\nADD root.tar.gz /\nENV LANG=C.UTF-8\n' >"$scratch/base/Dockerfile"
buildah bud --quiet -t localhost/base "$scratch/base" >/dev/null
took "base (Debian 12, its Python)"

check() {
  local kind=$1 image=localhost/tvm-fixes:$1 size container
  local build=(bud --layers --format docker --quiet --pull-never "${mounts[@]}"
               --build-arg BASE_IMAGE=localhost/base -f "docker/Dockerfile.$kind" -t "$image" .)
  buildah "${build[@]}" >/dev/null
  took "$kind: build"
  buildah "${build[@]}" >/dev/null
  took "$kind: build again, nothing changed"

  [[ $(buildah inspect --format '{{.Docker.Config.Entrypoint}}' "$image") == "[tvm-fixes]" ]]
  [[ $(buildah inspect --format '{{.Docker.Config.User}}' "$image") == 10001 ]]
  [[ $(buildah inspect --format '{{.Docker.Config.Healthcheck}}' "$image") == *healthcheck.sh* ]]
  [[ $(buildah inspect --format '{{index .Docker.Config.Labels "org.opencontainers.image.licenses"}}' \
       "$image") == Apache-2.0 ]]

  container=$(buildah from --pull-never "$image")
  size=$(du -sxm "$(buildah mount "$container")" | cut -f1)
  printf '==> %s: image of %d MB, including %d MB of base\n' "$kind" "$size" "$base_size"
  # Files that were mounted during the build must not remain in the image.
  [[ ! -s $(buildah mount "$container")/etc/pip.conf ]]
  rm -rf "$scratch/work"
  install -d -o 10001 "$scratch/work"
  run() { buildah run -v "$scratch/work:/work" -v "$PWD/ci:/ci:ro" "$container" -- "$@"; }
  [[ $(run id -u) == 10001 ]]
  run bash /opt/tvm-fixes/share/healthcheck.sh
  took "$kind: health check"
  run tvm-fixes doctor
  took "$kind: doctor"
  run python /opt/tvm-fixes/share/tiny_model.py tiny.onnx
  run tvm-fixes compile tiny.onnx -o out
  run python /ci/run_alone.py tiny.onnx out/model.so
  took "$kind: compile a model, and run it with only apache-tvm"
  if [[ $kind == cuda ]]; then
    run tvm-fixes compile tiny.onnx --target cuda/sm_90 --no-compare -o cuda
    run python /ci/cuda_code.py cuda/model.so sm_90
    took "cuda: compile a model for sm_90"
  fi
  buildah rm "$container" >/dev/null
}

container=$(buildah from --pull-never localhost/base)
base_size=$(du -sxm "$(buildah mount "$container")" | cut -f1)
buildah rm "$container" >/dev/null
[[ $# -gt 0 ]] || set -- cpu cuda
for kind; do check "$kind"; done
printf '==> All passed in %d s\n' "$SECONDS"
