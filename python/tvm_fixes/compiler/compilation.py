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
"""From a model to a library, in one call."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from .. import target as targets
from ..pipeline import stages
from ..relax.constants.growth import MAX_GROWTH
from ..relax.constants.make import making_constants
from ..relax.constants.provenance import constants_of
from ..relax.constants.size_check import check_volume
from ..relax.transform import ConstantsToParams
from ..relax.transform.fold_constant import collect_unfolded
from ..runtime.compiled_model import CompiledModel
from ..runtime.report import Report
from ..source import Params, Shapes, open_source
from ..support import switches
from ..support.memory import LARGE
from .linking import export
from .options import check_machine, check_request
from .progress import Progress, Run
from .reference import Reference, compare_outputs
from .steps import build_executable, import_model, lower, scratch_for
from .verification import Verification


def compile(
    source: Any,
    *,
    target: str | Mapping[str, object] | tvm.target.Target = "native",
    layout: str | None = None,
    shapes: Shapes | None = None,
    static: bool = False,
    output: str | os.PathLike[str] | None = None,
    compare: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    verify: bool = True,
    verify_each: bool = False,
    runtime_checks: bool = False,
    max_growth: float = MAX_GROWTH,
    max_size_ratio: float | None = None,
    weights: str = "auto",
    unsafe_indices: bool = False,
    trust: bool = False,
    params: Params | None = None,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compile a model into a library and compare its outputs with the original's.

    Parameters
    ----------
    source : str, path or object
        A file ``.onnx``, or ``.pt2`` of ``torch.export.save``; ``"package.module:factory"``, a
        callable that returns an ``nn.Module`` in eval mode and a tuple of example inputs; or an
        ``onnx.ModelProto``, a ``torch.export.ExportedProgram``, such a module and tuple, or an
        ``IRModule`` (which nothing can be compared with). A Relay program of TVM 0.6 to 0.19 is a
        file ``.relay`` or ``.txt`` of its text, a file ``.json`` of ``tvm.ir.save_json``, or a
        :class:`tvm_fixes.relay.IRModule`; it is not compared.
    target : str, mapping or tvm.target.Target
        ``"native"`` (this CPU with its features), ``"cuda/sm_90"`` (a GPU of that architecture) or
        ``"cuda"`` (the one of this machine), a TVM tag, or a configuration as a mapping or JSON.
    layout : str, optional
        One of :data:`tvm_fixes.pipeline.LAYOUTS`: the convolutions channels-first (``"NCHW"``),
        channels-last (``"NHWC"``) or in blocks of channels (``"NCHW8c"``), in any rank.  By default
        as they are, or in blocks where :func:`~tvm_fixes.transform.ChooseLayout` finds that faster.
    shapes : mapping of str to sequence of int and str, optional
        Shapes of inputs by name.  A name makes a dim of a PyTorch module symbolic, and elsewhere
        calls one that is symbolic: the same size wherever it stands.  A size makes a symbolic dim
        of an ONNX model static; for PyTorch it is the size to compare at.
    static : bool
        Make every dim static, with the sizes of `shapes`, or of PyTorch's example inputs.
    output : path, optional
        A directory that the artifact is saved to, unless it was compared and is not equal.
    compare : bool
        Run the library and ONNX Runtime or PyTorch on the same random inputs.
    rtol, atol : float, optional
        Tolerances, in place of those of :data:`tvm_fixes.debug.comparison.TOLERANCES`.
    seed : int
        Of the random inputs; not negative.
    verify : bool
        Verify the module after import, and again when its operators have become calls of kernels.
    verify_each : bool
        Verify it after each pass too, so that an error names the pass that is at fault.
    runtime_checks : bool
        Have the model check what could not be proved, and raise an ``AssertionError`` that names
        operator and values.
    max_growth : float
        The ratio of values computed at compile time to the constants they are computed of, in
        bytes. What would exceed it is computed when the model runs; ``report.unfolded`` lists it.
    max_size_ratio : float, optional
        Refuse a model whose constants would exceed this ratio to its parameters, in bytes; the
        first 256 KiB do not count.  By default there is no limit, and a warning from 1.2 on.
    weights : str
        Where the parameters are: ``"inside"`` the library, ``"outside"`` it in a file
        ``weights.safetensors``, or ``"auto"``: outside from 1 GiB of them on.
    unsafe_indices : bool
        Trust the indices that the model computes, in the place of an ``AssertionError`` where one
        is out of range: see :func:`tvm_fixes.pipeline`.
    trust : bool
        Read a file ``.pt2`` as PyTorch does, which runs the code in it; else a file that may run
        code is refused.  To name a factory is to trust it: it always runs.
    params : mapping of str to numpy.ndarray, or path, optional
        Values of parameters of a Relay program, or a file of ``relay.save_param_dict``. They become
        constants.
    progress : callable, optional
        Called with a :class:`Step` as each begins and ends.

    Returns
    -------
    model : CompiledModel
        The library, loaded from the file that :meth:`CompiledModel.save` writes; its ``report``
        tells what was found, ``report.equal`` whether every output is equal.

    Raises
    ------
    UsageError
        If what is asked for does not exist or does not fit the model.
    CompileError
        If the model cannot be compiled, or is larger than `max_size_ratio` lets it be; the message
        names operator and node where one is at fault.
    UntrustedError
        If the file may run code and `trust` was not given.
    VerifyError
        If a module on the way is wrong, as :func:`tvm_fixes.verify` finds it; ``stage`` tells when.
    ArtifactError
        If the artifact cannot be written to `output`, such as on a full disk.
    """
    run = Run(progress)
    verification = Verification(verify, verify_each)
    with switches.collect() as fixes, ExitStack() as ended:
        with run.step("load"):
            check_request(rtol, atol, seed, max_size_ratio, weights)
            resolved = targets.resolve(target)
            lowering = stages(
                layout=layout,
                runtime_checks=runtime_checks,
                max_growth=max_growth,
                unsafe_indices=unsafe_indices,
            )
            check_machine(resolved, compare, output)
            opened = open_source(source, shapes, trust=trust, params=params)
            if static:
                opened.make_static()
            scratch = scratch_for(opened, weights)
        with run.step("import"):
            mod, origins, warned = import_model(opened, static)
        verification.check(mod, run, "verify")
        signature = opened.signature(mod["main"])
        reference = None
        if compare and opened.has_reference:
            with run.step("reference"):
                reference = ended.enter_context(Reference(opened, seed))
        outside: dict[tvm.runtime.Tensor, relax.Var] = {}
        to_params = [] if scratch is None else [ConstantsToParams(LARGE, outside)]
        with collect_unfolded() as unfolded, making_constants(scratch, origins.add):
            mod, transforms = lower(mod, lowering, resolved, run, verification, to_params)
        with run.step("build"):
            inside = constants_of(mod)
            every = [*inside, *outside]
            origins.forget_others(every)
            nbytes, large = check_volume(every, origins, opened.parameter_bytes, max_size_ratio)
            executable = build_executable(mod, resolved)
        with run.step("export"):
            model = export(
                executable, resolved, signature, origins.records(inside), origins.named(outside)
            )
        report = Report(
            source=opened.name,
            layout=layout,
            seconds={},
            artifact_bytes=model.manifest.nbytes,
            parameter_bytes=opened.parameter_bytes,
            activation_transforms=transforms,
            fixes=sorted(fixes),
            constant_bytes=nbytes,
            warnings=warned + large,
            unproved=verification.unproved,
            unfolded=unfolded,
        )
        if reference is not None:
            with run.step("compare"):
                report = compare_outputs(model, reference, report, rtol, atol)
        model.report = replace(report, seconds=dict(run.seconds))
        if output is not None and report.equal is not False:
            with run.step("save"):
                model.save(output)
        return model
