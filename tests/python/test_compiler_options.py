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
"""One list of options: what ``compile`` and the command line take."""

import ast
import inspect
from dataclasses import fields

import numpy as np
import pytest
import tvm.testing

import tvm_fixes
import tvm_fixes_cli
from helpers.models import conv_net
from tvm_fixes.compiler import compilation
from tvm_fixes.compiler.options import Options
from tvm_fixes.runtime.manifest import read_manifest

NAMES = [option.name for option in fields(Options)]


def test_keywords_of_compile():
    source, *options = inspect.signature(tvm_fixes.compile).parameters.values()
    assert source.name == "source" and source.default is inspect.Parameter.empty
    assert [option.name for option in options] == NAMES
    assert {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}
    assert options[NAMES.index("seed")].default == 0


def test_the_docstring_describes_each_option():
    text = inspect.getdoc(tvm_fixes.compile)
    parameters = text[text.index("Parameters\n") : text.index("Returns\n")].splitlines()
    heads = [line.partition(" : ")[0] for line in parameters if " : " in line and line[0] != " "]
    assert ", ".join(heads).split(", ") == ["source", *NAMES]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["m.onnx"], {"layuot": "NHWC"}, "got an unexpected keyword argument 'layuot'"),
        (["m.onnx", "llvm"], {}, "too many positional arguments"),
        ([], {}, "missing a required argument: 'source'"),
    ],
)
def test_wrong_keywords(arguments, options, message):
    with pytest.raises(TypeError) as error:
        tvm_fixes.compile(*arguments, **options)
    assert str(error.value) == f"compile() {message}"


def test_the_command_line_has_each_option():
    arguments = vars(tvm_fixes_cli._parser().parse_args(["compile", "m.onnx", "--max-growth", "2"]))
    made = {"shapes": arguments["shape"], "sizes": arguments["size"], "progress": None}
    made |= {"passes": arguments["user_passes"]}
    assert set(NAMES) - set(arguments | made) == {"updated_inputs"}
    defaults = {option.name: option.default for option in fields(Options)} | {"max_growth": 2}
    assert {name: arguments[name] for name in NAMES if name in arguments} == {
        name: defaults[name] for name in NAMES if name in arguments
    }


def test_the_manifest_has_the_options_that_shape_the_artifact(tmp_path):
    options = {
        "layout": "nhwc",
        "shapes": {},
        "max_growth": 0,
        "strip": True,
        "seed": 3,
        "weights": "outside",
        "output": tmp_path / "out",
    }
    tvm_fixes.compile(conv_net(), compare=False, **options)
    kept = read_manifest(tmp_path / "out").report.options
    assert kept == {"layout": "NHWC", "max_growth": 0, "strip": True, "weights": "outside"}
    again = tvm_fixes.compile(conv_net(), compare=False, **kept)
    assert again.report.options == kept


def test_shapes_are_kept_as_values_of_json():
    shapes = {"x": (np.int64(2), "n")}
    assert Options(shapes=shapes, updated_inputs={"a": "b"}).shaping() == {
        "shapes": {"x": [2, "n"]},
        "updated_inputs": {"a": "b"},
    }
    assert Options(max_growth=1.2, compare=False).shaping() == {}


def test_compile_is_a_list_of_steps():
    [function] = [
        node
        for node in ast.parse(inspect.getsource(compilation)).body
        if isinstance(node, ast.FunctionDef)
    ]
    docstring = function.body[0]
    lines = function.end_lineno - function.lineno - (docstring.end_lineno - docstring.lineno)
    assert lines <= 40


if __name__ == "__main__":
    tvm.testing.main()
