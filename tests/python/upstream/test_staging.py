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
"""Requirements of a staging area, and the errors if they are not met."""

import os

import pytest
import tvm.testing

from helpers.upstream_areas import DESCRIPTION, EDITS, TEST, write_area
from upstream import tool as upstream
from upstream.tool import StagingError
from upstream.tool.__main__ import main


@pytest.fixture
def area(tmp_path):
    return write_area(tmp_path / "upstream")


def test_a_pull_request_is_read_whole(area):
    request = upstream.read_pull_request(area, "more-lines")
    assert request.title == "[Fix][Relax] Keep the second line"
    assert request.fields["Description"] == "The second line is lost, as is the end of this one."
    assert request.fixes == ("conv-legalize", "conv-infer-layout")
    assert not request.is_applied
    assert request.files == {"tests/python/relax/test_lines.py": TEST.encode()}
    assert [edit.where for edit in request.edits] == [
        "src/lines.txt lines 2-3",
        "src/lines.txt after line 4",
    ]
    assert request.message == (
        "[Fix][Relax] Keep the second line\n\n## Why\n\nIt is lost.\n\nFor good.\n\n## How\n\n"
        "- Keep it.\n"
    )


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("# [Fix]", "[Fix]", "expected a title (# …), the fields"),
        ("## Why\n\nIt is lost.\n\nFor good.\n\n", "", "expected a title (# …), the fields"),
        ("It is lost.\n\nFor good.", "", "## Why: expected text"),
        ("- Keep it.", "", "## How: expected text"),
        ("Keep the second line\n", "Keep the second line.\n", "title: expected tags and"),
        ("[Fix][Relax] K", "K", "title: expected tags and an imperative without"),
        ("Bug: https://example.org/1\n", "", "field Bug: expected the URL of an issue or pull"),
        ("https://example.org/1", "#1", "field Bug: expected the URL of an issue or pull request"),
        ("Forwarded: no\n", "", "field Forwarded: expected no, not-needed, or the URL of the pull"),
        ("Forwarded: no", "Forwarded: yes", "field Forwarded: expected no, not-needed, or the"),
        ("2026-01-31", "2026-02-31", "field Last-Update: expected a valid date, got '2026-02-31"),
        (
            "2026-01-31",
            "31.1.2026",
            "field Last-Update: expected a date such as 2026-01-31, got '3",
        ),
        (
            "Last-Update: 2026-01-31\n",
            "",
            "field Last-Update: expected a date such as 2026-01-31",
        ),
        (
            "Applied-Upstream: no",
            "Applied-Upstream: yes",
            "field Applied-Upstream: expected no, or",
        ),
        ("Applied-Upstream: no\n", "", "field Applied-Upstream: expected no, or the version"),
        ("v1.0-3-g", "g", "field Base: expected the output of `git describe --tags"),
        (
            "conv-legalize",
            "conv-legalise",
            "field Fix: expected ids that 'tvm-fixes doctor' lists, ",
        ),
        (
            "Fix: ",
            "Fixes: ",
            "field Fixes: unknown or repeated; expected Description, Bug, Forward",
        ),
        (
            "Forwarded: no\n",
            "Forwarded: no\n" * 2,
            "field Forwarded: unknown or repeated; expected",
        ),
        ("Forwarded: no\n", "not a field\n", "fields: expected lines 'Field: value', got 'not a"),
    ],
)
def test_a_description_that_is_not_whole(area, old, new, message, capsys):
    path = area / "more-lines" / "PR.md"
    assert old in DESCRIPTION
    path.write_text(DESCRIPTION.replace(old, new, 1))
    with pytest.raises(StagingError) as error:
        upstream.read_pull_request(area, "more-lines")
    assert str(error.value).startswith(f"{path}: {message}")
    assert main(["check", "--staging", str(area)]) == 1
    assert capsys.readouterr().err == f"upstream.tool: error: {error.value}\n"


