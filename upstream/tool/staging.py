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
"""Reads and checks a folder of the staging area."""

import datetime
import email.parser
import hashlib
import io
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from tvm_fixes.support import switches
from tvm_fixes.support.files import read_text

_T = TypeVar("_T")

_TOOL = "tool"
DESCRIPTION, EDITS, FILES, SERIES = "PR.md", "edits.toml", "files", "series"

_TITLE = re.compile(r"(\[[A-Za-z0-9_-]+\])+ [A-Z].*[^.\s]")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_PARTS = re.compile(
    r"(?:<!--.*?-->\s*)?"  # the licence
    r"# (?P<title>[^\n]*)\n\s*"
    r"```text\n(?P<fields>.*?)```\s*"
    r"(?P<body>## Why\n(?P<why>.*?)\n## How\n(?P<how>.*))",
    re.DOTALL,
)
_URL = r"https://[^\s]+"
# The pattern of each field, and its description for messages.
_FIELDS: Mapping[str, tuple[str, str]] = {
    "Description": (r"\S.*", "one sentence"),
    "Bug": (_URL, "the URL of an issue or pull request"),
    "Forwarded": (rf"no|not-needed|{_URL}", "no, not-needed, or the URL of the pull request"),
    "Last-Update": (r"\d{4}-\d{2}-\d{2}", "a date such as 2026-01-31"),
    "Applied-Upstream": (
        rf"no|({_URL}|v?\d[\w.]*)(, commit:[0-9a-f]{{7,40}})?|commit:[0-9a-f]{{7,40}}",
        "no, or the version or URL, and commit:HASH",
    ),
    "Base": (
        r"\S+-\d+-g[0-9a-f]{40}",
        "the output of `git describe --tags --long --abbrev=40` for the commit",
    ),
    "Fix": (r"[a-z0-9.-]+(, [a-z0-9.-]+)*", "ids of fixes, separated by commas"),
}


class StagingError(ValueError):
    """The staging area is invalid, or does not fit a checkout; the message is one line."""


@dataclass(frozen=True)
class Edit:
    """Replaced or inserted lines of a TVM file.

    Attributes
    ----------
    path : str
        The file, from the root of TVM's repository.
    first, last : int
        The first and the last replaced line, counted from 1.  For an insertion before line
        `first`, `last` is ``first - 1``.
    sha256 : str
        The SHA-256 of the replaced lines, as bytes with their line ends; for an insertion, of the
        lines before and after it.
    text : str
        The new lines.
    """

    path: str
    first: int
    last: int
    sha256: str
    text: str

    @property
    def where(self) -> str:
        """The location of the edit, for messages."""
        if self.last < self.first:
            return f"{self.path} after line {self.last}"
        return f"{self.path} lines {self.first}-{self.last}"

    def digest(self, lines: list[bytes]) -> str:
        """Return the SHA-256 of the lines that this edit replaces; `lines` are the whole file."""
        return digest(lines, self.first, self.last)


@dataclass(frozen=True)
class PullRequest:
    """One pull request.

    Attributes
    ----------
    name : str
        The name of its folder.
    title, why, how : str
        The parts of its description; the sections are Markdown.
    fields : mapping of str to str
        The DEP-3 fields, with ``Base`` and ``Fix``.
    files : mapping of str to bytes
        The new files, by their path from the root of TVM's repository.
    edits : tuple of Edit
        The edits; those of one file are in the order of the lines.
    """

    name: str
    title: str
    why: str
    how: str
    fields: Mapping[str, str]
    files: Mapping[str, bytes]
    edits: tuple[Edit, ...]

    @property
    def message(self) -> str:
        """The commit message: the description as GitHub shows it, without the fields."""
        return f"{self.title}\n\n## Why\n\n{self.why}\n\n## How\n\n{self.how}\n"

    @property
    def base(self) -> str:
        """The commit that the edits were made for, in a form that git resolves."""
        return self.fields["Base"]

    @property
    def fixes(self) -> tuple[str, ...]:
        """The ids of this project's fixes for the same defect."""
        return tuple(self.fields["Fix"].split(", "))

    @property
    def is_applied(self) -> bool:
        """Whether upstream has applied it."""
        return self.fields["Applied-Upstream"] != "no"

    @property
    def tests(self) -> tuple[str, ...]:
        """Those of `files` that pytest collects."""
        return tuple(p for p in self.files if re.fullmatch(r"tests/python/.*/?test_\w+\.py", p))


def default_staging() -> Path:
    """Return the folder ``upstream`` that contains this tool."""
    return Path(__file__).parents[1]


