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
# Functions for the checks that run in their own root file system:
#
#   require TOOL...        exit with a message if a tool or root permissions are missing
#   debian_root RELEASE DIRECTORY PACKAGES   make a minimal Debian with packages (a,b,c)
#   registry_mounts DIRECTORY   list the files and folders of this machine that pip needs in a root
#   own_mounts SCRIPT ARGUMENT...   restart the script in its own mount namespace, so that its mounts
#                          end with it
#   bare_root RELEASE DIRECTORY   make a minimal Debian with working pip and apt
#   inside DIRECTORY COMMAND...   run a command in it, without this machine's environment
#   remove_root DIRECTORY   unmount everything in a folder, and remove it
#   took WHAT              print the seconds since the last call
#
# The Debian mirror is DEBIAN_MIRROR or, by default, that of this machine's apt.
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
  'Origin: Debian' 'Label: Debian' 2>/dev/null | sed -n 1p || true)}

require() {
  local tool
  [[ $(id -u) == 0 ]] || { echo "$0 must run as root (for chroot)" >&2; exit 1; }
  for tool; do
    command -v "$tool" >/dev/null ||
      { echo "$0 needs $tool (on Debian: apt-get install --no-install-recommends $tool)" >&2; exit 1; }
  done
}

debian_root() {
  [[ -n $mirror ]] ||
    { echo "$0: no Debian mirror known to apt: set DEBIAN_MIRROR or run apt-get update" >&2; exit 1; }
  debootstrap --variant=minbase --include="$3" "$1" "$2" "$mirror" >"$2.log" 2>&1 ||
    { tail "$2.log" >&2; echo "$0: debootstrap of $1 failed" >&2; exit 1; }
}

# Prints a line SOURCE:TARGET for each file or folder to mount: certificates, the settings of pip, and
# the folders in them at the same path. Nothing is copied.
registry_mounts() { list_mounts "$1" | sort -u; }

list_mounts() {
  local certificates=${SSL_CERT_FILE:-${REQUESTS_CA_BUNDLE:-}}
  [[ ! -f $certificates ]] || echo "$certificates:/etc/ssl/certs/ca-certificates.crt"
  python3 - "$1/pip.conf" <<'PY'
import ast, os, subprocess, sys

known = ("cert", "index-url", "extra-index-url", "find-links", "trusted-host", "default-timeout")
listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
settings = {}
for line in listed.stdout.splitlines():
    name, _, value = line.partition("=")
    words = ast.literal_eval(value).split()
    # Skip file: URLs, which do not exist in the root.
    settings[name.rpartition(".")[2]] = [word for word in words if not word.startswith("file:")]
with open(sys.argv[1], "w") as file:
    print("[global]", file=file)
    for name, words in settings.items():
        if name in known and words:
            print(name, "=", *words, file=file)
            paths = [word for word in words if os.path.isabs(word) and os.path.exists(word)]
            print(*(f"{path}:{path}" for path in paths), sep="\n", end="\n" if paths else "")
print(f"{sys.argv[1]}:/etc/pip.conf")
PY
}

own_mounts() { [[ -n ${OWN_MOUNTS:-} ]] || OWN_MOUNTS=1 exec unshare --mount "$@"; }

bare_root() {
  local root=$2 mount
  mkdir "$root"
  debian_root "$1" "$root" ca-certificates
  mount -t proc proc "$root/proc"
  mount -t tmpfs tmpfs "$root/dev/shm"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  while read -r mount; do
    mount_at "${mount%%:*}" "$root${mount#*:}"
  done < <(registry_mounts "$(dirname "$root")")
}

mount_at() {
  if [[ -d $1 ]]; then mkdir -p "$2"; else mkdir -p "$(dirname "$2")"; touch "$2"; fi
  mount --bind --read-only "$1" "$2"
}

inside() { env -i LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$@"; }

# Unmounts first: rm must not reach the mounted folders of this machine.
remove_root() {
  awk -v top="$1/" 'index($2, top) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount &&
    rm -rf --one-file-system "$1"
}

took() {
  printf '==> %s: %d s\n' "$1" $((SECONDS - ${last:-0}))
  last=$SECONDS
}
