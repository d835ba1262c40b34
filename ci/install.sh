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
# Makes .venv with the locked dependencies and an editable tvm-fixes. Writes .venv/.installed last, so
# that it is missing after an interrupted installation.
# Usage: install.sh PYTHON [TVM_WHEEL]
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 tvm_wheel=${2:-}
run=.venv/bin/python stamp=.venv/.installed

python_version() { "$1" -c 'import sys; print("python%d.%d" % sys.version_info[:2])'; }

previous=$(cat "$stamp" 2>/dev/null || true)
rm -f "$stamp"

# Scripts in an environment contain its path: those of a copied one would run the original.
if ! { [[ -x $run && $(python_version "$run") == "$(python_version "$python")" ]] &&
       grep -qF "$(pwd -P)/.venv/" .venv/bin/pip && "$run" -m pip --version >/dev/null; } 2>/dev/null
then
  "$python" -m venv --clear .venv
fi

constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
own_tvm=$("$run" - <<'PY'
import importlib.metadata, json
try:
    origin = importlib.metadata.distribution("apache-tvm").read_text("direct_url.json")
except importlib.metadata.PackageNotFoundError:
    origin = None
print("editable" if json.loads(origin or "{}").get("dir_info", {}).get("editable") else "")
PY
)
if [[ -n $tvm_wheel || -n $own_tvm ]]; then
  grep -v '^apache-tvm==' constraints.txt >"$constraints"
else
  cp constraints.txt "$constraints"
fi
# pip does not install a wheel of the same version as the installed one.
if [[ -n $tvm_wheel || $previous == *tvm:/* ]]; then
  "$run" -m pip uninstall --yes apache-tvm
fi

# Without bytecode of all modules, which takes 40 s: Python compiles what it imports. Without build
# isolation, because the lock covers the build backend too.
"$run" -m pip install -c "$constraints" --no-compile scikit-build-core cmake ninja
"$run" -m pip install -c "$constraints" --no-compile --no-build-isolation ${tvm_wheel:+"$tvm_wheel"} -e '.[dev]'

echo "$(python_version "$run") tvm:${tvm_wheel:-locked}" >"$stamp.new"
mv "$stamp.new" "$stamp"
