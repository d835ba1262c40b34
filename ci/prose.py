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
"""Finds phrases that native readers stumble over, and says what to write instead.

``python ci/prose.py [PATH ...]`` reads files and folders (default: those of this repository that
:data:`DEFAULT` lists) and prints ``file:line: phrase -> replacement`` for each phrase found. The
exit status is 1 if there is one. docs/style.md has the glossary.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DEFAULT = (
    "python",
    "src",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "tests",
    "benchmarks",
    "upstream",
)
# docs/fixes.md and docs/tables are generated from files that are read here.
GENERATED = ("docs/fixes.md", "docs/tables/")
SUFFIXES = (".py", ".cc", ".h", ".c", ".js", ".css", ".html", ".md", ".toml", ".sh")

CONTEXT = 60
"""The number of characters before a phrase in which an exception may stand."""


class Phrase(NamedTuple):
    """A phrase to avoid.

    Attributes
    ----------
    pattern : str
        A regular expression; a space also matches a line end with the next line's comment sign.
    instead : str
        What to write.
    unless : str
        A regular expression; the phrase is allowed if the text in front of it matches.
    """

    pattern: str
    instead: str
    unless: str = ""


PHRASES = (
    Phrase(r"without a word", "silently"),
    Phrase(
        r"(?<![\w`'\")])(?!['\"]?(?:for|in|if|or|not|return|assert|is|are|be|runs?|one|tried|again|def)\b)"
        r"[\w`'\")]+ alone\b"
        r"(?! ?[=(])",
        "only X",
        unless=r"\b(?:leav\w+|left|let|stand\w*)\b",
    ),
    Phrase(r"\b(?:is|are) no [A-Z`]\w*", "is not a X", unless=r"\b[Tt]here $"),
    Phrase(r"\bmend(?:s|ed|ing)?\b", "fix"),
    Phrase(r"\btook part\b", "applied"),
    Phrase(r"\bcalmest\b", "fastest"),
    Phrase(r"\b[Ss]o many\b", "the number"),
    Phrase(r"\bactivation transforms\b", "layout transforms"),
    Phrase(r"\bin doubt there is none\b", "none by default"),
    Phrase(r"\b(?:there are|are) none\b", "are not, or: no X"),
    Phrase(r"\b_?MOST_\w+", "MAX_"),
    Phrase(r"\b_?LEAST_\w+", "MIN_"),
    Phrase(r"\b[Ww]hat is (?:disproved|proved|unknown|wrong) is\b", "Proven violations are"),
    Phrase(r"\bno conversion for\b", "unsupported operator"),
    Phrase(r"\bas far as that is\b", "if"),
    Phrase(r"\bof them twice\b", "duplicates"),
    Phrase(r"\binstall it, or do not\b", "pip install ..., or pass --..."),
    Phrase(
        r"\b(?:floats|integers|elements|weights|codes|indices|types|values|words)"
        r" of (?:\d+|two|four|eight) bits\b(?! (?:or|and))",
        "N-bit X",
        unless=r"\bexpected $",
    ),
    Phrase(r"\bblocks? of threads\b", "thread block"),
    Phrase(r"\breductions? (?:among|between) threads\b", "cross-thread reduction"),
    Phrase(r"\bstays? as (?:it|they) (?:is|are)\b", "is kept, or: is unchanged"),
    Phrase(r"\bless (?:its|their|the|a) (?:zero|bias|mean|maximum)", "minus"),
    Phrase(
        r"\b(?:the|its) (?:least|greatest) (?!common|of\b)[a-z]+",
        "the smallest, or: the largest",
        unless=r"\bat $",
    ),
    Phrase(r"\b(?:nodes?|operators?|layers?|calls?|steps?|pass|axes|axis) behind (?!a\b)", "after"),
    Phrase(r"\b(?:an)?other (?!than)[a-z]\w* than\b", "X other than, or: differs from"),
    Phrase(
        r"(?:\"\"\"|\\brief )(?:What|How many|How often|How deep) [^?]*?\.", "begin with the noun"
    ),
    Phrase(r"\bat times\b", "sometimes"),
    Phrase(r", also (?:with|without|for|of|in|near|outside) ", "even, or: including"),
    Phrase(r"\beach two\b", "each pair of"),
    Phrase(r"\bhas not an?\b", "has no"),
    Phrase(r"\b(?:upper|lower) bound of the\b", "bound on"),
    Phrase(r"\bstays?(?:[.:]| if\b| for\b| because\b)", "is kept, or: is unchanged"),
    Phrase(r"\\(?:brief|return)\b[^\n]*\b(?:or|else) nothing\b", "std::nullopt"),
)


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", r"(?: |[ \t]*\n[ \t]*(?:(?:#|//+|\*|>)[ \t]*)?)"))


_COMPILED = [
    (_compile(phrase.pattern), re.compile(phrase.unless) if phrase.unless else None, phrase.instead)
    for phrase in PHRASES
]


def find(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, phrase and replacement of each phrase in `text`, in the order of the lines."""
    found = []
    for pattern, unless, instead in _COMPILED:
        for match in pattern.finditer(text):
            before = text[max(match.start() - CONTEXT, 0) : match.start()]
            # The first word of a match may be the exception, as in "leave it alone".
            if unless and (unless.search(before) or unless.search(match[0])):
                continue
            line = text.count("\n", 0, match.start()) + 1
            found.append((line, " ".join(match[0].split()), instead))
    yield from sorted(found)


def sources(paths: list[Path]) -> list[Path]:
    """Return the text files below `paths` that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    listed = subprocess.run(
        [*command, *map(str, paths)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    found = []
    for name in sorted(set(listed.split("\0"))):
        path = ROOT / name
        if path.suffix in SUFFIXES and not name.startswith(GENERATED) and path.is_file():
            found.append(path)
    return found


def main(arguments: list[str]) -> int:
    """Print the phrases found; return 1 if there is one, else 0."""
    status = 0
    paths = [Path(argument).absolute() for argument in arguments]
    for path in sources(paths or [ROOT / name for name in DEFAULT]):
        for line, phrase, instead in find(path.read_text()):
            print(f"{path.relative_to(ROOT)}:{line}: {phrase!r} -> {instead}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