def read_series(staging: Path) -> tuple[str, ...]:
    """Return the names of the pull requests in `staging`, in the order to propose them.

    Raises
    ------
    StagingError
        If the folder is missing, or its series does not match its subfolders.
    """
    try:
        text = read_text(staging / SERIES)
    except (FileNotFoundError, NotADirectoryError):
        raise StagingError(
            f"{staging}: not a staging area: the file {SERIES} is missing; name the folder "
            "upstream of the tvm-fixes repository with --staging"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise StagingError(f"{staging / SERIES}: expected UTF-8, got: {error}") from None
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    names = tuple(line for line in lines if line)
    for name in names:
        check_name(name)
    folders = {path.name for path in staging.iterdir() if path.is_dir() and path.name[0] != "."}
    folders -= {_TOOL}
    odd = folders.symmetric_difference(names) | {name for name in names if names.count(name) > 1}
    if odd:
        raise StagingError(
            f"{staging / SERIES}: expected the name of each folder once; missing, repeated or "
            f"without a folder: {', '.join(sorted(odd))}"
        )
    return names


def check_name(name: str) -> None:
    """Check that `name` is valid for a pull request.

    Raises
    ------
    StagingError
        If `name` is anything but words of a-z and 0-9, separated by hyphens.
    """
    if not _NAME.fullmatch(name):
        raise StagingError(f"expected a name of a-z, 0-9 and -, got {name!r}")


def read_pull_request(staging: Path, name: str) -> PullRequest:
    """Read and check the folder `name` of `staging`.

    Raises
    ------
    StagingError
        For the first missing or invalid item; the message names folder, file and field, and the
        expected and the actual value.
    """
    folder = staging / name
    if not folder.is_dir():
        raise StagingError(f"{folder}: the folder is missing")
    odd = sorted({path.name for path in folder.iterdir()} - {DESCRIPTION, EDITS, FILES})
    if odd:
        raise StagingError(
            f"{folder}: expected only {DESCRIPTION}, {EDITS} and {FILES}, got {odd[0]}"
        )
    title, fields, why, how = _read_description(folder / DESCRIPTION)
    files = {
        path.relative_to(folder / FILES).as_posix(): path.read_bytes()
        for path in sorted((folder / FILES).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    edits = read_edits(folder / EDITS) if (folder / EDITS).exists() else ()
    request = PullRequest(name, title, why, how, fields, files, edits)
    for path in sorted(set(files).intersection(edit.path for edit in edits)):
        raise StagingError(f"{folder}: {path} is both a new file and edited; expected one of them")
    if not edits and len(request.tests) == len(files):
        raise StagingError(f"{folder}: expected a change besides the tests, got none")
    if not request.tests:
        raise StagingError(f"{folder}: expected a test in {FILES}/tests/python, got none")
    for path in request.tests:
        if not files[path].rstrip().endswith(b"tvm.testing.main()"):
            raise StagingError(f"{folder / FILES / path}: expected tvm.testing.main() at the end")
    return request


def _read_description(path: Path) -> tuple[str, Mapping[str, str], str, str]:
    """Return title, fields and sections of a ``PR.md``."""
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise StagingError(f"{path}: the description is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StagingError(f"{path}: expected a description in UTF-8, got: {error}") from None
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise StagingError(
            f"{path}: expected a title (# …), the fields (```text), ## Why and ## How, in this "
            "order"
        )
    if not _TITLE.fullmatch(parts["title"]):
        raise StagingError(
            f"{path}: title: expected tags and an imperative without a full stop, such as "
            f"'[Fix][Relax] Keep the …', got {parts['title']!r}"
        )
    sections = {}
    for section in ("why", "how"):
        sections[section] = parts[section].strip()
        if not sections[section] or re.search(r"^#{1,2} ", sections[section], re.MULTILINE):
            raise StagingError(
                f"{path}: ## {section.title()}: expected text without further headings, "
                f"got {sections[section][:40]!r}"
            )
    return parts["title"], _read_fields(path, parts["fields"]), sections["why"], sections["how"]


def _read_fields(path: Path, text: str) -> Mapping[str, str]:
    message = email.parser.Parser().parsestr(text)
    if message.defects or str(message.get_payload()).strip():
        line = (str(message.get_payload()).strip() or text).splitlines()[0]
        raise StagingError(f"{path}: fields: expected lines 'Field: value', got {line!r}")
    for name in message:
        if name not in _FIELDS or message.get_all(name) != [message[name]]:
            known = ", ".join(_FIELDS)
            raise StagingError(f"{path}: field {name}: unknown or repeated; expected {known} once")
    fields = {}
    for name, (form, words) in _FIELDS.items():
        if message[name] is None:
            raise StagingError(f"{path}: field {name}: expected {words}, got nothing")
        fields[name] = " ".join(message[name].split())
        if not re.fullmatch(form, fields[name]):
            raise StagingError(f"{path}: field {name}: expected {words}, got {fields[name]!r}")
    try:
        datetime.date.fromisoformat(fields["Last-Update"])
    except ValueError:
        raise StagingError(
            f"{path}: field Last-Update: expected a valid date, got {fields['Last-Update']!r}"
        ) from None
    for fix in fields["Fix"].split(", "):
        if fix not in switches.FIX_IDS:
            raise StagingError(
                f"{path}: field Fix: expected ids that 'tvm-fixes doctor' lists, got {fix!r}"
            )
    return fields


def read_edits(path: Path) -> tuple[Edit, ...]:
    """Return the edits of an ``edits.toml``.

    Raises
    ------
    StagingError
        If an edit is invalid, or two edits of a file overlap or are out of order.
    """
    try:
        document = tomllib.loads(read_text(path))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StagingError(f"{path}: expected TOML, got: {error}") from None
    records = document.pop("edit", None)
    if document or not isinstance(records, list) or not records:
        raise StagingError(f"{path}: expected only tables [[edit]]")
    edits: list[Edit] = []
    for number, record in enumerate(records, 1):
        edit = _read_edit(f"{path}: edit {number}", record)
        before = [other for other in edits if other.path == edit.path]
        # Adjacent edits must be one edit: the lines next to the second one belong to the first one.
        if before and edit.first <= max(before[-1].first, before[-1].last + 1):
            raise StagingError(
                f"{path}: edit {number}: expected lines after those of the previous edit, "
                f"got {edit.where}"
            )
        edits.append(edit)
    return tuple(edits)


def _read_edit(where: str, record: object) -> Edit:
    if not isinstance(record, dict):
        raise StagingError(f"{where}: expected a table, got {record!r}")
    odd = sorted(set(record) - {"file", "lines", "after", "sha256", "text"})
    if odd or ("lines" in record) == ("after" in record):
        raise StagingError(
            f"{where}: expected the fields file, one of lines and after, sha256 and text, "
            f"got {', '.join(record)}"
        )
    path = _take(where, record, "file", str, "a path from the root of TVM's repository")
    if not is_inner_path(path):
        raise StagingError(
            f"{where}: field file: expected a path from the root of TVM's repository, got {path!r}"
        )
    if "after" in record:
        last = _take(where, record, "after", int, "a line, 0 for the beginning of the file")
        first = last + 1
        if last < 0:
            raise StagingError(f"{where}: field after: expected a line >= 0, got {last}")
    else:
        span = _take(where, record, "lines", list, "[first, last]")
        if len(span) != 2 or any(type(n) is not int for n in span) or not 1 <= span[0] <= span[1]:
            raise StagingError(f"{where}: field lines: expected [first, last] >= 1, got {span}")
        first, last = span
    sha256 = _take(where, record, "sha256", str, "64 hexadecimal digits")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise StagingError(f"{where}: field sha256: expected 64 hexadecimal digits, got {sha256!r}")
    text = _take(where, record, "text", str, "the new lines")
    if (text and not text.endswith("\n")) or (last < first and not text):
        raise StagingError(f"{where}: field text: expected whole lines, got {text[-40:]!r}")
    return Edit(path, first, last, sha256, text)


def _take(where: str, record: Mapping[str, object], key: str, kind: type[_T], words: str) -> _T:
    value = record.get(key)
    if type(value) is not kind:  # not isinstance: a bool is not a line number
        got = "nothing" if value is None else repr(value)
        raise StagingError(f"{where}: field {key}: expected {words}, got {got}")
    return value


def is_inner_path(path: str) -> bool:
    """Whether `path` is relative, normalized, and stays below its root."""
    pure = PurePosixPath(path)
    parts = pure.parts
    return bool(parts) and str(pure) == path and not pure.is_absolute() and ".." not in parts


def lines_of(content: bytes) -> list[bytes]:
    """Return the lines of a file, with their ends; only ``\\n`` ends a line, as in git."""
    return io.BytesIO(content).readlines()


def digest(lines: list[bytes], first: int, last: int) -> str:
    """Return the SHA-256 of lines `first` to `last`, or of the lines around an insertion."""
    if last < first:
        first, last = max(last, 1), first
    return hashlib.sha256(b"".join(lines[first - 1 : last])).hexdigest()
