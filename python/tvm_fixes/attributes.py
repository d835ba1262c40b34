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
"""The attributes that passes put on functions, blocks and loops: who writes them, who reads them.

``docs/attributes.md`` is generated from these declarations.  They are data, and load neither TVM
nor PyTorch.
"""

from typing import Self


class Attribute(str):
    """The name of an attribute, with its declaration.

    Attributes
    ----------
    holder : str
        What has it.
    meaning : str
        What its value says.
    writers, readers : tuple of str
        The modules of tvm_fixes, or files of ``src``; for an attribute of TVM's, only examples.
    """

    holder: str
    meaning: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]

    def __new__(cls, name: str, holder: str, meaning: str, writers: str, readers: str = "") -> Self:
        """Declare an attribute; the modules are separated by spaces."""
        made = super().__new__(cls, name)
        made.holder, made.meaning = holder, meaning
        made.writers, made.readers = tuple(writers.split()), tuple(readers.split())
        return made


TILE = Attribute(
    "tvm_fixes.tile",
    "block of a kernel",
    "the number of elements of the register tile that the block computes",
    writers="relax.legalize.matmul.schedule relax.legalize.conv.cpu_channels",
    readers="tirx.transform.keep_tiles_on_stack",
)
PANEL = Attribute(
    "tvm_fixes.panel",
    "block of a kernel",
    "the block copies a part of an operand in the order in which the loops around it read it",
    writers="relax.legalize.matmul.schedule",
    readers="tirx.panels",
)
LAST_COLUMNS = Attribute(
    "tvm_fixes.last_columns",
    "loop over tiles",
    "the columns of a smaller last tile, or those of a tile: the last one is computed apart",
    writers="relax.legalize.conv.cpu_channels relax.legalize.conv.cpu_columns",
    readers="tirx.last_tile tirx.transform.keep_tiles_on_stack",
)
RECURRENCE = Attribute(
    "tvm_fixes.recurrence",
    "kernel",
    "the recurrent layer that the kernel computes, a `Cell` as JSON",
    writers="frontend.recurrent",
    readers="relax.transform.lower_recurrence",
)
COPIES_FIRST = Attribute(
    "copies_first_operand",
    "kernel",
    "the kernel copies its first operand, and then changes elements of the copy: UpdateInPlace "
    "can leave out the copy",
    writers="relax.legalize.scatter",
    readers="relax.legalize.scatter",
)
IS_COPY = Attribute(
    "tvm_fixes.is_copy",
    "kernel",
    "the kernel copies the operand of a reshape: a view must not share the memory of the caller",
    writers="relax.legalize.reshape",
    readers="relax.legalize.reshape",
)
RUN = Attribute(
    "tvm_fixes.run",
    "Relax function",
    "a run of kernels outside of dataflow blocks, which is a function while kernels are fused",
    writers="relax.lifted_runs",
    readers="relax.lifted_runs",
)
UPDATES = Attribute(
    "updates",
    "function `main`",
    "for each parameter that a run overwrites, the index of the output with its new value",
    writers="relax.updates",
    readers="relax.updates src/relax/analysis/verifier/function_verifier.cc",
)
LIFTED = Attribute(
    "lift_transform_params",
    "Relax function",
    "the function that prepares its weights, and the parameters before the weights were lifted",
    writers="relax.transform.lift_transform_params",
    readers="relax.lift.callers relax.transform.lift_transform_params "
    "relax.transform.lazy_get_input relax.signature_guard testing",
)
LOOP = Attribute(
    "loop",
    "Relax function without a body",
    "a unique name: the builder merges equal functions. It goes when the body is known",
    writers="frontend.recursion",
)
RELAY_NAME = Attribute(
    "relay_name",
    "Relax function without a body",
    "the name of the function in Relay, for the same reason",
    writers="frontend.relay.graph.translator",
)

CODE_PARTS = Attribute(
    "tvm_fixes.code_parts",
    "module",
    "LLVM may compile the kernels in parts",
    writers="target.code_parts",
    readers="target.code_parts",
)

OWN = (
    *(TILE, PANEL, LAST_COLUMNS, RECURRENCE, COPIES_FIRST, IS_COPY),
    *(RUN, UPDATES, LIFTED, LOOP, RELAY_NAME, CODE_PARTS),
)
"""Our attributes."""

TVM = (
    Attribute(
        "op_pattern",
        "kernel",
        "the kind of kernel: FuseOps fuses it with others unless it is opaque (8)",
        writers="relax.legalize relax.transform tirx.transform frontend",
        readers="relax.fusion TVM",
    ),
    Attribute(
        "tirx.is_scheduled",
        "kernel",
        "no later schedule takes it",
        writers="tirx.transform.apply_gpu_schedule relax.transform.lower_recurrence tirx.gpu_scan",
        readers="tirx.transform.apply_gpu_schedule TVM",
    ),
    Attribute(
        "tirx.noalias",
        "kernel",
        "its parameters do not overlap",
        writers="tirx frontend",
        readers="TVM",
    ),
    Attribute(
        "target",
        "kernel",
        "the machine that it runs on, if it is not that of the module",
        writers="relax.legalize.override tirx.transform.lower_elementary_functions",
        readers="TVM",
    ),
    Attribute(
        "global_symbol",
        "function",
        "the name in the library: the function is public",
        writers="frontend relax.constants.evaluate search",
        readers="verifier TVM",
    ),
    Attribute(
        "num_input",
        "Relax function",
        "the number of parameters that are not weights",
        writers="compiler.lifting frontend.torch relax.transform.vm_shape_lower",
        readers="relax.analysis relax.transform TVM",
    ),
    Attribute(
        "params",
        "Relax function",
        "the weights, in the order of their parameters",
        writers="frontend.torch relax.transform.lift_transform_params",
        readers="compiler.lifting TVM",
    ),
    Attribute(
        "Primitive",
        "Relax function",
        "it becomes one kernel: FuseTIR",
        writers="relax.transform.merge_small_kernels TVM",
        readers="relax.ir TVM",
    ),
    Attribute(
        "tir_var_lower_bound",
        "function `main`",
        "the smallest extent of each symbolic dim",
        writers="frontend.torch source.base",
        readers="TVM",
    ),
    Attribute(
        "tir_var_upper_bound",
        "function `main`",
        "the largest extent of each symbolic dim",
        writers="frontend.torch source.base",
        readers="TVM",
    ),
    Attribute(
        "relax.force_pure",
        "Relax function",
        "its calls need not be pure",
        writers="TVM",
        readers="src/relax/analysis/verifier/function_verifier.cc",
    ),
    Attribute(
        "pragma_import_llvm",
        "loop, or statement",
        "LLVM code that is linked into the kernel",
        writers="tirx.non_temporal tirx.dot_product",
        readers="TVM",
    ),
    Attribute(
        "software_pipeline_stage",
        "loop",
        "the iteration in which each statement runs",
        writers="tirx.gpu_tensor_cores",
        readers="TVM",
    ),
    Attribute(
        "software_pipeline_order",
        "loop",
        "the order of the statements of an iteration",
        writers="tirx.gpu_tensor_cores",
        readers="TVM",
    ),
    Attribute(
        "tirx.manifest_shared_memory_local_stage",
        "block",
        "a copy to shared memory goes through registers",
        writers="tirx.gpu_tensor_cores",
        readers="TVM",
    ),
    Attribute(
        "double_buffer_scope",
        "block",
        "the buffer has two halves: one is read while the other is written",
        writers="tirx.gpu_tensor_cores",
        readers="TVM",
    ),
)
"""Attributes that TVM defines, and that our passes write or read."""
