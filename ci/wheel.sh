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
# Builds a wheel in an isolated build environment, as pip does for a user, and loads it from an
# otherwise empty folder.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

PIP_CONSTRAINT=constraints.txt .venv/bin/python -m pip wheel --no-deps --wheel-dir "$scratch" .
.venv/bin/python -m pip install --quiet --no-deps --target "$scratch/site" "$scratch"/*.whl

# Next to an installed tvm_ffi, the libraries must find libtvm_ffi.so by their run path.
ln -s "$(.venv/bin/python -c 'import tvm_ffi; print(*tvm_ffi.__path__)')" "$scratch/site/tvm_ffi"
libraries=("$scratch"/site/tvm_fixes/lib/libtvm_fixes{,_relay}.so)
for library in "${libraries[@]}"; do
  ldd "$library" | grep -F 'lib/../../tvm_ffi/lib/libtvm_ffi.so'
done

# Without the site module, the editable installation of this checkout is not found.
site_packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
export PYTHONPATH=$scratch/site:${PYTHONPATH:+$PYTHONPATH:}$site_packages
.venv/bin/python -S - <<'PY'
import os
from pathlib import Path

import tvm_fixes
from tvm_fixes import _ffi

package = Path(tvm_fixes.__file__).parent
assert package == Path(os.environ["PYTHONPATH"].partition(":")[0]) / "tvm_fixes", package
assert (package / "py.typed").is_file()
assert "</html>" in (package / "report" / "page" / "page.html").read_text()
assert _ffi.load() == package / "lib" / "libtvm_fixes.so", _ffi.load()
assert _ffi.load_relay() == package / "lib" / "libtvm_fixes_relay.so", _ffi.load_relay()
extension = Path(_ffi.artifact_extension().__file__)
assert extension.parent == package / "lib", extension
PY
.venv/bin/python -S -m tvm_fixes_cli --version

# Only the extension module depends on the interpreter; the libraries must not.
if nm -D --undefined-only "${libraries[@]}" | grep -E ' _?Py'; then
  echo "a native library depends on Python" >&2
  exit 1
fi
.venv/bin/python - "$scratch"/*.whl <<'PY'
import sys
from pathlib import Path

name = Path(sys.argv[1]).name
tag = "cp{0}{1}-cp{0}{1}-linux".format(*sys.version_info)
assert tag in name, f"{name}: expected {tag}"
PY
