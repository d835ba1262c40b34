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
"""The command line."""

import errno
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from contextlib import suppress

import onnx
import onnx.helper as onnx_helper
import pytest
import torch
import tvm
import tvm.testing

from helpers.grids import from_tier, is_full
from helpers.models import conv_net, onnx_conv
from tvm_fixes import _ffi, doctor
from tvm_fixes.compiler import WEIGHTS_CHOICES
from tvm_fixes.lowering import LAYOUTS
from tvm_fixes.passes import known_passes
from tvm_fixes.pipeline import steps
from tvm_fixes.runtime import CompiledModel
from tvm_fixes.runtime.inspection import inspect
from tvm_fixes.source.module_file import read_module
from tvm_fixes.support import switches
from tvm_fixes_cli import _parser, early, main
from tvm_fixes_cli.arguments import shape

ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    onnx.save(onnx_conv(), path)
    return path


def environment() -> dict[str, str]:
    """Environment variables for a child interpreter with the same import path."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def compile_(*arguments: object) -> int:
    return main(["compile", *map(str, arguments)])


class TestCompile:
    @pytest.mark.parametrize("layout", [[], ["--layout", "NHWC"]])
    def test_equal(self, onnx_file, tmp_path, capfd, layout):
        assert compile_(onnx_file, "-o", tmp_path / "out", *layout) == 0
        out, err = capfd.readouterr()
        assert "equal to ONNX Runtime" in out
        assert f"saved to                {tmp_path / 'out'}" in out
        assert re.search(r"^layout transforms left  [01] *$", out, re.MULTILINE)
        assert [line.split()[0] for line in err.splitlines()][-3:] == ["export", "compare", "save"]
        assert ESCAPE not in out + err
        assert CompiledModel.load(tmp_path / "out").report.equal

    def test_pt2_and_factory(self, tmp_path, capfd):
        module, inputs = conv_net()
        torch.export.save(torch.export.export(module, inputs), tmp_path / "model.pt2")
        for source in (tmp_path / "model.pt2", "helpers.models:conv_net"):
            assert compile_(source) == 0
            assert "equal to PyTorch" in capfd.readouterr().out

    def test_not_equal(self, onnx_file, tmp_path, capfd):
        assert compile_(onnx_file, "--rtol", 0, "--atol", 0, "-o", tmp_path / "out") == 1
        out, _ = capfd.readouterr()
        assert "not equal to ONNX Runtime" in out
        assert "elements differ by more than 0 + 0 * |reference|" in out
        assert "is not written)" in out
        assert not (tmp_path / "out").exists()

    def test_without_comparison(self, onnx_file, capfd):
        assert compile_(onnx_file, "--no-compare", "--quiet") == 0
        out, err = capfd.readouterr()
        assert re.search(r"^outputs +not compared *$", out, re.MULTILINE)
        assert "latency" not in out
        assert err == ""

    def test_json(self, onnx_file, tmp_path, capfd):
        arguments = ("--json", "--shape", "image.0=2,3,8,8", "--target", '{"kind": "llvm"}')
        assert compile_(onnx_file, *arguments, "-o", tmp_path / "out") == 0
        out, err = capfd.readouterr()
        document = json.loads(out)
        assert document["equal"] is True
        assert document["outputs"][0]["shape"] == [2, 4, 8, 8]
        assert document["output"] == str(tmp_path / "out")
        assert document["target"]["kind"] == "llvm"
        assert document["size_ratio"] > 1
        assert document["fixes"] == [
            "comparison-legalize",
            "elementwise-schedule",
            "malloc-alignment",
        ]
        assert "export" in err

    @pytest.mark.parametrize("option, unproved", [("--no-verify", None), ("--verify-each", 0)])
    def test_verification(self, onnx_file, capfd, option, unproved):
        assert compile_(onnx_file, "--no-compare", "--json", option) == 0
        document = json.loads(capfd.readouterr().out)
        assert document["unproved"] == unproved
        assert ("verify" in document["seconds"]) == (unproved is not None)

    def test_strip(self, onnx_file, tmp_path):
        sizes = []
        for strip in ([], ["--strip"]):
            assert compile_(onnx_file, "-q", "-o", tmp_path / "out", *strip) == 0
            found = inspect(tmp_path / "out")
            sizes.append(found.nbytes)
            assert (found.debug_bytes > 0) == (not strip)
            assert found.code_bytes > 1000
            assert CompiledModel.load(tmp_path / "out").report.equal
        assert sizes[1] < 0.8 * sizes[0]

    @pytest.mark.parametrize("how", ["print", "native"])
    def test_json_alone_on_standard_output(self, capfd, monkeypatch, how):
        def chatty():
            if how == "print":
                print("hello from the factory")
            else:
                os.write(1, b"hello from the factory\n")
            return torch.nn.ReLU().eval(), (torch.ones(4),)

        monkeypatch.setattr("helpers.models.chatty", chatty)
        assert compile_("helpers.models:chatty", "--json") == 0
        out, err = capfd.readouterr()
        assert json.loads(out)["equal"] is True
        assert "hello from the factory" in err

    @pytest.mark.parametrize("as_json", [False, True])
    @pytest.mark.parametrize(
        "arguments, status, message",
        [
            (["no.onnx"], 2, "no.onnx: no such file"),
            (["helpers.models:special_functions"], 1, "unsupported operator aten.igamma.default"),
            (
                ["helpers.models:conv_net", "--shape", "x=1,2"],
                2,
                "expected shape (1, 3, 8, 8), got (1, 2)",
            ),
            (
                ["helpers.models:conv_net", "--shape", "x=1", "--shape", "x=1"],
                2,
                "an input is given twice",
            ),
            (["helpers.models:conv_net", "--seed", "-1"], 2, "seed must be >= 0, got -1"),
            (
                ["helpers.models:conv_net", "--max-size-ratio", "0"],
                2,
                "max_size_ratio must be positive",
            ),
            (["helpers.models:conv_net", "--target", "{"], 2, "target '{': "),
            (["helpers.models:conv_net", "-o", "/dev/null"], 2, "is not a directory"),
            (
                ["helpers.models:conv_net", "-o", "new/" + 256 * "n"],
                2,
                "a name has more than 255 bytes",
            ),
            (
                ["helpers.models:conv_net", "-o", ""],
                2,
                "the name of the output directory is empty",
            ),
            (
                ["helpers.models:conv_net", "-o", "."],
                2,
                "is the working directory, which cannot be",
            ),
            (
                ["helpers.models:conv_net", "-o", "/"],
                2,
                "is a mount point, which cannot be replaced",
            ),
            (["helpers.models:conv_net", "--target", "{}"], 2, "target '{}': "),
            (
                ["helpers.models:conv_net", "--shape", f"x={1 << 63},3,8,8"],
                2,
                "extent 92233720",
            ),
            (["n" * 300 + ".onnx"], 2, "File name too long"),
            ([":f"], 1, "cannot import: Empty module name"),
        ],
    )
    def test_error_is_one_line(self, capfd, arguments, status, message, as_json):
        assert compile_(*arguments, *["--json"] * as_json, "--quiet") == status
        out, err = capfd.readouterr()
        assert err.startswith("tvm-fixes: error: ")
        assert err.count("\n") == 1
        assert message in err
        if as_json:
            assert message in json.loads(out)["error"]["message"]
        else:
            assert out == ""

    @pytest.mark.parametrize(
        "arguments, message",
        [
            ([], "required: MODEL"),
            (["m.onnx", "--layout", "NCWH"], "invalid choice: 'NCWH'"),
            (["m.onnx", "--layout", "NCWH"], "did you mean NCHW?"),
            (["m.onnx", "--layuot", "NCHW"], "unrecognized arguments: --layuot NCHW"),
            (["m.onnx", "--layuot", "NCHW"], "did you mean --layout?"),
            (["m.onnx", "--layuot=NCHW"], "did you mean --layout?"),
            (["m.onnx", "--zz\x1b\n"], r"unrecognized arguments: --zz\x1b\n (see"),
            (["m.onnx", "--weights", "insde"], "did you mean inside?"),
            (["m.onnx", "--shape", "x"], "or NAME=1x3x64x64, got 'x'"),
            (["m.onnx", "--shape", "=1"], "or NAME=1x3x64x64, got '=1'"),
            (["m.onnx", "--shape", "x=1,,2"], "or NAME=1x3x64x64, got 'x=1,,2'"),
            (["m.onnx", "--shape", "x=1,-2"], "or NAME=1x3x64x64, got 'x=1,-2'"),
            (["m.onnx", "--rtol", "-1"], "expected a number >= 0"),
            (["m.onnx", "--rtol", "nan"], "expected a number >= 0"),
            (["m.onnx", "--atol", "x"], "expected a number >= 0, got 'x'"),
        ],
    )
    def test_wrong_arguments(self, capfd, arguments, message):
        with pytest.raises(SystemExit) as left:
            compile_(*arguments)
        assert left.value.code == 2
        err = capfd.readouterr().err
        assert message in err
        assert err.startswith("tvm-fixes: error: ") and err.count("\n") == 1
        assert err.endswith("(see `tvm-fixes compile --help`)\n")

    def test_wrong_command(self, capfd):
        with pytest.raises(SystemExit) as left:
            main(["compil", "m.onnx"])
        assert left.value.code == 2
        assert "did you mean compile? (see `tvm-fixes --help`)" in capfd.readouterr().err

    @pytest.mark.parametrize("text, layout", [("nhwc", "NHWC"), ("nchw16C", "NCHW16c")])
    def test_layouts_in_any_case(self, text, layout):
        assert _parser().parse_args(["compile", "m.onnx", "--layout", text]).layout == layout

    @pytest.mark.parametrize(
        "command",
        [
            ["compile"],
            ["check"],
            ["verify"],
            ["opt", "--passes", "Normalize"],
            ["inspect"],
        ],
    )
    @pytest.mark.parametrize("name", ["no.onnx", "no.pt2", "no.relay", "no.json", "no/such"])
    def test_a_missing_file(self, capfd, command, name):
        if name == "no.json" and command[0] == "compile":
            name = "no.txt"
        assert main([*command, name]) == 2
        err = capfd.readouterr().err
        assert err.startswith("tvm-fixes: error: ") and err.count("\n") == 1

    @pytest.mark.parametrize(
        "text, expected",
        [
            ("image=1x3x8x8", ("image", (1, 3, 8, 8))),
            ("x=1x", ("x", ("1x",))),
            ("x=batchx3", ("x", ("batchx3",))),
            ("x=1,3", ("x", (1, 3))),
            ("a=b=1", ("a=b", (1,))),
            ("s=", ("s", ())),
            ("x=0, 4", ("x", (0, 4))),
            ("x=batch,3, 2*h", ("x", ("batch", 3, "2*h"))),
        ],
    )
    def test_shapes(self, text, expected):
        assert shape(text) == expected

    @pytest.mark.parametrize("command", ["compile", "check", "verify", "doctor"])
    def test_unknown_fix(self, onnx_file, capfd, monkeypatch, command):
        monkeypatch.setenv("TVM_FIXES_DISABLE", "nonsense")
        assert main([command, *[str(onnx_file)] * (command != "doctor")]) == 2
        err = capfd.readouterr().err
        assert err.startswith("tvm-fixes: error: TVM_FIXES_DISABLE: unknown fix 'nonsense'; ")
        assert err.count("\n") == 1

    def test_a_fault_of_ours_is_one_line(self, onnx_file, capfd, monkeypatch):
        def fail(*_args, **_kwargs):
            raise ZeroDivisionError("two\nlines")

        monkeypatch.setattr("tvm_fixes.verify", fail)
        assert verify(onnx_file) == 1
        err = capfd.readouterr().err
        assert err.startswith("tvm-fixes: error: ZeroDivisionError: two lines (")
        assert "this is a fault of tvm-fixes: please report it" in err and err.count("\n") == 1

    def test_a_full_disk_behind_standard_output(self, onnx_file):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "tvm_fixes_cli", "compile", "no.onnx", "--json"],
                env=environment(),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=120,
            )
        assert done.returncode == 1
        assert done.stderr == (
            "tvm-fixes: error: no.onnx: no such file\n"
            "tvm-fixes: error: standard output: No space left on device\n"
        )

    @pytest.mark.parametrize("status", [0, 3])
    @pytest.mark.parametrize("where", ["factory", "module", "forward"])
    def test_a_model_that_leaves(self, tmp_path, capfd, monkeypatch, where, status):
        """``sys.exit(0)`` in a model's code must not count as success."""

        class Leaving(torch.nn.Module):
            def forward(self, x):
                sys.exit(status)

        source = "helpers.models:leaving"
        if where == "module":
            (tmp_path / f"module_that_leaves_{status}.py").write_text(
                f"import sys; sys.exit({status})\ndef f(): pass"
            )
            monkeypatch.syspath_prepend(tmp_path)
            source = f"module_that_leaves_{status}:f"
        made = Leaving().eval(), (torch.ones(3),)
        leaving = (lambda: sys.exit(status)) if where == "factory" else lambda: made
        monkeypatch.setattr("helpers.models.leaving", leaving, raising=False)
        for command in (compile_, verify):
            assert command(source) == 1
            assert f"{status}" in capfd.readouterr().err.splitlines()[-1]
        assert compile_(source, "-o", tmp_path / "out") == 1
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("module, source", [("torch", "model.pt2"), ("onnxruntime", "")])
    def test_a_package_that_is_not_installed(
        self, onnx_file, tmp_path, capfd, monkeypatch, module, source
    ):
        (tmp_path / "model.pt2").write_bytes(b"PK\x03\x04")
        monkeypatch.setitem(sys.modules, module, None)
        for command in (compile_, verify) if source else (compile_,):
            assert command(tmp_path / source if source else onnx_file) == 2
            err = capfd.readouterr().err.splitlines()[-1]
            assert err.startswith("tvm-fixes: error: ")
            assert err.endswith(f"needs the package {module}: pip install {module}")

    def test_control_characters_are_escaped(self, tmp_path, capfd):
        """Names of nodes, inputs and outputs are untrusted."""
        evil = f"{ESCAPE}]0;evil\a{ESCAPE}[31m\x9b31m\u202e"
        x, y = (onnx_helper.make_tensor_value_info(n + evil, 1, ["n" + evil, 4]) for n in "xy")
        for operator in ("Relu", "Re" + evil + "\nlu"):
            node = onnx_helper.make_node(operator, ["x" + evil], ["y" + evil], name=evil)
            graph = onnx_helper.make_graph([node], evil, [x], [y])
            onnx.save(onnx_helper.make_model(graph, ir_version=9), tmp_path / "evil.onnx")
            compile_(tmp_path / "evil.onnx", "-o", tmp_path / f"out{evil}", "--rtol", "0")
            verify(tmp_path / "evil.onnx")
            compile_(tmp_path / "evil.onnx", "--shape", f"{evil}=1")
            if operator == "Relu":
                main(["inspect", str(tmp_path / f"out{evil}")])
            out, err = capfd.readouterr()
            assert r"\x1b]0;evil\x07" in err
            assert set(out + err).isdisjoint(evil[:1] + "\a\x9b\u202e")
            assert "\nlu" not in err

    def test_a_model_of_onnx_does_not_load_pytorch(self, onnx_file):
        program = (
            "import importlib.util, sys, tvm_fixes_cli\n"
            f"assert tvm_fixes_cli.main(['compile', {str(onnx_file)!r}, '--quiet']) == 0\n"
            "assert 'torch' not in sys.modules\n"
            "assert importlib.util.find_spec('torch')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr

    def test_interrupted(self, tmp_path, capfd, monkeypatch):
        def interrupted():
            signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr("helpers.models.chatty", interrupted)
        assert compile_("helpers.models:chatty", "-o", tmp_path / "out") == 130
        assert capfd.readouterr().err == "tvm-fixes: interrupted; nothing was written\n"
        assert os.listdir(tmp_path) == []

    @pytest.mark.skipif(not is_full(), reason="others interrupt a process; --tier full")
    def test_interrupted_from_outside(self, tmp_path):
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tvm_fixes_cli",
                "compile",
                "helpers.models:waiting",
                "-o",
                tmp_path / "o",
            ],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr.readline() == "waiting\n"
        err = None
        while err is None:
            process.send_signal(signal.SIGINT)
            # A signal before the process pauses may be noticed only with the next one.
            with suppress(subprocess.TimeoutExpired):
                _, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert err == "tvm-fixes: interrupted; nothing was written\n"
        assert os.listdir(tmp_path) == []

    def interrupt(
        self, tmp_path, program: str, number: int = signal.SIGINT, **variables: str
    ) -> tuple[int, str]:
        """Run a program and interrupt it when it says so; return its status and standard error."""
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment() | variables,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        while process.stderr.readline() not in ("now\n", ""):
            pass
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        return process.returncode, err

    @from_tier("ci")
    @pytest.mark.parametrize(
        "interrupt", ["default_int_handler", "SIG_IGN"] if is_full() else ["SIG_IGN"]
    )
    def test_terminated(self, onnx_file, tmp_path, interrupt):
        """No folder is left, neither next to the output nor in TMPDIR."""
        (tmp_path / "tmp").mkdir()
        status, err = self.interrupt(
            tmp_path,
            "import signal, sys, time\n"
            f"signal.signal(signal.SIGINT, signal.{interrupt})\n"
            "from tvm_fixes.compiler import reference\n"
            "from tvm_fixes_cli import main\n"
            "def compare(*_, **__):\n"
            "    print('now', file=sys.stderr, flush=True)\n"
            "    time.sleep(100)\n"
            "reference._compare = compare\n"
            f"sys.exit(main(['compile', {str(onnx_file)!r}, '-o', 'out', '-q']))\n",
            signal.SIGTERM,
            TMPDIR=str(tmp_path / "tmp"),
        )
        assert (status, err) == (143, "tvm-fixes: terminated; nothing was written\n")
        assert os.listdir(tmp_path) == ["tmp"]
        assert list((tmp_path / "tmp").glob("tvm-fixes-*")) == []

    def test_interrupted_while_an_endless_loop_is_compared(self, onnx_file, tmp_path):
        """Native code does not see the signal."""
        status, err = self.interrupt(
            tmp_path,
            "import ctypes, sys, tvm_fixes\n"
            "from tvm_fixes.runtime import CompiledModel\n"
            "from tvm_fixes_cli import main\n"
            "def run(*_):\n"
            "    print('now', file=sys.stderr, flush=True)\n"
            "    ctypes.CDLL(None).sleep(10000)\n"
            "CompiledModel.run = run\n"
            f"sys.exit(main(['compile', {str(onnx_file)!r}, '-o', 'out', '-q']))\n",
        )
        assert (status, err) == (130, "tvm-fixes: interrupted; nothing was written\n")
        assert os.listdir(tmp_path) == []

    @pytest.mark.skipif(not is_full(), reason="others interrupt a process; --tier full")
    def test_interrupted_while_it_links(self, onnx_file, tmp_path):
        status, err = self.interrupt(
            tmp_path,
            "import os, sys\n"
            "from tvm_fixes.compiler import linking\n"
            "from tvm_fixes_cli import main\n"
            "real = linking.run_forked\n"
            "def run_forked(fn, timeout):\n"
            "    print('now', file=sys.stderr, flush=True)\n"
            "    return real(lambda: __import__('time').sleep(100), timeout=timeout)\n"
            "linking.run_forked = run_forked\n"
            f"sys.exit(main(['compile', {str(onnx_file)!r}, '-o', 'out', '-q']))\n",
        )
        assert (status, err) == (130, "tvm-fixes: interrupted; nothing was written\n")
        assert os.listdir(tmp_path) == []

    def test_interrupted_after_it_was_written(self, onnx_file, tmp_path, capfd, monkeypatch):
        monkeypatch.setattr(
            "tvm_fixes_cli.console.render", lambda *_, **__: signal.raise_signal(signal.SIGINT)
        )
        out = tmp_path / "out"
        assert compile_(onnx_file, "-o", out, "--no-compare", "-q") == 130
        assert capfd.readouterr().err == f"tvm-fixes: interrupted; {out} is written\n"
        assert CompiledModel.load(out).report is not None


