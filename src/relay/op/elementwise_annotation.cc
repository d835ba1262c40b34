/*
 * Licensed to the Apache Software Foundation (ASF) under one or more contributor license
 * agreements.  See the NOTICE file distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
 * Version 2.0 (the "License"); you may not use this file except in compliance with the
 * License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software distributed under the
 * License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
 * either express or implied.  See the License for the specific language governing permissions
 * and limitations under the License.
 */
/*!
 * \file src/relay/op/elementwise_annotation.cc
 * \brief Operators that compute nothing, and those of later stages of TVM, which are rejected.
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The input may be of any type: a tuple or a function can be annotated. */
Type AnnotationRelation(InferContext& context) { return context.Input(0); }

OpDecl& DeclareAnnotation(const char* name) {
  return DeclareOp(name).Inputs({"data"}).Annotation().Relation(AnnotationRelation);
}

void DeclareAnnotations() {
  for (const char* name : {"annotation.bitpack_end", "annotation.bitpack_start",
                           "annotation.checkpoint", "annotation.stop_fusion"}) {
    DeclareAnnotation(name);
  }
  DeclareAnnotation("annotation.cast_hint")
      .Attrs("relay.attrs.CastHintAttrs", {RequiredAttr("dtype", AttrKind::kDType)});
  for (const char* name : {"annotation.compiler_begin", "annotation.compiler_end"}) {
    DeclareAnnotation(name).Attrs("relay.attrs.CompilerAttrs",
                                  {OptionalAttr("compiler", AttrKind::kString)});
  }
  DeclareAnnotation("annotation.with_funcid")
      .Attrs("relay.attrs.WithFuncIdAttrs", {IntAttr("fid", -1)});
  DeclareAnnotation("debug").Attrs("relay.attrs.DebugAttrs",
                                   {OptionalAttr("debug_func", AttrKind::kAny)});
  // Up to TVM 0.8 the devices are numbers: device_type and so on.
  DeclareAnnotation("device_copy")
      .Attrs("relay.attrs.DeviceCopyAttrs", {OptionalAttr("src_virtual_device", AttrKind::kAny),
                                             OptionalAttr("dst_virtual_device", AttrKind::kAny),
                                             OptionalAttr("src_dev_type", AttrKind::kInt),
                                             OptionalAttr("dst_dev_type", AttrKind::kInt)});
  DeclareAnnotation("on_device")
      .Attrs("relay.attrs.OnDeviceAttrs",
             {OptionalAttr("virtual_device", AttrKind::kAny), BoolAttr("constrain_result", false),
              BoolAttr("constrain_body", true), OptionalAttr("device_type", AttrKind::kInt),
              OptionalAttr("is_fixed", AttrKind::kBool)});
}

void DeclareRejected() {
  for (const char* name : {"memory.alloc_storage", "memory.alloc_tensor", "memory.invoke_tvm_op",
                           "memory.kill", "memory.shape_func", "vm.invoke_tvm_op",
                           "vm.reshape_tensor", "vm.shape_func", "vm.shape_of"}) {
    DeclareOp(name).Variadic().Rejected(
        "the program was lowered for the Relay VM; translate it before lowering");
  }
  DeclareOp("call_lowered")
      .Variadic()
      .Rejected("it calls a function that is lowered already; translate the program before that");
  DeclareOp("torch_op").Variadic().Rejected("it runs PyTorch code that is not in the program");
  DeclareOp("relay.op.annotation.simulated_quantize")
      .Variadic()
      .Rejected("quantization must be realized before the program is translated");
  for (const char* name : {"binary_elementwise", "conv2d", "depthwise_conv2d", "identity",
                           "pooling", "unary_elementwise"}) {
    DeclareOp(("contrib.ethosu." + std::string(name)).c_str())
        .Variadic()
        .Rejected("it exists only for Arm Ethos-U; translate the program before it is partitioned");
  }
}

[[maybe_unused]] const bool declared_annotations = (DeclareAnnotations(), DeclareRejected(), true);

}  // namespace
}  // namespace tvm_fixes::relay
