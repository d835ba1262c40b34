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
"""The description of a .pt2 file, by its JSON, and of the program of a factory."""

import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .description import Description, Dim, Value, malformed, most_first
from .terminal import FAILED, Failure

if TYPE_CHECKING:
    import torch

    from tvm_fixes.source.torch import TorchSource

# PyTorch's numbers of dtypes in such a file, and the bytes of an element.
_DTYPES = {
    **{1: ("uint8", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8)},
    **{6: ("float16", 2), 7: ("float32", 4), 8: ("float64", 8), 9: ("complex32", 4)},
    **{10: ("complex64", 8), 11: ("complex128", 16), 12: ("bool", 1), 13: ("bfloat16", 2)},
    **{28: ("uint16", 2), 29: ("float8_e4m3fn", 1), 30: ("float8_e5m2", 1)},
    **{31: ("float8_e4m3fnuz", 1), 32: ("float8_e5m2fnuz", 1), 33: ("float8_e8m0fnu", 1)},
    **{34: ("uint32", 4), 35: ("uint64", 8)},
}
_SIZES = {"as_sym_int": "int64", "as_sym_float": "float64", "as_sym_bool": "bool"}
_NUMBERS = _SIZES | {"as_int": "int64", "as_float": "float64", "as_bool": "bool"}
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)")
_INTEGER = re.compile(r"Integer\((-?\d+)\)")
_OWN_TYPES = ("builtins.", "collections.")
# Of the operators that are read without --trust; those of Python and of sizes are the first.
_NAMESPACES = (
    *("_operator", "math", "torch"),
    *("aten", "prims", "quantized_decomposed", "torchvision", "higher_order"),
)