class TestWithoutTVM:
    """Commands that must respond at once load neither TVM nor PyTorch, which takes seconds."""

    @pytest.mark.parametrize(
        "arguments, text",
        [
            (["--help"], "tvm-fixes doctor"),
            (["--version"], "apache-tvm "),
            (["compile", "--help"], "exit status: 0 all outputs equal"),
            (["doctor", "--help"], "Check this installation"),
        ],
    )
    def test_nothing_heavy_is_imported(self, arguments, text):
        program = (
            "import sys, tvm_fixes_cli\n"
            "try:\n"
            f"    tvm_fixes_cli.main({arguments!r})\n"
            "except SystemExit as left:\n"
            "    assert left.code in (0, None), left.code\n"
            "heavy = {'tvm', 'tvm_ffi', 'torch', 'numpy', 'onnx', 'onnxruntime', 'rich'}\n"
            "heavy.add('tvm_fixes')\n"
            "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert text in done.stdout

    @pytest.mark.parametrize(
        "arguments, limit, message",
        [
            ("compile no.onnx", 0, "no.onnx: no such file"),
            ("compile no.py:make", 0, "no.py: no such file"),
            ("check folder.pt2", 0, "folder.pt2: not a file"),
            ("compare model.bin", 0, "model.bin: expected a file that ends in .onnx, .pt2, "),
            ("compile no_such_module:make", 0, "no_such_module: no such module in "),
            ("compile helpers.nothing:make", 0, "helpers.nothing: no such module in "),
            ("compile factory.py:nothing", 0, "'nothing' of factory.py: no such attribute"),
            ("bisect factory:nothing", 0, "'nothing' of factory: no such attribute"),
            ("verify no.json", 0, "no.json: no such file"),
            ("opt --passes FuseOps no.py", 0, "no.py: no such file"),
            ("opt --passes Foo factory:make", 0, "unknown pass 'Foo'; `tvm-fixes opt --list`"),
            ("opt --passes A(x=1,y=2),Foo factory:make", 0, "unknown pass 'A'; "),
            ("opt --passes relax.FuseOp factory:make", 0, "'relax.FuseOp'; did you mean FuseOps?"),
            ("compile factory:make --pass f.py:P@after=FuseOp", 0, "did you mean FuseOps?"),
            ("profile no/", 0, "no/: no such file"),
            ("report no/", 0, "no/: no such directory; expected an artifact"),
            ("reduce factory:make --seed -1", 0, "seed must be >= 0, got -1"),
            ("compile factory:make --max-growth -1", 0, "max_growth must be >= 0, got -1"),
            ("compile factory:make --inputs no.npz", 0, "no.npz: no such file"),
            ("compile factory:make --params no.params", 0, "only for a Relay program"),
            ("compile factory:make --size n=2 --size n=3", 0, "a dim is given twice"),
            ("compile factory:make --target nonsense", 1200, "target 'nonsense': "),
            ("bisect factory:make --target cuda/sm_10", 1200, "an architecture of CUDA 13"),
            ("opt --print-pipeline --target x86_64/x", 1200, "LLVM does not know mcpu 'x'"),
            ("compile factory:make", 1200, "TVM_FIXES_DISABLE: unknown fix 'off'"),
            ("doctor no-fix", 1200, "unknown fix 'no-fix'"),
        ],
    )
    def test_a_usage_error_loads_little(self, tmp_path, arguments, limit, message):
        """Neither PyTorch nor, except for the name of a target or a fix, TVM."""
        (tmp_path / "folder.pt2").mkdir()
        (tmp_path / "model.bin").touch()
        (tmp_path / "factory.py").write_text("import torch\ndef make():\n    raise ValueError\n")
        program = (
            "import os, sys\n"
            "leave = os._exit\n"
            "def count(status):\n"
            "    text = f'{len(sys.modules)} {bool(sys.modules.get(\"torch\"))}\\n'\n"
            "    os.write(1, text.encode())\n"
            "    leave(status)\n"
            "os._exit = count\n"  # a child that checks a name
            "import tvm_fixes_cli\n"
            f"status = tvm_fixes_cli.main({arguments.split()!r})\n"
            "assert not {'tvm', 'torch', 'numpy', 'tvm_fixes'} & set(sys.modules)\n"
            "sys.exit(status)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment() | ({"TVM_FIXES_DISABLE": "off"} if "'off'" in message else {}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("tvm-fixes: error: ") and message in done.stderr
        assert done.stderr.count("\n") == 1
        counts = [line.split() for line in done.stdout.splitlines()]
        assert len(counts) == (limit > 0)
        assert all(int(modules) < limit and torch == "False" for modules, torch in counts)

    def test_no_known_pass_is_unknown(self, monkeypatch):
        """The check without TVM accepts every pass, and every place in the pipeline."""
        names = [name for one in known_passes() for name in (one.name, one.full_name)]
        places = [stage.path(step) for stage, step in steps()]
        assert len(names) > 400 and len(places) > 60
        monkeypatch.delitem(sys.modules, "tvm")
        early.check_passes(",".join(names), [f"f.py:P@after={place}" for place in places])
        early.check_passes("f.py:P, package.module:P(n=1)", ["f.py:P"])

    def test_the_package_imports_no_other_framework(self):
        """tvm_ffi imports PyTorch; the package does not, nor ONNX or its runtime."""
        program = (
            "import sys\n"
            "from tvm_fixes_cli.package import import_package\n"
            "import_package(with_torch=False)\n"
            "assert 'tvm_fixes.compiler' in sys.modules\n"
            "heavy = {'torch', 'onnx', 'onnxruntime', 'rich'}\n"
            "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        )
        subprocess.run([sys.executable, "-c", program], env=environment(), check=True, timeout=60)

    def test_version_names_tvm(self, capfd):
        with pytest.raises(SystemExit):
            main(["--version"])
        assert f"apache-tvm {tvm.__version__}" in capfd.readouterr().out

    def test_a_package_that_does_not_load_is_one_line(self, onnx_file, monkeypatch, capfd):
        monkeypatch.setitem(sys.modules, "tvm_fixes.compiler", None)
        assert compile_(onnx_file) == 1
        err = capfd.readouterr().err
        assert err.startswith("tvm-fixes: error: TVM and its fixes cannot be loaded: ")
        assert err.count("\n") == 1


WRONG_SCRIPT = """\
@I.ir_module
class Module:
    @R.function(private=True)
    def first(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        y = R.call_tir(cls.first, (x,), out_ty=R.Tensor((4,), "float32"))
        return y
"""
IMPORTS = """\
from tvm.script import ir as I
from tvm.script import relax as R
"""
WRONG = "error[call_tir.callee]: main: `first` is relax.expr.Function, expected a PrimFunc\n"


def verify(*arguments: object) -> int:
    return main(["verify", *map(str, arguments)])


class TestVerify:
    @pytest.fixture
    def script(self, tmp_path):
        path = tmp_path / "module.py"
        path.write_text(IMPORTS + WRONG_SCRIPT)
        return path

    @pytest.fixture
    def saved(self, script, tmp_path):
        path = tmp_path / "module.json"
        path.write_text(tvm.ir.save_json(read_module(script)))
        return path

    def test_models(self, onnx_file, tmp_path, capfd):
        module, inputs = conv_net()
        torch.export.save(torch.export.export(module, inputs), tmp_path / "model.pt2")
        for source in (onnx_file, tmp_path / "model.pt2", "helpers.models:conv_net"):
            assert verify(source) == 0
            assert capfd.readouterr() == ("no errors\n", "")

    def test_a_module_takes_no_shapes(self, script, saved, capfd):
        for source in (script, saved):
            assert verify(source, "--shape", "x=3") == 2
            assert "input shapes can be given only for a model" in capfd.readouterr().err

    def test_script_and_json(self, script, saved, capfd):
        for source in (script, f"{script}:Module", saved):
            assert verify(source) == 1
            out, err = capfd.readouterr()
            assert out.startswith(WRONG) and out.endswith("\n1 error\n")
            assert "y = R.call_tir(cls.first, (x,)" in out
            assert err == "" and ESCAPE not in out

    def test_a_printed_script(self, script, tmp_path, capfd):
        """A printed script has its imports in comments, and its well-formed check enabled."""
        printed = tmp_path / "printed.py"
        printed.write_text(read_module(script).script())
        assert verify(printed) == 1
        assert capfd.readouterr().out.startswith(WRONG)

    def test_a_script_imports_its_neighbours(self, script, tmp_path, capfd):
        (tmp_path / "neighbour_of_a_script.py").write_text("EXTENT = 4\n")
        importing = tmp_path / "importing.py"
        text = script.read_text().replace("(4,)", "(EXTENT,)")
        importing.write_text(f"from neighbour_of_a_script import EXTENT\n{text}")
        before = list(sys.path)
        assert verify(importing) == 1
        assert capfd.readouterr().out.startswith(WRONG)
        assert sys.path == before

    def test_the_check_of_tvm_is_on_again(self, script):
        assert verify(script) == 1
        with pytest.raises(tvm.error.DiagnosticError, match="not well-formed"):
            runpy.run_path(str(script))

    def test_json_output(self, script, capfd):
        assert verify(script, "--json") == 1
        document = json.loads(capfd.readouterr().out)
        assert document["errors"] == 1
        assert document["diagnostics"][0]["rule"] == "call_tir.callee"

    def test_warnings_as_errors(self, tmp_path, capfd):
        script = tmp_path / "warning.py"
        script.write_text(
            IMPORTS + "@R.function\n"
            "def main(x: R.Tensor(('n',), 'float32')) -> R.Tensor((4,), 'float32'):\n"
            "    return x\n"
        )
        assert verify(script) == 0
        assert verify(script, "--warnings-as-errors") == 1
        out = capfd.readouterr().out
        assert out.startswith("warning[type.return]: main: ") and out.endswith("\n1 warning\n")

    @pytest.mark.parametrize(
        "name, text, status, message",
        [
            ("no.py", None, 2, "no.py: no such file"),
            ("no.json", None, 2, "no.json: no such file"),
            ("model.bin", "", 2, "ends in .onnx, .pt2, .tflite, .relay, .txt, .json or .py"),
            ("empty.py", "x = 1", 2, "expected one module, got none"),
            ("two.py", IMPORTS + WRONG_SCRIPT + "Other = Module", 2, "got Module, Other; "),
            ("bad.py", "1 / 0", 1, "bad.py: ZeroDivisionError: division by zero ("),
            ("leaves.py", "raise SystemExit(3)", 1, "leaves.py: SystemExit: 3 ("),
            ("bad.json", "{", 1, "bad.json: not valid TVM JSON: "),
            ("type.json", tvm.ir.save_json(tvm.ir.GlobalVar("f")), 2, "got GlobalVar"),
        ],
    )
    def test_error_is_one_line(self, tmp_path, capfd, name, text, status, message):
        if text is not None:
            (tmp_path / name).write_text(text)
        assert verify(tmp_path / name) == status
        out, err = capfd.readouterr()
        assert err.startswith("tvm-fixes: error: ") and err.count("\n") == 1
        assert message in err
        assert out == ""

    def test_a_name_that_is_not_there(self, script, capfd):
        assert verify(f"{script}:Other") == 2
        assert "no module 'Other'; modules: Module" in capfd.readouterr().err

    def test_the_help_says_that_a_script_runs(self, capfd):
        with suppress(SystemExit):
            verify("--help")
        assert "A .py file is executed: verify only files that you trust." in capfd.readouterr().out


class TestInspect:
    @pytest.fixture
    def artifact(self, onnx_file, tmp_path, capfd):
        assert compile_(onnx_file, "-o", tmp_path / "out", "--no-compare", "--quiet") == 0
        capfd.readouterr()
        return tmp_path / "out"

    def test_for_a_person(self, artifact, capfd):
        assert main(["inspect", str(artifact)]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        assert re.search(r"^parameters +432 B *$", out, re.MULTILINE)
        assert re.search(r"^code +[\d.]+ kB *$", out, re.MULTILINE)
        assert re.search(r"^debug information +[\d.]+ kB *$", out, re.MULTILINE)
        assert not re.search(r"\.text +│", out)
        assert re.search(r"float32 \(.*\) +│ 432 B +│ w", out)
        assert main(["inspect", str(artifact / "model.so"), "--all"]) == 0
        out, _ = capfd.readouterr()
        assert "unknown (no manifest)" in out
        assert "432 B" in out
        assert 0 < out.index("│ 432 B") < re.search(r"\.text +│", out).start()

    def test_json(self, artifact, capfd):
        assert main(["inspect", str(artifact), "--json"]) == 0
        document = json.loads(capfd.readouterr().out)
        assert document["parameter_bytes"] == document["constant_bytes"] == 432
        [tensor] = [c for c in document["constants"] if c["kind"] == "tensor"]
        assert tensor["parameters"] == ["w"]

    def test_a_name_that_is_not_utf_8(self, artifact, capfd):
        moved = artifact.rename(artifact.with_name("out\udcff"))
        assert main(["inspect", str(moved)]) == 0
        assert re.search(r"^artifact +.*out\\xff *$", capfd.readouterr().out, re.MULTILINE)

    def test_a_working_directory_that_is_gone(self, artifact, tmp_path, capfd, monkeypatch):
        gone = tmp_path / "gone"
        gone.mkdir()
        with monkeypatch.context() as moved:
            moved.chdir(gone)
            gone.rmdir()
            status = main(["inspect", str(artifact)])
        assert status == 2
        err = capfd.readouterr().err
        assert err == "tvm-fixes: error: the working directory: No such file or directory\n"

    @pytest.mark.parametrize("as_json", [False, True])
    def test_error_is_one_line(self, tmp_path, capfd, as_json):
        file = tmp_path / "model.so"
        file.write_bytes(b"\1\2\3")
        assert main(["inspect", str(file), *["--json"] * as_json]) == 1
        out, err = capfd.readouterr()
        assert err == f"tvm-fixes: error: {file}: not an ELF file\n"
        assert ("not an ELF file" in json.loads(out)["error"]["message"]) if as_json else not out


class TestDoctor:
    @pytest.fixture
    def report(self, monkeypatch):
        """A report without the probes, which have their own tests."""
        report = doctor.run(ids=[])
        monkeypatch.setattr(doctor, "run", lambda *_, **__: report)
        return report

    def test_table(self, report, capfd):
        assert main(["doctor"]) == 0
        assert tvm.__version__ in capfd.readouterr().out

    def test_json(self, report, capfd):
        assert main(["doctor", "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["tvm"]["version"] == tvm.__version__

    def test_some_fixes(self, capfd):
        assert main(["doctor", "ffi-0.1.15", "--json"]) == 0
        assert [row["id"] for row in json.loads(capfd.readouterr().out)["fixes"]] == ["ffi-0.1.15"]

    def test_quick(self, capfd):
        assert main(["doctor", "--quick", "--json"]) == 0
        rows = json.loads(capfd.readouterr().out)["fixes"]
        assert [row["kind"] for row in rows] == ["environment"]

    @pytest.mark.parametrize(
        "fix, hint", [("conv-legalise", "did you mean conv-legalize?"), ("zz", "known fixes: ")]
    )
    def test_a_fix_that_is_unknown(self, capfd, fix, hint):
        assert main(["doctor", fix]) == 2
        assert f"error: unknown fix {fix!r}; {hint}" in capfd.readouterr().err

    def test_a_file_that_cannot_be_read(self, monkeypatch, capfd):
        def fail(*_, **__):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(doctor, "run", fail)
        assert main(["doctor"]) == 1
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("tvm-fixes: error: the installation cannot be examined: ")
        assert "Too many open files" in err

    def doctor_in(self, variables, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "tvm_fixes_cli", "doctor", *arguments],
            env=environment() | variables,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def test_table_without_the_native_library(self):
        done = self.doctor_in({_ffi.LIBRARY_VARIABLE: "/nope"})
        assert (done.returncode, done.stderr) == (1, "")
        assert tvm.__version__ in done.stdout
        assert "does not load" in done.stdout
        assert done.stdout.count("unavailable") == len(switches.FIX_IDS) - 1
        assert done.stdout.count("problem: ") == 1

    @pytest.mark.parametrize(
        "variables, problem",
        [
            # The quick tier has the table of a library that is missing above.
            *(
                [
                    ({_ffi.LIBRARY_VARIABLE: "/nope"}, "is missing: expected /nope"),
                    ({_ffi.LIBRARY_VARIABLE: __file__}, "cannot be loaded: "),
                ]
                * is_full()
            ),
            ({"TVM_USE_RUNTIME_LIB": "1"}, "(runtime only)"),
        ],
    )
    def test_json_without_the_native_library(self, variables, problem):
        done = self.doctor_in(variables, "--json")
        assert (done.returncode, done.stderr) == (1, "")
        report = json.loads(done.stdout)
        assert report["ok"] is False
        assert report["tvm"]["version"] == tvm.__version__
        assert report["tvm"]["path"] == os.path.dirname(os.path.realpath(tvm.__file__))
        assert report["tvm"]["origin"]
        assert report["versions"]["apache-tvm-ffi"]
        assert report["native"]["ok"] is False
        assert problem in report["native"]["problem"]
        assert report["problems"] == [f"native library: {report['native']['problem']}"]
        assert [fix["id"] for fix in report["fixes"]] == list(switches.FIX_IDS)
        assert all(
            (fix["state"], fix["note"])
            == ("unavailable", "the native library does not load: not probed")
            for fix in report["fixes"]
            if fix["kind"] != "environment"
        )

    def test_unknown_fix(self, monkeypatch, capfd):
        monkeypatch.setenv("TVM_FIXES_DISABLE", "nonsense")
        assert main(["doctor"]) == 2
        assert "unknown fix 'nonsense'; known fixes: " in capfd.readouterr().err


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_full_disk_is_said_of_the_help_too(option):
    command = [sys.executable, "-m", "tvm_fixes_cli", option]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment()
        )
    assert done.returncode == 1
    assert done.stderr == "tvm-fixes: error: standard output: No space left on device\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion(shell, capfd):
    pytest.importorskip("shtab", reason="the extra 'completion' is not installed")
    with pytest.raises(SystemExit) as left:
        main(["--print-completion", shell])
    assert left.value.code == 0
    out = capfd.readouterr().out
    assert "compile" in out and "dump-ir" in out
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=out, text=True).returncode == 0


@pytest.mark.parametrize(
    "words", ["compile my", "compile --pass my", "compare --inputs my", "profile --compare my"]
)
def test_values_that_are_files_are_completed(words, tmp_path, monkeypatch, capfd):
    pytest.importorskip("shtab", reason="the extra 'completion' is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_pass.py").touch()
    with pytest.raises(SystemExit):
        main(["--print-completion", "bash"])
    complete = (
        f"COMP_WORDS=(tvm-fixes {words}); COMP_CWORD={len(words.split())}\n"
        '_shtab_tvm_fixes; echo "${COMPREPLY[@]}"'
    )
    script = capfd.readouterr().out + complete
    done = subprocess.run(["bash"], input=script, text=True, capture_output=True, check=True)
    assert done.stdout == "my_pass.py\n"


def test_completion_without_shtab(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as left:
        main(["--print-completion", "bash"])
    assert left.value.code == 2
    err = capfd.readouterr().err
    assert "needs the package shtab: pip install shtab" in err


def test_run_as_a_module(monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["tvm_fixes", "compile", "no.onnx"])
    with pytest.raises(SystemExit) as left:
        runpy.run_module("tvm_fixes", run_name="__main__")
    assert left.value.code == 2
    assert capfd.readouterr().err == "tvm-fixes: error: no.onnx: no such file\n"


def test_choices_are_the_pipeline_s(capfd):
    with pytest.raises(SystemExit):
        main(["compile", "--help"])
    out = capfd.readouterr().out
    assert f"{{{','.join(LAYOUTS)}}}" in out
    assert f"--weights {{{','.join(WEIGHTS_CHOICES)}}}" in out


if __name__ == "__main__":
    tvm.testing.main()
