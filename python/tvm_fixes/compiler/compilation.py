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

from contextlib import ExitStack
from typing import Any

from ..runtime.compiled_model import CompiledModel
from ..support.serial import in_turn
from . import steps
from .options import Options, takes


@in_turn
@takes(Options)
def compile(source: Any, options: Options) -> CompiledModel:
    """Compile a model into a library and compare its outputs with the original's.

    Parameters
    ----------
    source : str, path or object
        An ``.onnx`` file, a ``.pt2`` file (``torch.export.save``), a factory as
        ``"package.module:name"`` or ``"FILE.py:name"`` (a callable that returns one of the next
        two), a tuple of an ``nn.Module`` in eval mode and its example inputs, perhaps with
        ``dynamic_shapes``, an ``onnx.ModelProto``, a ``torch.export.ExportedProgram``, or an
        ``IRModule``.  An ``IRModule`` has no reference to compare with.  Neither has a Relay
        program of TVM 0.6 to 0.19: a ``.relay`` or ``.txt`` file of its text, a ``.json`` file of
        ``tvm.ir.save_json``, or a :class:`tvm_fixes.relay.IRModule`.
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
    magnitude : float, optional
        The factor by which the floats of random inputs of the comparison are multiplied.  By
        default, a model with 16-bit floats is compared with several.
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
    passes : iterable of str, or of tuple of object and str
        Passes of your own, and their places in the pipeline:
        ``"package.module:MyPass@after=Legalize"``, ``"my_pass.py:MyPass@before=FuseOps"``, or
        ``(MyPass, "after=Legalize")``.  What is named is a pass, or a class or function without
        arguments that makes one.  ``tvm-fixes opt --print-pipeline`` lists the places; of several
        passes of one name, ``before`` means the first and ``after`` the last.  Without a place, a
        pass runs first.
    dump_ir : path, optional
        A directory for the module after the import and after each pass that changes it, as
        TVMScript with constants elided, and for the differences: see
        :class:`tvm_fixes.observe.dump_ir.DumpIR`.
    explain : bool
        Explain in ``report.explanation`` what each fix did, and which optimizations were not made.
    time_passes : bool
        Measure each pass, also those of ``relax.build``: ``report.passes``.
    cache : bool
        Take the library from the cache of compiled models if it is there, and store it otherwise:
        see ``docs/cache.md``.  The comparison with the reference is made in either case.  Nothing
        is cached for a GPU, or with `passes`, `verify_each`, `dump_ir`, `explain` or `time_passes`.
    progress : callable, optional
        Called with a :class:`Step` when a step begins and when it ends.

    Returns
    -------
    model : CompiledModel
        The library, loaded from the file that :meth:`CompiledModel.save` writes.  Its ``report``
        has the results; ``report.accepted`` tells whether all outputs are
        equal, or differ only because the reference is off.

    Raises
    ------
    UsageError
        If an option is invalid or does not fit the model.
    CompileError
        If the model cannot be compiled or exceeds `max_size_ratio`; the message names the operator
        and the node at fault.
    PassError
        If a pass of `passes` raises; the message names it and the line of its code.
    UntrustedError
        If the file may run code and `trust` is not set.
    VerifyError
        If :func:`tvm_fixes.verify` finds an error; ``stage`` names the step.
    ArtifactError
        If the artifact cannot be written to `output`, for example because the disk is full.
    """
    with ExitStack() as ended:
        compilation = steps.load(source, options, ended)
        if not compilation.is_found:
            steps.import_model(compilation)
            steps.watch(compilation)
            steps.verify(compilation)
            steps.look_up(compilation)
            steps.run_reference(compilation)
        if not compilation.is_found:
            steps.lower(compilation)
            steps.build(compilation)
            steps.export(compilation)
            steps.keep(compilation)
        steps.compare(compilation)
        steps.save(compilation)
        return compilation.model
