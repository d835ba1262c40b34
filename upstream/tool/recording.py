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
"""Writes a branch of a TVM checkout as a folder of the staging area."""

import datetime
import json
import re
import shutil
import tempfile
from pathlib import Path

from .git import Repository
from .staging import (
    DESCRIPTION,
    EDITS,
    FILES,
    SERIES,
    Edit,
    StagingError,
    check_name,
    digest,
    lines_of,
    read_series,
)

_LICENCE = """\
Licensed to the Apache Software Foundation (ASF) under one or more contributor license
agreements.  See the NOTICE file distributed with this work for additional information
regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
Version 2.0 (the "License"); you may not use this file except in compliance with the
License.  You may obtain a copy of the License at

  http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software distributed under the
License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
either express or implied.  See the License for the specific language governing permissions
and limitations under the License.
"""
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def record(
    staging: Path, checkout: Path, branch: str, name: str, *, base: str | None = None
) -> None:
    """Write the changes of `branch` as the folder `name`, without any text of its base.

    An existing folder keeps its description, with a new ``Base`` and ``Last-Update``.  A new
    folder gets the message of the branch's last commit, with empty fields to fill in.

    Parameters
    ----------
    staging : Path
        The staging area.
    checkout : Path
        A git checkout of TVM.
    branch : str
        A branch or another revision of the checkout.
    name : str
        The name of the pull request; a new name is appended to the series.
    base : str, optional
        The commit that `branch` builds on; its first parent by default.

    Raises
    ------
    StagingError
        If the branch or the base is missing, the branch changes nothing, or a changed file is
        deleted, not a regular file, or not UTF-8 text.  In these cases, nothing is written.
    """
    names = read_series(staging)
    check_name(name)
    repository = Repository(checkout)
    onto = repository.commit_of(base or f"{branch}~1")
    files, edits = _difference(repository, onto, repository.commit_of(branch))
    described = repository.run_text("describe", "--tags", "--long", "--abbrev=40", onto)
    with tempfile.TemporaryDirectory(prefix=".", dir=staging) as temporary:
        made = Path(temporary, name)
        for path, content in files.items():
            (made / FILES / path).parent.mkdir(parents=True, exist_ok=True)
            (made / FILES / path).write_bytes(content)
        made.mkdir(exist_ok=True)
        if edits:
            (made / EDITS).write_text("\n".join([_comment(_LICENCE), *map(_format, edits)]))
        old = staging / name / DESCRIPTION
        text = old.read_text() if old.exists() else _new_description(repository, branch)
        today = datetime.date.today().isoformat()
        for field, value in {"Last-Update": today, "Base": described}.items():
            line = re.compile(rf"^{field}:.*$", re.MULTILINE)
            text = line.sub(f"{field}: {value}", text, count=1)
        (made / DESCRIPTION).write_text(text)
        if (staging / name).exists():
            shutil.move(staging / name, Path(temporary, "old"))
        shutil.move(made, staging / name)
    if name not in names:
        with (staging / SERIES).open("a") as series:
            series.write(f"{name}\n")


def _difference(
    repository: Repository, base: str, tip: str
) -> tuple[dict[str, bytes], tuple[Edit, ...]]:
    """Return the new files and the edits between two commits."""
    files: dict[str, bytes] = {}
    edits: list[Edit] = []
    raw = repository.run_text("diff", "--raw", "-z", "--no-renames", "--no-abbrev", base, tip)
    parts = raw.rstrip("\0").split("\0") if raw else []
    for head, path in zip(parts[::2], parts[1::2], strict=True):
        old_mode, new_mode, _, new_id, status = head.lstrip(":").split()
        is_edited = status == "M" and old_mode == new_mode and new_mode in ("100644", "100755")
        if not is_edited and (status, new_mode) != ("A", "100644"):
            raise StagingError(
                f"{path}: expected a new regular file or edited lines, got status {status} with "
                f"mode {new_mode}"
            )
        new = repository.run("cat-file", "blob", new_id)
        try:
            new.decode()
        except UnicodeDecodeError:
            raise StagingError(f"{path}: the file is not UTF-8 text") from None
        if status == "A":
            files[path] = new
        else:
            edits.extend(_edits(repository, base, tip, path, lines_of(new)))
    if not files and not edits:
        raise StagingError(f"{tip} has no changes against {base}")
    return files, tuple(edits)


def _edits(repository: Repository, base: str, tip: str, path: str, new: list[bytes]) -> list[Edit]:
    old = lines_of(repository.run("cat-file", "blob", f"{base}:{path}"))
    # Without context lines, every line of a hunk begins with + or -, so @@ is always a header.
    options = ("--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--text")
    shown = repository.run_text("diff", *options, "--inter-hunk-context=0", base, tip, "--", path)
    edits = []
    for line in shown.split("\n"):
        if not (head := _HUNK.match(line)):
            continue
        start, count, new_start, new_count = (int(group or 1) for group in head.groups())
        # For an insertion, the header has the line before it.
        first = start if count else start + 1
        last = first + count - 1
        text = b"".join(new[new_start - 1 : new_start - 1 + new_count]) if new_count else b""
        if text and not text.endswith(b"\n"):
            raise StagingError(f"{path}: the last line has no line end")
        edits.append(Edit(path, first, last, digest(old, first, last), text.decode()))
    return edits


def _format(edit: Edit) -> str:
    place = f"lines = [{edit.first}, {edit.last}]"
    if edit.last < edit.first:
        place = f"after = {edit.last}"
    plain = "'''" not in edit.text and all(c.isprintable() or c in "\n\t" for c in edit.text)
    # TOML accepts JSON's escapes, but requires an escape for DEL, which JSON does not escape.
    quoted = json.dumps(edit.text, ensure_ascii=False).replace("\x7f", "\\u007f")
    text = f"'''\n{edit.text}'''" if plain and edit.text else quoted
    return (
        f'[[edit]]\nfile = {json.dumps(edit.path)}\n{place}\nsha256 = "{edit.sha256}"\n'
        f"text = {text}\n"
    )


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def _new_description(repository: Repository, branch: str) -> str:
    title, _, body = repository.run_text("log", "-1", "--format=%B", branch).partition("\n")
    fields = "Description:\nBug:\nForwarded: no\nLast-Update:\nApplied-Upstream: no\nBase:\nFix:\n"
    return f"<!--\n{_LICENCE}-->\n# {title}\n\n```text\n{fields}```\n\n{body.strip()}\n"
