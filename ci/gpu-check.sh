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
# Compiles models and kernels for the GPU of this machine, in three dtypes, with and without NVIDIA's
# libraries, and compares their outputs with PyTorch's.
#
#   ci/gpu-check.sh [OPTION...]    options of python -m benchmarks.gpu, e.g. --cases 'small .*'
set -uo pipefail
cd "$(dirname "$0")/.." || exit
status=0
.venv/bin/python -m pytest -q tests/python/target/test_cuda.py || status=1
.venv/bin/python -m benchmarks.gpu --check-only --arch native --variants ours libraries \
  --groups check small layers models --out build/gpu-check "$@" || status=1
exit "$status"
