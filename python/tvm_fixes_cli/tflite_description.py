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
"""The description of a TFLite file, by the package's reader."""

import os
from collections import Counter
from pathlib import Path

from .description import Description, Value, most_first


def describe(path: str) -> Description:
    """Describe a TFLite file; the package must be loaded.

    Raises
    ------
    CompileError
        If it is malformed, or there is no such file.
    """
    from tvm_fixes.frontend.tflite.file.model import read_model
    from tvm_fixes.frontend.tflite.graph.interface import dims_of, input_names, output_names
    from tvm_fixes.frontend.tflite.graph.preflight import operators_of
    from tvm_fixes.source.base import existing

    model = read_model(existing(Path(path)))
    main = model.main
    weights: Counter[str] = Counter()
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            weights[tensor.dtype] += 0 if tensor.data is None else tensor.data.nbytes
    dims = dims_of(main, {})
    inputs = [
        Value(name, main.tensors[index].dtype, dims[name])
        for name, index in zip(input_names(main), main.inputs, strict=True)
    ]
    outputs = [
        Value(
            name,
            main.tensors[index].dtype,
            tuple("?" if dim < 0 else dim for dim in main.tensors[index].signature),
        )
        for name, index in zip(output_names(main), main.outputs, strict=True)
    ]
    counts = Counter(operator.name for graph in model.subgraphs for operator in graph.operators)
    graphs = len(model.subgraphs)
    return Description(
        os.path.basename(path),
        f"TFLite, version {model.version}" + (f", {graphs} subgraphs" if graphs > 1 else ""),
        model.description,
        inputs,
        outputs,
        most_first(counts),
        {name: size for name, size in most_first(weights).items() if size},
        unsupported=sorted(one.name for one in operators_of(model) if one.problem),
    )
