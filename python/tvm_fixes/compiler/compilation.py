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
"""Compilation of a model to a library in one call."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .. import target as targets
from ..lowering import layout_named, stages
from ..observe.dump_ir import DumpIR
from ..observe.pass_times import PassTimes
from ..observe.watch_fixes import WatchFixes, explanation_of
from ..relax.constants.growth import MAX_GROWTH
from ..relax.constants.provenance import constants_of
from ..relax.constants.size_check import check_size
from ..relax.transform.fold_constant import Unfolded
from ..relax.transform.fuse_quantized import QuantizedProduct
from ..runtime.arguments import INPUT, check_arrays
from ..runtime.compiled_model import CompiledModel
from ..runtime.report import Report
from ..source import Params, Shapes, open_source
from ..source.inputs import GivenInputs, fitting
from ..support import activity, ambient
from ..support.instruments import watched_by
from ..support.serial import in_turn
from ..support.switches import Applied
from ..tirx.transform.apply_gpu_schedule import ScheduledKernel
from .linking import export
from .options import check_machine, check_request
from .progress import Progress, Run
from .reference import Reference, compare_outputs, start_reference
from .steps import build_executable, declare_updates, import_model, lower, scratch_for
from .verification import Verification


@in_turn
def compile(
    source: Any,
    *,
    target: str | Mapping[str, object] | tvm.target.Target = "native",
    layout: str | None = None,
    shapes: Shapes | None = None,
    static: bool = False,
    inputs: GivenInputs | None = None,
    sizes: Mapping[str, int] | None = None,
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
    strip: bool = False,
    unsafe_indices: bool = False,
    trust: bool = False,
    params: Params | None = None,
    updated_inputs: Mapping[str, str] | None = None,
    dump_ir: str | os.PathLike[str] | None = None,
    explain: bool = False,
    time_passes: bool = False,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compile a model into a library and compare its outputs with the original's.

    Parameters
    ----------
    source : str, path or object
        An ``.onnx`` file, a ``.pt2`` file (``torch.export.save``), ``"package.module:factory"`` (a
        callable that returns an ``nn.Module`` in eval mode and a tuple of example inputs, and
        perhaps a dict of keyword arguments), such a module and inputs as a tuple, an
        ``onnx.ModelProto``, a ``torch.export.ExportedProgram``, or an ``IRModule``.  An
        ``IRModule`` has no reference to compare with.  Neither has a Relay program of TVM 0.6 to
        0.19: a ``.relay`` or ``.txt`` file of its text, a ``.json`` file of ``tvm.ir.save_json``,
        or a :class:`tvm_fixes.relay.IRModule`.
    target : str, mapping or tvm.target.Target
        ``"native"`` (this CPU with its features), ``"cuda/sm_90"`` (a GPU architecture),
        ``"cuda"`` (the GPU of this machine), a TVM target tag, or a target configuration as a
        mapping or JSON.
    layout : str, optional
        One of :data:`tvm_fixes.lowering.LAYOUTS`: convert convolutions of any rank to
        channels-first (``"NCHW"``), channels-last (``"NHWC"``) or blocked channels (``"NCHW8c"``).
        By default, each keeps its layout unless :func:`~tvm_fixes.transform.ChooseLayout` finds
        blocked channels faster.
    shapes : mapping of str to sequence of int and str, optional
        Shapes of inputs by name.  A name makes a dim of a PyTorch module symbolic, or names an
        existing symbolic dim; equal names mean equal sizes.  A size makes a symbolic dim of an ONNX
        model static; for PyTorch, it is the size used for the comparison.
    static : bool
        Make all dims static, with the sizes from `shapes` or PyTorch's example inputs.
    inputs : path or mapping of str to numpy.ndarray, optional
        The inputs of the comparison by name, or an ``.npz`` file of them; by default, random ones
        that the reference accepts.
    sizes : mapping of str to int, optional
        The sizes of symbolic dims for the comparison; the dims stay symbolic.
    output : path, optional
        A directory to save the artifact to, unless its outputs differ from the reference's.
    compare : bool
        Run the library and ONNX Runtime or PyTorch on the same random inputs.
    rtol, atol : float, optional
        Tolerances that replace those of :data:`tvm_fixes.observe.comparison.TOLERANCES`.
    seed : int
        The seed of the random inputs; not negative.
    verify : bool
        Verify the module after the import, and again after ``Legalize``.
    verify_each : bool
        Verify it after each pass too, so that an error names the faulty pass.
    runtime_checks : bool
        Let the model check at run time what cannot be proved at compile time.  A failed check
        raises an ``AssertionError`` that names the operator and the values.
    max_growth : float
        Limit constants that are computed at compile time to this multiple of the constants that
        they are computed from, in bytes.  Larger ones are computed when the model runs;
        ``report.unfolded`` lists them.
    max_size_ratio : float, optional
        Reject a model whose constants exceed this multiple of its parameters by more than 256 KiB.
        By default, there is no limit, and a warning above 1.2.
    weights : str
        Store the weights ``"inside"`` the library, ``"outside"`` it in ``weights.safetensors``, or
        ``"auto"`` (outside from 128 MiB).
    strip : bool
        Leave the debug information out of the library, which is a third of a small one.
    unsafe_indices : bool
        Trust computed indices.  Otherwise, one out of range raises an ``AssertionError``: see
        :func:`tvm_fixes.pipeline`.
    trust : bool
        Read a ``.pt2`` file even if it may run code.  Otherwise, such a file is rejected.  A
        factory always runs.
    params : mapping of str to numpy.ndarray, or path, optional
        Values of parameters of a Relay program, or a file of ``relay.save_param_dict``.  They
        become constants.
    updated_inputs : mapping of str to str, optional
        Inputs that a run may overwrite, such as a cache, and the output that is the new value of
        each: see :meth:`CompiledModel.run`.  Inputs that a PyTorch program itself writes to are
        always updated.
    dump_ir : path, optional
        A directory for the module after the import and after each pass that changes it, as
        TVMScript with constants elided, and for the differences: see
        :class:`tvm_fixes.observe.dump_ir.DumpIR`.
    explain : bool
        Explain in ``report.explanation`` what each fix did, and which optimizations were not made.
    time_passes : bool
        Measure each pass, also those of ``relax.build``: ``report.passes``.
    progress : callable, optional
        Called with a :class:`Step` when a step begins and when it ends.

    Returns
    -------
    model : CompiledModel
        The library, loaded from the file that :meth:`CompiledModel.save` writes.  Its ``report``
        has the results; ``report.equal`` tells whether all outputs are equal.

    Raises
    ------
    UsageError
        If an option is invalid or does not fit the model.
    CompileError
        If the model cannot be compiled or exceeds `max_size_ratio`; the message names the operator
        and the node at fault.
    UntrustedError
        If the file may run code and `trust` is not set.
    VerifyError
        If :func:`tvm_fixes.verify` finds an error; ``stage`` names the step.
    ArtifactError
        If the artifact cannot be written to `output`, for example because the disk is full.
    """
    run = Run(progress)
    verification = Verification(verify, verify_each)
    with ambient.collect() as facts, ExitStack() as ended:
        with run.step("load"):
            check_request(rtol, atol, seed, max_size_ratio, weights, max_growth)
            resolved = targets.resolve(target)
            layout = layout_named(layout)
            check_machine(resolved, compare, output)
            dump = None if dump_ir is None else DumpIR(dump_ir)
            opened = open_source(source, shapes, trust=trust, params=params)
            opened.set_sizes(sizes or {})
            if static:
                opened.make_static()
            scratch = scratch_for(opened, weights)
            outside: dict[tvm.runtime.Tensor, relax.Var] = {}
            lowering = stages(
                layout=layout,
                runtime_checks=runtime_checks,
                max_growth=max_growth,
                unsafe_indices=unsafe_indices,
                merge_constants=True,
                collected=None if scratch is None else outside,
            )
        with run.step("import"):
            mod, origins, warned = import_model(opened, static)
            mod = declare_updates(mod, opened, updated_inputs or {})
        if activity.is_heard():
            ended.enter_context(watched_by(activity.ReportPasses()))
        if dump is not None:
            ended.enter_context(dump.watching(mod))
        times = PassTimes()
        if time_passes:
            ended.enter_context(watched_by(times))
        if explain:
            ended.enter_context(watched_by(WatchFixes()))
        verification.check(mod, run, "verify")
        signature = opened.signature(mod["main"])
        reference, problem = None, ""
        if compare and opened.has_reference:
            with run.step("reference"):
                if inputs is None:
                    reference, problem = start_reference(opened, seed)
                    if reference is None:
                        # The reason may be a size that was chosen.
                        first = opened.example_inputs(np.random.default_rng(seed))
                        pairs = zip(signature.inputs, first, strict=True)
                        check_arrays(pairs, signature.bounds, INPUT, signature.sizes)
                else:
                    reference = Reference(opened, fitting(opened.chosen_inputs(), inputs))
                if reference is not None:
                    ended.enter_context(reference)
                    reference.outputs()
        with ambient.within(scratch=scratch, note_constant=origins.add):
            mod, transforms, called = lower(mod, lowering, resolved, run, verification, facts)
        with run.step("build"):
            inside = constants_of(mod)
            every = [*inside, *outside]
            origins.forget_others(every)
            nbytes, large = check_size(every, origins, opened.parameter_bytes, max_size_ratio)
            executable = build_executable(mod, resolved)
        with run.step("export"):
            model = export(
                executable,
                resolved,
                signature,
                origins.records(inside),
                origins.named(outside),
                called,
                strip=strip,
            )
        products = facts.of(QuantizedProduct)
        report = Report(
            source=opened.name,
            layout=layout,
            seconds={},
            artifact_bytes=model.manifest.nbytes,
            parameter_bytes=opened.parameter_bytes,
            activation_transforms=transforms,
            fixes=sorted(Applied(facts)),
            constant_bytes=nbytes,
            warnings=warned + large,
            unproved=verification.unproved,
            unfolded=list(map(str, facts.of(Unfolded))),
            integer_products=sum(product.obstacle is None for product in products),
            float_products=[str(product) for product in products if product.obstacle],
            fallbacks=[str(kernel) for kernel in facts.of(ScheduledKernel) if kernel.failures],
            explanation=explanation_of(facts) if explain else None,
            passes=times.found(),
            not_compared=problem,
        )
        if reference is not None:
            with run.step("compare"):
                again = seed if inputs is None else None
                report = compare_outputs(model, reference, report, rtol, atol, seed=again)
        model.report = replace(report, seconds=dict(run.seconds))
        if output is not None and report.equal is not False:
            with run.step("save"):
                model.save(output)
        return model
