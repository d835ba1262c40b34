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
"""Pull requests as branches of a checkout of TVM."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .git import Repository
from .staging import PullRequest, StagingError, lines_of

PREFIX = "tvm-fixes/"


@dataclass(frozen=True)
class Branch:
    """A branch of one commit.

    Attributes
    ----------
    name : str
        ``tvm-fixes/NAME``.
    commit, base : str
        The ids of its commit and of the parent of that commit.
    """

    name: str
    commit: str
    base: str


def stage(
    checkout: Path,
    requests: Sequence[PullRequest],
    *,
    base: str | None = None,
    force: bool = False,
) -> list[Branch]:
    """Make a branch for each pull request: all branches, or none.

    Work tree, index and HEAD stay unchanged.  The branches do not build on each other.

    Parameters
    ----------
    checkout : Path
        A git checkout of TVM.
    requests : sequence of PullRequest
        The pull requests to stage.
    base : str, optional
        The commit to stage on; by default, the one that each pull request was made for.
    force : bool
        Whether to replace existing branches.

    Returns
    -------
    branches : list of Branch
        In the order of `requests`.

    Raises
    ------
    StagingError
        If a base is missing or does not have the text that an edit replaces, or if a branch exists
        (or, with `force`, is checked out).
    """
    repository = Repository(checkout)
    for request in requests:
        _reject_existing(repository, PREFIX + request.name, force=force)
    branches = []
    for request in requests:
        onto = repository.find_commit(base or request.base)
        if onto is None:
            raise StagingError(
                f"{request.name}: commit {base or request.base} is missing in {checkout}; fetch "
                "it, or name another one with --base"
            )
        branches.append(Branch(PREFIX + request.name, _commit(repository, request, onto), onto))
    # One transaction updates all references, or none.  The zero id requires that the branch is new.
    condition = "" if force else " " + "0" * 40
    commands = [f"update refs/heads/{one.name} {one.commit}{condition}\n" for one in branches]
    repository.run("update-ref", "--stdin", stdin="".join(commands).encode())
    return branches


def _reject_existing(repository: Repository, name: str, *, force: bool) -> None:
    reference = f"refs/heads/{name}"
    if repository.find_commit(reference) is None:
        return
    if not force:
        raise StagingError(f"{repository.path}: branch {name} exists; --force replaces it")
    if f"branch {reference}" in repository.run_text("worktree", "list", "--porcelain").splitlines():
        raise StagingError(
            f"{repository.path}: cannot replace branch {name}, which is checked out; check out "
            "another one"
        )


def _commit(repository: Repository, request: PullRequest, base: str) -> str:
    """Commit `request` on `base`, without a branch, and return the id of the commit."""
    entries = []
    for path, content in request.files.items():
        if repository.find_entry(base, path) is not None:
            raise StagingError(f"{request.name}: new file {path} already exists in {base}")
        entries.append(("100644", _write(repository, content), path))
    for path in dict.fromkeys(edit.path for edit in request.edits):
        entry = repository.find_entry(base, path)
        if entry is None:
            raise StagingError(
                f"{request.name}: edited file {path} is missing in {base}; the edits were made "
                f"for {request.base}"
            )
        content = _apply(request, path, base, repository.run("cat-file", "blob", entry[1]))
        entries.append((entry[0], _write(repository, content), path))
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        repository.run("read-tree", base, environment=index)
        listing = "".join(f"{mode} {object_id}\t{path}\0" for mode, object_id, path in entries)
        repository.run(
            "update-index", "-z", "--index-info", stdin=listing.encode(), environment=index
        )
        tree = repository.run("write-tree", environment=index).decode().strip()
    made = repository.run("commit-tree", tree, "-p", base, stdin=request.message.encode())
    return made.decode().strip()


def _write(repository: Repository, content: bytes) -> str:
    return repository.run("hash-object", "-w", "--stdin", stdin=content).decode().strip()


def _apply(request: PullRequest, path: str, base: str, content: bytes) -> bytes:
    """Apply the edits of `request` to `content`, the file `path` of `base`."""
    lines = lines_of(content)
    edits = [edit for edit in request.edits if edit.path == path]
    for edit in edits:
        got = edit.digest(lines)
        if got != edit.sha256:
            raise StagingError(
                f"{request.name}: {edit.where}: expected text of SHA-256 {edit.sha256[:12]}…, got "
                f"{got[:12]}… in {base}; the edit was made for {request.base}"
            )
    for edit in reversed(edits):
        lines[edit.first - 1 : edit.last] = lines_of(edit.text.encode())
    return b"".join(lines)
