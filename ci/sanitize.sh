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
# Runs the native tests with the library in build-sanitize. First checks that the sanitizers are
# active: a deliberate fault must end the process.
set -euo pipefail
cd "$(dirname "$0")/.."
export TVM_FIXES_LIBRARY=$PWD/build-sanitize/libtvm_fixes.so
# TVM never frees its registries, so all leak reports would be about them.
export ASAN_OPTIONS=detect_leaks=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

# libasan must find libstdc++ when it loads, to intercept exceptions.
preload=$(ldd "$TVM_FIXES_LIBRARY" | awk '/libasan|libstdc\+\+/ { printf "%s ", $3 }')

if output=$(LD_PRELOAD=$preload .venv/bin/python -c '
from tvm_fixes import _ffi
_ffi.get("tvm_fixes.testing.DeliberateFault")()' 2>&1); then
  echo "the deliberate fault was not detected: the sanitizers are not active" >&2
  exit 1
elif [[ $output != *AddressSanitizer:\ heap-buffer-overflow* ]]; then
  printf 'expected a report of the deliberate fault, got:\n%s\n' "$output" >&2
  exit 1
fi
echo "The deliberate fault was detected: heap-buffer-overflow."

LD_PRELOAD=$preload .venv/bin/python -m pytest --tier=ci -n auto --dist worksteal -m native "$@"