@pytest.mark.parametrize("value", ["v0.28.0", "v0.28.0, commit:0123abc", "commit:0123abc"])
def test_applied_upstream(area, value):
    path = area / "more-lines" / "PR.md"
    path.write_text(DESCRIPTION.replace("Applied-Upstream: no", f"Applied-Upstream: {value}"))
    assert upstream.read_pull_request(area, "more-lines").is_applied


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("[[edit]]", "[[edit", "expected TOML, got: "),
        ("[[edit]]", "[[edits]]", "expected only tables [[edit]]"),
        ('file = "src/lines.txt"\n', "", "edit 1: field file: expected a path from the root"),
        ("src/lines.txt", "../x", "edit 1: field file: expected a path from the root of TVM's"),
        ("src/lines.txt", "/x", "edit 1: field file: expected a path from the root of TVM's"),
        ("lines = [2, 3]\n", "", "edit 1: expected the fields file, one of lines and after, sha"),
        ("[2, 3]", "[3, 2]", "edit 1: field lines: expected [first, last] >= 1, got [3, 2]"),
        ("[2, 3]", "[2]", "edit 1: field lines: expected [first, last] >= 1, got [2]"),
        ("[2, 3]", "2", "edit 1: field lines: expected [first, last], got 2"),
        (
            "after = 4",
            "after = 3",
            "edit 2: expected lines after those of the previous edit, got s",
        ),
        ("sha256", "sha1", "edit 1: expected the fields file, one of lines and after, sha"),
        ("text = '''\ntwo\n'''", "text = 1", "edit 1: field text: expected the new lines, got 1"),
        ("after = 4", "after = -1", "edit 2: field after: expected a line >= 0, got -1"),
        ("after = 4", "after = true", "edit 2: field after: expected a line, 0 for the beginning"),
        ("two\n'''", "two'''", "edit 1: field text: expected whole lines, got 'two'"),
        (
            "lines = [2, 3]",
            "lines = [2, 3]\nold = 1",
            "edit 1: expected the fields file, one of",
        ),
    ],
)
def test_a_record_that_is_not_whole(area, old, new, message):
    path = area / "more-lines" / "edits.toml"
    assert old in EDITS
    path.write_text(EDITS.replace(old, new, 1))
    with pytest.raises(StagingError) as error:
        upstream.read_pull_request(area, "more-lines")
    assert str(error.value).startswith(f"{path}: {message}")


def test_a_folder_that_is_not_whole(area):
    folder = area / "more-lines"
    (folder / "notes.txt").write_text("")
    with pytest.raises(StagingError, match=r"expected only PR.md, edits.toml and files, got note"):
        upstream.read_pull_request(area, "more-lines")
    (folder / "notes.txt").unlink()

    test = folder / "files/tests/python/relax/test_lines.py"
    test.write_text("def test_nothing(): pass\n")
    with pytest.raises(StagingError, match=r"expected tvm.testing.main\(\) at the end"):
        upstream.read_pull_request(area, "more-lines")
    test.rename(test.with_name("lines.py"))
    with pytest.raises(StagingError, match="expected a test in files/tests/python, got none"):
        upstream.read_pull_request(area, "more-lines")
    test.write_text(TEST)
    (folder / "files/src").mkdir()
    (folder / "files/src/lines.txt").write_text("")
    with pytest.raises(StagingError, match="is both a new file and edited; expected one"):
        upstream.read_pull_request(area, "more-lines")


def test_a_test_alone_changes_nothing(area):
    (area / "more-lines/edits.toml").unlink()
    with pytest.raises(StagingError, match="expected a change besides the tests, got none"):
        upstream.read_pull_request(area, "more-lines")


@pytest.mark.parametrize(
    "series", ["", "more-lines\nanother\n", "more-lines\nmore-lines\n", "../x"]
)
def test_a_series_that_is_not_that_of_the_folders(area, series):
    (area / "series").write_text(series)
    with pytest.raises(StagingError, match=r"expected (the name of each|a name of a-z)"):
        upstream.read_series(area)


@pytest.mark.parametrize("name", ["series", "more-lines/PR.md", "more-lines/edits.toml"])
@pytest.mark.parametrize("kind", ["latin-1", "fifo"])
def test_text_that_is_not_utf_8(area, name, kind, capsys):
    path = area / name
    if kind == "fifo":
        path.unlink()
        os.mkfifo(path)
    else:
        path.write_bytes(path.read_bytes() + "ü".encode("latin-1"))
    assert main(["check", "--staging", str(area)]) == 1
    error = capsys.readouterr().err
    assert f"{path}: expected " in error and error.count("\n") == 1


def test_no_staging_area(tmp_path, capsys):
    assert main(["check", "--staging", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert f"{tmp_path}: not a staging area: the file series is missing" in error
    assert "name the folder upstream of the tvm-fixes repository with --staging" in error


def test_this_repository(capsys):
    names = upstream.read_series(upstream.default_staging())
    assert main(["check"]) == 0
    assert capsys.readouterr().out == f"{len(names)} pull requests, all valid\n"
    assert main(["list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in listed if not line.startswith(" ")] == list(names)


if __name__ == "__main__":
    tvm.testing.main()
