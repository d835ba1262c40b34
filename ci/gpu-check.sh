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
# Compiles the examples and a few layers for the GPU of this machine, and compares their outputs with
# PyTorch's: `tvm-fixes compile` fails if an output differs.
#
#   ci/gpu-check.sh [MODEL...]    default: all examples
set -uo pipefail
cd "$(dirname "$0")/.." || exit
status=0
.venv/bin/python -m pytest -q tests/python/target/test_cuda.py || status=1
[[ $# -gt 0 ]] || set -- dcgan unet autoencoder_kl hifigan fcn cyclegan superres
for model; do
  for layout in NCHW NHWC; do
    .venv/bin/tvm-fixes compile --quiet --target cuda --layout "$layout" "examples.$model:factory" ||
      { echo "$model, $layout: compilation failed, or outputs differ from PyTorch's" >&2; status=1; }
  done
done
exit "$status"
