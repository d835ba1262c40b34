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
# Follows the README on fresh machines: makes a bare root for each Debian release, installs the
# packages that the README lists, then runs its commands as a user. Needs root and debootstrap.
#
#   ci/fresh-check.sh [RELEASE...]     default: bookworm (Python 3.11) and trixie (Python 3.13)
#   FRESH_COMMANDS="make demo" ci/fresh-check.sh     fewer commands
set -euo pipefail
cd "$(dirname "$0")/.."
source ci/roots.sh
require debootstrap unshare
# In its own mount namespace, so that the mounts end with this script.
[[ -n ${FRESH_NAMESPACE:-} ]] || FRESH_NAMESPACE=1 exec unshare --mount "$0" "$@"

packages=$(sed -n 's/^ *sudo apt-get install \([^#]*[^# ]\) *\(#.*\)\?$/\1/p' README.md)
commands=${FRESH_COMMANDS:-$(sed -n 's/^    \(make [a-z]*\) *#.*/\1/p' README.md)}
[[ -n $packages && -n $commands ]] || { echo "README.md: no packages or commands found" >&2; exit 1; }

scratch=$(mktemp -d)
unmount() { awk -v top="$1/" 'index($2, top) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount; }
# Unmount the folders of this machine before anything is removed.
trap 'unmount "$scratch" && rm -rf --one-file-system "$scratch"' EXIT

mount_at() {
  if [[ -d $1 ]]; then mkdir -p "$2"; else mkdir -p "$(dirname "$2")"; touch "$2"; fi
  mount --bind --read-only "$1" "$2"
}

follow_readme() {
  local release=$1 root=$scratch/$1 log=$scratch/$1.out mount command
  mkdir "$root"
  debian_root "$release" "$root" ca-certificates
  mount -t proc proc "$root/proc"
  mount -t tmpfs tmpfs "$root/dev/shm"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  while read -r mount; do
    mount_at "${mount%%:*}" "$root${mount#*:}"
  done < <(registry_mounts "$scratch")
  took "$release: bare root"

  inside() { env -i LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" "$@"; }
  inside apt-get update >"$log"
  # shellcheck disable=SC2086  # one package per word
  inside env DEBIAN_FRONTEND=noninteractive apt-get install --yes $packages >>"$log" 2>&1 ||
    { tail "$log" >&2; exit 1; }
  inside useradd --create-home user
  took "$release: apt-get install $packages"

  git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -c |
    tar -x -C "$root/home/user" --one-top-level=tvm-fixes
  chown -R --reference="$root/home/user" "$root/home/user/tvm-fixes"
  inside python3 --version
  while read -r command; do
    inside su user -c "cd ~/tvm-fixes && $command" </dev/null
    took "$release: $command"
  done <<<"$commands"
  printf '==> %s: %d MB of environment\n' "$release" \
    "$(du -sm "$root/home/user/tvm-fixes/.venv" | cut -f1)"
  unmount "$root"
  rm -rf --one-file-system "$root"
}

[[ $# -gt 0 ]] || set -- bookworm trixie
for release; do follow_readme "$release"; done
printf '==> All passed in %d s\n' "$SECONDS"
