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
# Prints which tool is missing for building tvm-fixes, or nothing if all are there.
# Usage: toolchain.sh PYTHON CXX
set -uo pipefail
python=$1 cxx=$2

if ! command -v "$python" >/dev/null; then
  echo "tvm-fixes needs Python 3.11 or newer: $python not found; set PYTHON=..."
elif ! version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null); then
  echo "tvm-fixes needs Python 3.11 or newer: $python does not run; set PYTHON=..."
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "tvm-fixes needs Python 3.11 or newer: $python is $version; set PYTHON=..."
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  echo "tvm-fixes needs the modules venv and ensurepip: not found in $python $version; on Debian, install python3-venv"
elif ! headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))') ||
     [[ ! -f $headers/Python.h ]]; then
  echo "tvm-fixes needs the Python headers: $headers/Python.h not found; on Debian, install python3-dev"
elif ! command -v "${cxx%% *}" >/dev/null; then
  echo "tvm-fixes needs a C++17 compiler: ${cxx%% *} not found; install g++ or set CXX=..."
# shellcheck disable=SC2086  # CXX may hold a launcher and options
elif ! echo '#include <optional>' | $cxx -std=c++17 -fsyntax-only -x c++ - 2>/dev/null; then
  echo "tvm-fixes needs a C++17 compiler: $cxx does not compile C++17; set CXX=..."
fi
