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
"""Access to a git repository through git's plumbing commands."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .staging import StagingError

# A git hook sets these variables, and they point to another repository.
_REPOSITORY_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
)


class Repository:
    """A checkout or a bare repository; no method changes its work tree, index or HEAD.

    Parameters
    ----------
    path : Path
        A folder in it.

    Raises
    ------
    StagingError
        If git is missing, or `path` is not in a repository.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise StagingError(f"{path}: expected a git checkout of TVM, found no folder")
        self.run("rev-parse", "--git-dir")

    def run(
        self, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> bytes:
        """Run ``git arguments`` and return its output.

        Raises
        ------
        StagingError
            If git fails; the message ends with the last part of its standard error.
        """
        inherited = {
            key: value for key, value in os.environ.items() if key not in _REPOSITORY_VARIABLES
        }
        try:
            done = subprocess.run(
                ["git", "-C", str(self.path), *arguments],
                input=stdin,
                capture_output=True,
                env={**inherited, "LC_ALL": "C", **(environment or {})},
            )
        except FileNotFoundError:
            raise StagingError("git is not on PATH; install it") from None
        if done.returncode != 0:
            reason = " ".join(done.stderr.decode(errors="replace").split())[-300:]
            raise StagingError(f"{self.path}: git {arguments[0]} failed: {reason}")
        return done.stdout

    def run_text(self, *arguments: str) -> str:
        """Run ``git arguments`` and return its output as text, without the last line end."""
        return self.run(*arguments).decode(errors="surrogateescape").rstrip("\n")

    def find_commit(self, revision: str) -> str | None:
        """Return the id of the commit that `revision` names, or None if it is missing."""
        try:
            return self.run_text("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        except StagingError:
            return None

    def commit_of(self, revision: str) -> str:
        """Return the id of the commit that `revision` names.

        Raises
        ------
        StagingError
            If the commit is missing.
        """
        commit = self.find_commit(revision)
        if commit is None:
            raise StagingError(f"{self.path}: commit {revision} is missing")
        return commit

    def find_entry(self, commit: str, path: str) -> tuple[str, str] | None:
        """Return mode and object id of the entry at `path` in `commit`, or None."""
        listed = self.run_text("ls-tree", "--full-tree", "-z", commit, "--", path).rstrip("\0")
        if not listed:
            return None
        mode, _, object_id = listed.split("\t")[0].split()
        return mode, object_id
