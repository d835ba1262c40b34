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
"""The pages of docs: their links, docs/migrating.md, docs/deploying.md, and the API pages."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
import tvm_ffi

import tvm_fixes
from helpers import architecture, grids
from helpers.models import onnx_conv

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docker").glob("*.md"),
        *(ROOT / "upstream").glob("*.md"),
    )
    if path.parent.name != "tables"
)


def prose(page: Path) -> str:
    """The text without code blocks, which contain no links or headings."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("[", "").replace("]", ""), text)


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of the headings of a page."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {f"{slug}-{n}" if n else slug for slug, most in found.items() for n in range(most + 1)}


def links(page: Path) -> list[str]:
    text = prose(page)
    inline = re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", text)
    return inline + re.findall(r"^\[[^]]+\]: +(\S+)$", text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links(page):
    broken = []
    for link in links(page):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(ROOT) or not target.exists():
            broken.append(link)
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_is_reached():
    """Every page is linked from the README, directly or indirectly."""
    reached, found = set(), [ROOT / "README.md"]
    while found:
        page = found.pop()
        if page in reached or not page.is_file():
            continue
        reached.add(page)
        if page.suffix == ".md":
            paths = (link.partition("#")[0] for link in links(page) if ":" not in link)
            found += [(page.parent / path).resolve() for path in paths if path]
    assert not set(PAGES) - reached


def test_lengths():
    """The page of figures has its tables elsewhere, and a first release has no history."""
    assert len((ROOT / "docs" / "performance.md").read_text().splitlines()) <= 120
    unreleased = re.search(
        r"^## \S+ \(unreleased\)\n(.*?)(?=^## |\Z)",
        (ROOT / "CHANGELOG.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert unreleased is None or len(unreleased[1].splitlines()) <= 40


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def python(program: str, directory: Path, *arguments: Path, **environment: str) -> str:
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_factory_of_the_page_of_pytorch(tmp_path):
    [factory] = blocks("pytorch.md", "python")
    (tmp_path / "net.py").write_text(factory)
    model = tvm_fixes.compile(f"{tmp_path / 'net.py'}:make")
    assert model.report.equal
    assert model.run(np.ones((7, 3), "float32")).shape == (7, 4)


def test_architecture():
    """The picture is that of its text, whose folders exist."""
    assert (ROOT / "docs" / "architecture.svg").read_text() == architecture.svg(), (
        "run: python tests/python/helpers/architecture.py > docs/architecture.svg"
    )
    package = ROOT / "python" / "tvm_fixes"
    named = [head + name for head, boxes in architecture.columns() for name, _ in boxes]
    named += [name for name, *_ in architecture.bands()]
    folders = [name.removeprefix("pipeline") for name in named if name.endswith("/")]
    assert len(folders) == 8
    assert [name for name in folders if not (package / name).is_dir()] == []


@pytest.mark.skipif(not grids.is_full(), reason="the notebook changes seldom")
def test_tutorial(tmp_path):
    """The cells of the notebook run, in their order; their assertions compare with PyTorch."""
    pytest.importorskip("torch")
    cells = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in code)  # they would go stale
    printed = python("\n".join("".join(cell["source"]) for cell in code), tmp_path)
    assert "equal to PyTorch" in printed
    *scores, difference = printed.splitlines()[-12:]
    assert len([float(score) for score in scores if score]) == 10
    assert 0 <= float(difference) < 1e-5


def test_migrating(tmp_path, monkeypatch):
    """Each column is a program; the left one runs where tvm_fixes cannot be imported."""
    pytest.importorskip("torch")
    [setup] = blocks("migrating.md", "python")
    text = (ROOT / "docs" / "migrating.md").read_text()
    rows = re.findall(r"^\| (`[^`]+`) \| (`[^`]+`|unchanged) \|$", text, re.MULTILINE)
    tables = re.findall(r"^\| (?!---|TVM)", text, re.MULTILINE)
    assert len(rows) == len(tables) > 20
    stock = [left.strip("`") for left, _ in rows]
    ours = [(left if right == "unchanged" else right).strip("`") for left, right in rows]
    onnx.save(onnx_conv((1, 3, 8, 8)), tmp_path / "model.onnx")
    if grids.is_full():  # the left one depends on stock TVM alone
        hidden = ["import sys", "sys.modules['tvm_fixes'] = None"]
        python("\n".join([*hidden, setup, *stock]), tmp_path)
    sound = "assert not tvm_fixes.verify(mod).errors"
    program = "\n".join(["import tvm_fixes", setup, *ours, sound])
    if grids.is_full():
        python(program, tmp_path)
    else:  # this process has imported what takes longest
        monkeypatch.chdir(tmp_path)
        exec(program, {"__name__": "__main__"})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The artifact of the model of docker/tiny_model.py."""
    directory = tmp_path_factory.mktemp("tiny")
    subprocess.run(
        [sys.executable, ROOT / "docker" / "tiny_model.py", directory / "model.onnx"], check=True
    )
    tvm_fixes.compile(str(directory / "model.onnx"), compare=False, output=directory / "out")
    return directory / "out"


# Prints the peak of resident memory when the program ends. That of rusage includes the parent's.
PEAK = """
#include <cstdio>
#include <cstring>
struct Peak {
  ~Peak() {
    char line[256];
    FILE* status = std::fopen("/proc/self/status", "r");
    while (std::fgets(line, sizeof(line), status)) {
      if (!std::strncmp(line, "VmHWM", 5)) std::fputs(line, stderr);
    }
  }
} peak;
"""


def test_from_cpp(tiny, tmp_path):
    """The program of docs/deploying.md, linked as the page says, and its sizes."""
    [program] = blocks("deploying.md", "cpp")
    (tmp_path / "run_model.cc").write_text(program)
    (tmp_path / "peak.cc").write_text(PEAK)
    text = (ROOT / "docs" / "deploying.md").read_text()
    [command] = re.findall(r"^    g\+\+ (.*\\\n.*)$", text, re.MULTILINE)
    site = {"ffi": Path(tvm_ffi.__file__).parent, "tvm": Path(tvm.__file__).parent}
    for name, path in site.items():
        command = command.replace(f"${name}", str(path))
    compiler = os.environ.get("CXX", "g++").split()
    arguments = command.replace("\\\n", " ").split()
    subprocess.run([*compiler, *arguments, "peak.cc"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [tmp_path / "run_model", tiny / "model.so"], capture_output=True, text=True, check=True
    )
    model = tvm_fixes.CompiledModel.load(tiny)
    expected = model.run(np.ones((1, 3, 8, 8), "float32"))
    np.testing.assert_array_equal(np.array(done.stdout.split(), "float32"), expected.ravel())
    documented = dict(re.findall(r"^\| (.+) \| ([\d.]+) MB \|$", text, re.MULTILINE))
    files = [site["tvm"] / "lib" / "libtvm_runtime.so", site["ffi"] / "lib" / "libtvm_ffi.so"]
    own = [tmp_path / "run_model", tiny / "model.so"]
    measured = {f"`{file.name}`": file.stat().st_size / 1e6 for file in files}
    measured["`run_model` and `model.so`"] = sum(file.stat().st_size for file in own) / 1e6
    measured["memory of the process"] = int(done.stderr.split()[1]) * 1024 / 1e6
    assert documented.keys() == measured.keys()
    for part, size in measured.items():
        assert abs(size - float(documented[part])) <= 0.2 * size, (part, size)


SERVER = """
import os, sys, threading
import numpy as np
import tvm_fixes

x = np.random.default_rng(0).standard_normal((256, 512)).astype("float32")
results, one, other = [], *(tvm_fixes.CompiledModel.load(sys.argv[1]) for _ in range(2))


def tasks():
    return os.listdir("/proc/self/task")


def in_thread(model):
    thread = threading.Thread(target=lambda: results.append(model.run(x)))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


before = len(tasks())
with one._library.lock:  # while one runs
    in_thread(other)
in_thread(one)
assert np.array_equal(*results)
bound = False
for task in tasks():
    try:
        bound |= os.sched_getaffinity(int(task)) != os.sched_getaffinity(0)
    except ProcessLookupError:  # it has ended since
        pass
print(len(tasks()) - before, bound)
"""


@pytest.fixture(scope="module")
def parallel(tmp_path_factory):
    """The artifact of a model large enough for several threads."""
    torch = pytest.importorskip("torch")
    directory = tmp_path_factory.mktemp("parallel")
    module = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).eval()
    tvm_fixes.compile((module, (torch.ones(256, 512),)), compare=False, output=directory / "out")
    return directory / "out"


@grids.from_tier("ci")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("threads, left", [(1, 0), (3, 4)] if grids.is_full() else [(3, 4)])
def test_a_server(threads, left, parallel, tmp_path, monkeypatch):
    """Instances do not wait for each other; workers outlive their thread and are not pinned."""
    # The suite's value makes workers end at once.
    monkeypatch.delenv("TVM_THREAD_POOL_SPIN_COUNT", raising=False)
    environment = {"TVM_NUM_THREADS": str(threads), "TVM_BIND_THREADS": "0"}
    number, bound = python(SERVER, tmp_path, parallel, **environment).split()
    # A thread that has ended may still be listed.
    assert left <= int(number) <= left + 2
    assert bound == "False"


DEFAULT_THREADS = """
import os

for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.pop(name, None)
cores = len(os.sched_getaffinity(0))
import tvm

print(cores, tvm.runtime.num_threads())
"""


@pytest.mark.skipif(not grids.is_full(), reason="the default is TVM's")
@pytest.mark.skipif(sys.platform != "linux", reason="reads the affinity")
def test_threads_by_default(tmp_path):
    cores, threads = map(int, python(DEFAULT_THREADS, tmp_path).split())
    assert threads == (max(cores // 2, 1) if os.uname().machine == "x86_64" else threads)


def test_another_x86_cpu(tiny, tmp_path):
    """The target of docs/deploying.md: its code uses AVX2 and nothing beyond."""
    text = (ROOT / "docs" / "deploying.md").read_text()
    [config] = re.findall(r"--target (\S+) -o out/ .*# AVX2", text)
    model = tvm_fixes.compile(str(tiny.parent / "model.onnx"), target=config, compare=False)
    assert "avx2" in model.manifest.cpu_features
    assert not any(name.startswith("avx512") for name in model.manifest.cpu_features)


def test_another_architecture(tiny, tmp_path):
    """The target of docs/deploying.md, where there is a compiler that links for it."""
    text = (ROOT / "docs" / "deploying.md").read_text()
    [(compiler, config)] = re.findall(r"install g\+\+-(\S+)\n.* --target (\S+)", text)
    if not shutil.which(f"{compiler}-g++"):
        pytest.skip(f"{compiler}-g++ is not installed")
    source = str(tiny.parent / "model.onnx")
    tvm_fixes.compile(source, target=config, compare=False, output=tmp_path / "out")
    with pytest.raises(tvm_fixes.CompileError, match="it is for aarch64"):
        tvm_fixes.CompiledModel.load(tmp_path / "out")


@pytest.mark.skipif(not grids.is_full(), reason="all pages are built")
def test_api_pages(tmp_path):
    """Each public name has an entry, and all references resolve."""
    pytest.importorskip("pdoc")
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(
        [sys.executable, ROOT / "ci" / "api_pages.py", tmp_path],
        env=os.environ | {"PYTHONPATH": path},
        check=True,
    )
    pages = {"tvm_fixes": tvm_fixes, "tvm_fixes/transform": tvm_fixes.transform}
    for page, module in pages.items():
        text = (tmp_path / f"{page}.html").read_text()
        for name in module.__all__:
            shown = f'id="{name}"' in text or f"{name}.html" in text
            assert shown or name == "__version__", name
    for file in tmp_path.rglob("*.html"):
        docstrings = re.findall(r'<div class="docstring">.*?</div>', file.read_text(), re.DOTALL)
        for docstring in docstrings:
            assert not re.search(
                r":(func|class|meth|attr|data|mod|exc):`|<code>~|::</p>", docstring
            )


if __name__ == "__main__":
    tvm.testing.main()
