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
# Runs all linters, and fails if any of them fails.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
.venv/bin/python -m ruff check . || status=1
.venv/bin/python -m ruff format --check . || status=1
.venv/bin/python -m mypy || status=1
.venv/bin/python ci/prose.py || status=1
.venv/bin/hadolint docker/Dockerfile.* || status=1
find src -name '*.cc' -print0 -o -name '*.h' -print0 |
  xargs -0 .venv/bin/clang-format --dry-run -Werror || status=1

# LICENSE and NOTICE are the license itself, py.typed must be empty, and pictures have no comments.
headless=$(git ls-files -z --cached --others --exclude-standard -- \
             ':!LICENSE' ':!NOTICE' ':!*/py.typed' ':!docs/tables' ':!*.png' |
  xargs -0 sh -c 'for file; do
    [ ! -f "$file" ] || head -n 16 "$file" | grep -qF "Licensed to the Apache Software Foundation (ASF)" ||
      echo "$file"
  done' sh)
if [[ -n $headless ]]; then
  printf 'files without the ASF header:\n%s\n' "$headless" >&2
  status=1
fi
exit "$status"
