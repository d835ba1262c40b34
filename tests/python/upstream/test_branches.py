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
"""Branches made of pull requests, and pull requests made of branches, in a small repository."""

import hashlib
import os
import shutil
import subprocess

import pytest
import tvm.testing

from helpers.upstream_areas import CHANGED, LINES, TEST, write_area
from upstream import tool as upstream
from upstream.tool import StagingError
from upstream.tool.__main__ import main

TEST_PATH = "tests/python/relax/test_lines.py"
IDENTITY = {"NAME": "A. Person", "EMAIL": "person@example.org", "DATE": "2026-01-31T00:00:00Z"}


def git(repository, *arguments, stdin=None):
    done = subprocess.run(
        ["git", "-C", repository, *arguments], capture_output=True, text=True, input=stdin
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def identity(monkeypatch, tmp_path):
    """Isolate git from the machine's templates, hooks and names."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        for key, value in IDENTITY.items():
            monkeypatch.setenv(f"GIT_{role}_{key}", value)


@pytest.fixture
def checkout(tmp_path):
    path = tmp_path / "tvm"
    git(tmp_path, "init", "--quiet", "--initial-branch", "main", str(path))
    (path / "src").mkdir()
    (path / "src/lines.txt").write_text(LINES)
    (path / "src/lines.txt").chmod(0o755)
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message", "Lines")
    git(path, "tag", "--annotate", "v1.0", "--message", "v1.0")
    return path


@pytest.fixture
def area(tmp_path, checkout):
    area = write_area(tmp_path / "upstream")
    use_base(area, checkout, "main")
    return area


def use_base(area, checkout, revision):
    description = area / "more-lines" / "PR.md"
    lines = description.read_text().splitlines(keepends=True)
    base = git(checkout, "describe", "--long", "--tags", "--abbrev=40", revision)
    kept = [f"Base: {base}" if line.startswith("Base: ") else line for line in lines]
    description.write_text("".join(kept))


def state(checkout):
    """The state that staging must not touch, and the branches."""
    files = {
        str(path.relative_to(checkout)): path.read_bytes()
        for path in [*checkout.glob("src/*"), checkout / ".git/HEAD", checkout / ".git/index"]
    }
    return files, git(checkout, "status", "--short"), git(checkout, "for-each-ref")


def stage(area, checkout, *arguments):
    return main(["stage", "--staging", str(area), "--tvm", str(checkout), *arguments])


def test_stage_makes_a_branch_and_touches_nothing_else(area, checkout, capsys):
    (checkout / "src/lines.txt").write_text("not committed\n")
    (checkout / "new.txt").write_text("new\n")
    git(checkout, "add", "new.txt")
    files, status, references = state(checkout)
    assert stage(area, checkout) == 0
    branch = "tvm-fixes/more-lines"
    commit = git(checkout, "rev-parse", branch).strip()
    base = git(checkout, "rev-parse", "main").strip()
    assert capsys.readouterr().out == f"{branch}: {commit[:12]} on {base[:12]}\n"
    new_files, new_status, new_references = state(checkout)
    assert (new_files, new_status) == (files, status)
    assert new_references.replace(f"{commit} commit\trefs/heads/{branch}\n", "") == references

    assert git(checkout, "show", f"{branch}:src/lines.txt") == CHANGED
    assert git(checkout, "show", f"{branch}:{TEST_PATH}") == TEST
    assert (
        git(checkout, "diff", "--summary", "main", branch) == f" create mode 100644 {TEST_PATH}\n"
    )
    assert git(checkout, "log", "-1", "--format=%P %an", branch) == f"{base} A. Person\n"
    message = upstream.read_pull_request(area, "more-lines").message
    assert git(checkout, "log", "-1", "--format=%B", branch).rstrip() == message.rstrip()


def test_a_branch_that_exists_is_kept_unless_forced(area, checkout, capsys):
    git(checkout, "branch", "tvm-fixes/more-lines", "main")
    before = state(checkout)
    assert stage(area, checkout) == 1
    assert "branch tvm-fixes/more-lines exists; --force replaces it" in capsys.readouterr().err
    assert state(checkout) == before
    assert stage(area, checkout, "--force") == 0
    assert git(checkout, "show", "tvm-fixes/more-lines:src/lines.txt") == CHANGED
    git(checkout, "switch", "--quiet", "tvm-fixes/more-lines")
    before = state(checkout)
    assert stage(area, checkout, "--force") == 1
    message = "cannot replace branch tvm-fixes/more-lines, which is checked out"
    assert message in capsys.readouterr().err
    assert state(checkout) == before


def test_another_text_is_rejected(area, checkout, capsys):
    (checkout / "src/lines.txt").write_text(LINES.replace("3", "three"))
    git(checkout, "commit", "--quiet", "--all", "--message", "Three")
    before = state(checkout)
    base = upstream.read_pull_request(area, "more-lines").base
    expected, got = (hashlib.sha256(t.encode()).hexdigest()[:12] for t in ("2\n3\n", "2\nthree\n"))
    assert stage(area, checkout, "--base", "main") == 1
    head = git(checkout, "rev-parse", "main").strip()
    assert capsys.readouterr().err == (
        "upstream.tool: error: more-lines: src/lines.txt lines 2-3: expected text of SHA-256 "
        f"{expected}…, got {got}… in {head}; the edit was made for {base}\n"
    )
    assert state(checkout) == before
    assert stage(area, checkout) == 0  # on the commit that it was made for
    assert git(checkout, "show", "tvm-fixes/more-lines:src/lines.txt") == CHANGED


@pytest.mark.parametrize("lines", ["one\n2\n3\n", "one\n2\n3\nfour\nsix\n", "one\n"])
def test_an_insertion_between_other_lines_is_rejected(area, checkout, capsys, lines):
    (checkout / "src/lines.txt").write_text(lines)
    git(checkout, "commit", "--quiet", "--all", "--message", "Others")
    assert stage(area, checkout, "--base", "main") == 1
    assert "expected text of SHA-256" in capsys.readouterr().err


def test_lines_elsewhere_may_differ(area, checkout):
    (checkout / "src/lines.txt").write_text(LINES.replace("one", "first") + "six\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "Others")
    assert stage(area, checkout, "--base", "main") == 0
    changed = git(checkout, "show", "tvm-fixes/more-lines:src/lines.txt")
    assert changed == CHANGED.replace("one", "first") + "six\n"


def test_all_branches_or_none(area, checkout, capsys):
    write_area(area, "wrong")
    use_base(area, checkout, "main")
    edits = area / "wrong/edits.toml"
    edits.write_text(edits.read_text().replace("src/lines.txt", "src/none.txt"))
    description = (area / "more-lines/PR.md").read_text()
    (area / "wrong/PR.md").write_text(description)
    before = state(checkout)
    assert stage(area, checkout) == 1
    assert "wrong: edited file src/none.txt is missing in" in capsys.readouterr().err
    assert state(checkout) == before
    assert stage(area, checkout, "--only", "more-lines") == 0


def test_a_new_file_that_is_there_is_rejected(area, checkout, capsys):
    (checkout / TEST_PATH).parent.mkdir(parents=True)
    (checkout / TEST_PATH).write_text("")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "A test")
    assert stage(area, checkout, "--base", "main") == 1
    assert f"more-lines: new file {TEST_PATH} already exists in" in capsys.readouterr().err


def test_what_upstream_has_is_not_staged(area, checkout, capsys):
    description = area / "more-lines/PR.md"
    applied = description.read_text().replace("Upstream: no", "Upstream: v1.1")
    description.write_text(applied)
    assert stage(area, checkout) == 0
    assert capsys.readouterr().out == "more-lines: applied upstream, not staged\n"
    assert git(checkout, "branch", "--list", "tvm-fixes/*") == ""


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--only", "none"], "folder none is missing"),
        (["--base", "none"], "more-lines: commit none is missing in "),
        (["--tvm", "nowhere"], "nowhere: expected a git checkout of TVM, found no folder"),
        (["--tvm", "."], ".: git rev-parse failed: fatal: not a git repository"),
    ],
)
def test_wrong_use(area, checkout, capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert stage(area, checkout, *arguments) == 1
    assert message in capsys.readouterr().err


def test_without_the_commit_it_was_made_for(area, checkout, capsys):
    base = upstream.read_pull_request(area, "more-lines").base
    shutil.rmtree(checkout / ".git")
    git(checkout, "init", "--quiet")
    assert stage(area, checkout) == 1
    assert f"more-lines: commit {base} is missing in {checkout}" in capsys.readouterr().err


def record(area, checkout, *arguments):
    return main(["record", "--staging", str(area), "--tvm", str(checkout), *arguments])


def test_recording_gives_back_what_was_staged(area, checkout):
    assert stage(area, checkout) == 0
    first = upstream.read_pull_request(area, "more-lines")
    assert record(area, checkout, "--branch", "tvm-fixes/more-lines", "more-lines") == 0
    again = upstream.read_pull_request(area, "more-lines")
    assert (again.edits, again.files, again.message) == (first.edits, first.files, first.message)
    assert again.base == first.base
    assert again.fields["Last-Update"] > first.fields["Last-Update"]
    assert sorted(path.name for path in area.iterdir()) == ["more-lines", "series"]


@pytest.mark.parametrize(
    "new",
    [
        "",
        "new\n" + LINES,
        LINES + "new\n",
        "one\nfive\n",
        "one\n\n'''\n\\ \"\t\n\x7f\x01é\u2028\nfour\nfive\n",
        "5\n4\n3\n2\n1\n",
        "one\n-- 2\n\u2028@@ -1,1 +1,1 @@\n@@ -1,1 +1,1 @@\n++ 3\nfour\nfive\n",
        "one\r\n2\n3\nfour\nfive\n",
    ],
)
def test_any_edit_is_recorded_without_text_of_the_base(area, checkout, new):
    (checkout / "src/lines.txt").write_bytes(new.encode())
    (checkout / TEST_PATH).parent.mkdir(parents=True)
    (checkout / TEST_PATH).write_text(TEST)
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "[Fix][Relax] Keep it\n\n## Why\n\n## How")
    assert record(area, checkout, "--branch", "main", "new-lines") == 0
    assert upstream.read_series(area) == ("more-lines", "new-lines")
    written = (area / "new-lines/edits.toml").read_text()
    for line in set(LINES.split()).difference(new.split()):
        assert f"\n{line}\n" not in written

    shutil.copy(area / "more-lines/PR.md", area / "new-lines/PR.md")
    assert stage(area, checkout, "--only", "new-lines") == 0
    assert git(checkout, "diff", "main", "tvm-fixes/new-lines") == ""


def test_a_new_description_waits_to_be_filled_in(area, checkout):
    assert stage(area, checkout) == 0
    assert record(area, checkout, "--branch", "tvm-fixes/more-lines", "again") == 0
    with pytest.raises(StagingError, match=r"PR.md: field Description: expected one sentence, got"):
        upstream.read_pull_request(area, "again")
    description = (area / "again/PR.md").read_text()
    for field, value in {
        "Description": "It.",
        "Bug": "https://x.org",
        "Fix": "fold-constant",
    }.items():
        description = description.replace(f"\n{field}:\n", f"\n{field}: {value}\n")
    (area / "again/PR.md").write_text(description)
    again = upstream.read_pull_request(area, "again")
    assert again.message == upstream.read_pull_request(area, "more-lines").message


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda path: path.unlink(), "expected a new regular file or edited lines, got status D"),
        (
            lambda path: path.chmod(0o644),
            "new regular file or edited lines, got status M with mode",
        ),
        (lambda path: path.write_bytes(b"\xff\n"), "the file is not UTF-8 text"),
        (lambda path: path.write_text("one"), "the last line has no line end"),
        (lambda path: None, "has no changes against"),
    ],
)
def test_edits_that_cannot_be_recorded(area, checkout, capsys, change, message):
    change(checkout / "src/lines.txt")
    git(checkout, "commit", "--quiet", "--all", "--allow-empty", "--message", "Otherwise")
    before = sorted(area.rglob("*"))
    assert record(area, checkout, "--branch", "main", "new-lines") == 1
    assert message in capsys.readouterr().err
    assert sorted(area.rglob("*")) == before


def test_a_name_that_is_not_a_folder(area, checkout, capsys):
    assert record(area, checkout, "--branch", "main", "../elsewhere") == 1
    assert "expected a name of a-z, 0-9 and -, got '../elsewhere'" in capsys.readouterr().err


def test_the_base_of_a_branch_of_several_commits(area, checkout):
    for text in ("two", "two\nthree"):
        (checkout / "src/lines.txt").write_text(LINES.replace("2\n3", text))
        git(checkout, "commit", "--quiet", "--all", "--message", text)
    assert record(area, checkout, "--branch", "main", "--base", "main~2", "more-lines") == 0
    (edit,) = upstream.staging.read_edits(area / "more-lines/edits.toml")
    assert (edit.first, edit.last, edit.text) == (2, 3, "two\nthree\n")


if __name__ == "__main__":
    tvm.testing.main()
