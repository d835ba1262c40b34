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
"""A branch of a checkout of TVM as a folder of the staging area."""

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
    """Write what `branch` changes as the folder `name`, without any text of its base.

    The description of a folder that exists is kept, with a new ``Base`` and ``Last-Update``; that
    of a new one is the message of the branch's last commit, with fields that are to be filled in.

    Parameters
    ----------
    staging : Path
        The staging area.
    checkout : Path
        A git checkout of TVM.
    branch : str
        Any revision of it.
    name : str
        Of the pull request; a new one is put at the end of the series.
    base : str, optional
        The commit that `branch` builds upon; its first parent by default.

    Raises
    ------
    StagingError
        If there is no such branch or base, if there is nothing to record, or if a file is deleted,
        not text in UTF-8, or anything but a plain file.  Nothing is written then.
    """
    names = read_series(staging)
    check_name(name)
    repository = Repository(checkout)
    onto = repository.commit_of(base or f"{branch}~1")
    files, edits = _difference(repository, onto, repository.commit_of(branch))
    described = repository.say("describe", "--tags", "--long", "--abbrev=40", onto)
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
    """New files and edits between two commits."""
    files: dict[str, bytes] = {}
    edits: list[Edit] = []
    raw = repository.say("diff", "--raw", "-z", "--no-renames", "--no-abbrev", base, tip)
    parts = raw.rstrip("\0").split("\0") if raw else []
    for head, path in zip(parts[::2], parts[1::2], strict=True):
        old_mode, new_mode, _, new_id, status = head.lstrip(":").split()
        is_edited = status == "M" and old_mode == new_mode and new_mode in ("100644", "100755")
        if not is_edited and (status, new_mode) != ("A", "100644"):
            raise StagingError(
                f"{path}: expected a new plain file or edited lines, got {status} with mode "
                f"{new_mode}"
            )
        new = repository.run("cat-file", "blob", new_id)
        try:
            new.decode()
        except UnicodeDecodeError:
            raise StagingError(f"{path}: expected text in UTF-8, got other bytes") from None
        if status == "A":
            files[path] = new
        else:
            edits.extend(_edits(repository, base, tip, path, lines_of(new)))
    if not files and not edits:
        raise StagingError(f"{tip}: expected a change against {base}, found none")
    return files, tuple(edits)


def _edits(repository: Repository, base: str, tip: str, path: str, new: list[bytes]) -> list[Edit]:
    old = lines_of(repository.run("cat-file", "blob", f"{base}:{path}"))
    # Without context every line of a hunk begins with + or -, so that @@ is a head for sure.
    options = ("--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--text")
    shown = repository.say("diff", *options, "--inter-hunk-context=0", base, tip, "--", path)
    edits = []
    for line in shown.split("\n"):
        if not (head := _HUNK.match(line)):
            continue
        start, count, new_start, new_count = (int(group or 1) for group in head.groups())
        # For an insertion the head names the line in front.
        first = start if count else start + 1
        last = first + count - 1
        text = b"".join(new[new_start - 1 : new_start - 1 + new_count]) if new_count else b""
        if text and not text.endswith(b"\n"):
            raise StagingError(f"{path}: expected a line end at the end of the file, found none")
        edits.append(Edit(path, first, last, digest(old, first, last), text.decode()))
    return edits


def _format(edit: Edit) -> str:
    place = f"lines = [{edit.first}, {edit.last}]"
    if edit.last < edit.first:
        place = f"after = {edit.last}"
    plain = "'''" not in edit.text and all(c.isprintable() or c in "\n\t" for c in edit.text)
    # JSON's escapes are TOML's too, but for DEL, which JSON leaves as it is.
    quoted = json.dumps(edit.text, ensure_ascii=False).replace("\x7f", "\\u007f")
    text = f"'''\n{edit.text}'''" if plain and edit.text else quoted
    return (
        f'[[edit]]\nfile = {json.dumps(edit.path)}\n{place}\nsha256 = "{edit.sha256}"\n'
        f"text = {text}\n"
    )


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def _new_description(repository: Repository, branch: str) -> str:
    title, _, body = repository.say("log", "-1", "--format=%B", branch).partition("\n")
    fields = "Description:\nBug:\nForwarded: no\nLast-Update:\nApplied-Upstream: no\nBase:\nFix:\n"
    return f"<!--\n{_LICENCE}-->\n# {title}\n\n```text\n{fields}```\n\n{body.strip()}\n"