def describe(path: str) -> Description:
    """Describe a file of ``torch.export.save``, without PyTorch.

    Raises
    ------
    Failure
        If it is not one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, path)
    except (zipfile.BadZipFile, OSError, RecursionError) as error:
        raise malformed(path, error) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise malformed(path, f"{type(error).__name__}: {error}") from error


def _read(archive: zipfile.ZipFile, path: str) -> Description:
    names = archive.namelist()
    [model, *_] = [name for name in names if name.endswith("models/model.json")] or [""]
    if not model:
        raise Failure(f"{path}: not a file of torch.export.save: it is {_kind(names)}", FAILED)
    document = _json(archive, model, path)
    module = document["graph_module"]
    graph, signature = module["graph"], module["signature"]
    call = module["module_call_graph"][0]["signature"]
    values = graph["tensor_values"]
    given = [spec["user_input"]["arg"] for spec in signature["input_specs"] if "user_input" in spec]
    made = [
        spec["user_output"]["arg"] for spec in signature["output_specs"] if "user_output" in spec
    ]
    weights: Counter[str] = Counter()
    stored: set[str] = set()
    for name in names:
        if name.endswith(("_weights_config.json", "_constants_config.json")):
            for one in _json(archive, name, path)["config"].values():
                meta, place = one["tensor_meta"], name[:-12] + one["path_name"]
                if meta is not None and place not in stored:
                    stored.add(place)
                    dtype, size = _DTYPES[meta["dtype"]]
                    weights[dtype] += size * math.prod(dim["as_int"] for dim in meta["sizes"])
    operators = Counter(node["target"].removeprefix("torch.ops.") for node in graph["nodes"])
    _, inputs = json.loads(call["in_spec"])
    _, outputs = json.loads(call["out_spec"])
    trust, imports = _needs([*_types(inputs), *_types(outputs)], operators)
    return Description(
        os.path.basename(path),
        f"PyTorch program, ATen opset {document['opset_version'].get('aten')}",
        f"PyTorch {document.get('torch_version')}",
        _values(_input_names(inputs, call.get("forward_arg_names") or []), given, values, _SIZES),
        _values(map(_output_name, _paths(outputs)), made, values, _NUMBERS),
        most_first(operators),
        most_first(weights),
        {
            name: _range(limits["min_val"], limits["max_val"])
            for name, limits in document["range_constraints"].items()
        },
        trust=trust,
        imports=imports,
    )


def _json(archive: zipfile.ZipFile, name: str, path: str) -> Any:
    if archive.getinfo(name).file_size > os.path.getsize(path):  # PyTorch does not compress
        raise ValueError(f"{name} is larger than the file")
    return json.loads(archive.read(name))


def _kind(names: list[str]) -> str:
    """The kind of another zip file."""
    if any(name.endswith("serialized_exported_program.json") for name in names):
        return (
            "of the format of PyTorch 2.7 and older, whose weights are pickles: export it again, "
            "or compile it with --trust"
        )
    if any("/code/" in name for name in names):
        return "a TorchScript archive (torch.jit.save); export the module with torch.export"
    if any(name.endswith("data.pkl") for name in names):
        return "a checkpoint (torch.save), which has no graph; export the module with torch.export"
    return "another zip archive"


def _range(low: int | None, high: int | None) -> str:
    # PyTorch writes its largest size, or none, for a dim without a limit.
    is_limited = high is not None and high < 1 << 62
    return f"{low or 0} to {high}" if is_limited else f"at least {low or 0}"


def _values(
    names: Iterable[str],
    arguments: list[dict[str, Any]],
    values: Mapping[str, Any],
    numbers: Mapping[str, str],
) -> list[Value]:
    """The values of arguments, of which `numbers` are no constants."""
    found = []
    for name, argument in zip(names, arguments, strict=True):
        [(kind, value)] = argument.items()
        if kind == "as_tensor":
            meta = values[value["name"]]
            dtype, _ = _DTYPES[meta["dtype"]]
            found.append(Value(name, dtype, tuple(map(_dim, meta["sizes"]))))
        elif kind in numbers:
            found.append(Value(name, numbers[kind], ()))
    return found


def _dim(dim: Mapping[str, Any]) -> Dim:
    if "as_int" in dim:
        return int(dim["as_int"])
    return _INTEGER.sub(r"\1", _SYMBOL.sub(r"\1", dim["as_expr"]["expr_str"]))


def _keys(structure: Mapping[str, Any]) -> list[str | int]:
    """The keys of the parts of a container: those that it stores, or their places."""
    count = len(structure["children_spec"])
    context = json.loads(structure["context"] or "null")
    keys = context if isinstance(context, list) and len(context) == count else []
    is_named = all(isinstance(key, str | int) for key in keys)
    return [str(key) for key in keys] if keys and is_named else list(range(count))


def _paths(structure: Mapping[str, Any]) -> Iterator[tuple[str | int, ...]]:
    if structure["type"] is None:
        yield ()
        return
    for key, part in zip(_keys(structure), structure["children_spec"], strict=True):
        yield from ((key, *rest) for rest in _paths(part))


def _types(structure: Mapping[str, Any]) -> Iterator[str]:
    if structure["type"] is not None:
        yield structure["type"]
    for part in structure["children_spec"]:
        yield from _types(part)


def _input_names(structure: Mapping[str, Any], parameters: list[str]) -> Iterator[str]:
    """The names that ``tvm-fixes compile`` gives to the inputs."""
    for part, first, *rest in _paths(structure):
        if part == 0 and isinstance(first, int):
            first = parameters[first] if first < len(parameters) else f"arg{first}"
        yield ".".join(map(str, (first, *rest)))


def _output_name(path: tuple[str | int, ...]) -> str:
    name = ".".join(map(str, path))
    return name if name and not name[0].isdigit() else f"output{name}"


def _needs(types: Iterable[str], operators: Iterable[str]) -> tuple[bool, list[str]]:
    """Whether a program with these types and operators needs trust, and the modules it needs."""
    foreign = sorted({name for name in types if not name.startswith(_OWN_TYPES)})
    modules = dict.fromkeys(re.split(r"\.(?=_*[A-Z])", name)[0] for name in foreign)
    is_known = all(name.partition(".")[0] in _NAMESPACES for name in operators)
    return bool(foreign) or not is_known, list(modules)


def describe_program(source: "TorchSource") -> Description:
    """Describe an exported program, such as that of a factory."""
    import torch

    program = source.program
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    made = [s.arg for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    outputs = [getattr(arg, "value", nodes.get(arg.name)) for arg in made]
    weights: Counter[str] = Counter()
    storages = {tensor.untyped_storage().data_ptr(): tensor for _, tensor in source.tensors()}
    for tensor in storages.values():
        weights[_dtype(tensor)] += tensor.untyped_storage().nbytes()
    operators = source.operators()
    return Description(
        source.name,
        "PyTorch program of a factory, exported",
        f"PyTorch {torch.__version__}",
        [Value(spec.name, spec.dtype, spec.shape) for spec in source.inputs],
        [
            _made_value(name, value)
            for name, value in zip(
                source.output_names,
                (value for value in outputs if value is not None and not isinstance(value, str)),
                strict=True,
            )
        ],
        most_first({operator.name: operator.calls for operator in operators}),
        most_first(weights),
        {
            str(symbol): _range(int(limits.lower), _limit(limits.upper))
            for symbol, limits in program.range_constraints.items()
        },
        unsupported=[operator.name for operator in operators if operator.problem],
    )


def _limit(bound: Any) -> int | None:
    return int(bound) if str(bound).isdecimal() else None


def _made_value(name: str, value: Any) -> Value:
    """An output: a tensor, or a number, which the compiled model returns as one."""
    shape = getattr(value, "shape", ())
    dims = tuple(dim if isinstance(dim, int) else str(dim) for dim in shape)
    kind = type(value).__name__.removeprefix("Sym").lower()
    dtype = {"int": "int64", "float": "float64"}.get(kind, kind)
    return Value(name, _dtype(value) if hasattr(value, "dtype") else dtype, dims)


def _dtype(tensor: "torch.Tensor") -> str:
    return str(tensor.dtype).removeprefix("torch.")
