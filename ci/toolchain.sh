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
# Says in one sentence what this machine lacks for building tvm-fixes, or nothing.
# Usage: toolchain.sh PYTHON CXX
set -uo pipefail
python=$1 cxx=$2

if ! command -v "$python" >/dev/null; then
  echo "tvm-fixes needs Python 3.11 or newer, but there is no $python (PYTHON=... names another)"
elif ! version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null); then
  echo "tvm-fixes needs Python 3.11 or newer, but $python does not run (PYTHON=... names another)"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "tvm-fixes needs Python 3.11 or newer, but $python is $version (PYTHON=... names another)"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  echo "tvm-fixes needs the venv and ensurepip modules, which $python $version lacks (on Debian they are in python3-venv)"
elif ! headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))') ||
     [[ ! -f $headers/Python.h ]]; then
  echo "tvm-fixes needs the headers of Python, but there is no $headers/Python.h (on Debian they are in python3-dev)"
elif ! command -v "${cxx%% *}" >/dev/null; then
  echo "tvm-fixes needs a C++17 compiler, but there is no ${cxx%% *} (install g++, or name another with CXX=...)"
# shellcheck disable=SC2086  # CXX may hold a launcher and options
elif ! echo '#include <optional>' | $cxx -std=c++17 -fsyntax-only -x c++ - 2>/dev/null; then
  echo "tvm-fixes needs a C++17 compiler, but $cxx does not compile a C++17 file (CXX=... names another)"
fi
