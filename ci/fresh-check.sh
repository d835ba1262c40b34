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
own_mounts "$0" "$@"

packages=$(sed -n 's/^ *sudo apt-get install \([^#]*[^# ]\) *\(#.*\)\?$/\1/p' README.md)
commands=${FRESH_COMMANDS:-$(sed -n 's/^    \(make [a-z]*\) *#.*/\1/p' README.md)}
[[ -n $packages && -n $commands ]] || { echo "README.md: no packages or commands found" >&2; exit 1; }

scratch=$(mktemp -d)
trap 'remove_root "$scratch"' EXIT

follow_readme() {
  local release=$1 root=$scratch/$1 log=$scratch/$1.out command
  bare_root "$release" "$root"
  took "$release: bare root"

  inside "$root" apt-get update >"$log"
  # shellcheck disable=SC2086  # one package per word
  inside "$root" env DEBIAN_FRONTEND=noninteractive apt-get install --yes $packages >>"$log" 2>&1 ||
    { tail "$log" >&2; exit 1; }
  inside "$root" useradd --create-home user
  took "$release: apt-get install $packages"

  git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -c |
    tar -x -C "$root/home/user" --one-top-level=tvm-fixes
  chown -R --reference="$root/home/user" "$root/home/user/tvm-fixes"
  inside "$root" python3 --version
  while read -r command; do
    inside "$root" su user -c "cd ~/tvm-fixes && $command" </dev/null
    took "$release: $command"
  done <<<"$commands"
  printf '==> %s: %d MB of environment\n' "$release" \
    "$(du -sm "$root/home/user/tvm-fixes/.venv" | cut -f1)"
  remove_root "$root"
}

[[ $# -gt 0 ]] || set -- bookworm trixie
for release; do follow_readme "$release"; done
printf '==> All passed in %d s\n' "$SECONDS"
