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

/* Runs one kernel, which TVM has compiled for this processor, without TVM's runtime.
 *
 * Usage: kernel_runner FILE. The file holds the number of tensors, and for each its type code,
 * bits, rank, extents and elements; integers have 64 bits. The kernel gets all of them in turn, and
 * all are written back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

#define MAX_TENSORS 16
#define MAX_AXES 8
#define ALIGNMENT 64

typedef struct {
  void* sync_handle;
  int32_t num_task;
} ParallelEnv;

int __tvm_ffi_kernel(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  fprintf(stderr, "%s: ", kind);
  for (int32_t i = 0; i < count; ++i) {
    if (parts[i] != NULL) fprintf(stderr, "%s", parts[i]);
  }
  fprintf(stderr, "\n");
}

void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1);
}

int TVMBackendParallelLaunch(int (*task)(int, ParallelEnv*, void*), void* data, int num_task) {
  ParallelEnv env = {NULL, num_task > 0 ? num_task : 3};
  int failed = 0;
  for (int i = 0; i < env.num_task; ++i) failed |= task(i, &env, data);
  return failed;
}

void* TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t size, int code, int bits) {
  (void)device_type, (void)device_id, (void)code, (void)bits;
  return aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void* data) {
  (void)device_type, (void)device_id;
  free(data);
  return 0;
}

/* Kernels call these through pointers, which TVM's runtime sets when it loads a library. */
int (*__TVMBackendParallelLaunch)(int (*)(int, ParallelEnv*, void*), void*,
                                  int) = TVMBackendParallelLaunch;
void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = TVMBackendAllocWorkspace;
int (*__TVMBackendFreeWorkspace)(int, int, void*) = TVMBackendFreeWorkspace;

static int64_t read_int(FILE* file) {
  int64_t value;
  if (fread(&value, sizeof(value), 1, file) != 1) exit(2);
  return value;
}

int main(int count, char** arguments) {
  static DLTensor tensors[MAX_TENSORS];
  static int64_t shapes[MAX_TENSORS][MAX_AXES];
  static long starts[MAX_TENSORS];
  static size_t sizes[MAX_TENSORS];
  static TVMFFIAny args[MAX_TENSORS];
  FILE* file = count == 2 ? fopen(arguments[1], "r+b") : NULL;
  if (file == NULL) return 2;
  int32_t tensor_count = (int32_t)read_int(file);
  if (tensor_count > MAX_TENSORS) return 2;
  for (int32_t i = 0; i < tensor_count; ++i) {
    DLTensor* tensor = &tensors[i];
    tensor->device.device_type = kDLCPU;
    tensor->dtype.code = (uint8_t)read_int(file);
    tensor->dtype.bits = (uint8_t)read_int(file);
    tensor->dtype.lanes = 1;
    tensor->ndim = (int32_t)read_int(file);
    if (tensor->ndim > MAX_AXES) return 2;
    tensor->shape = shapes[i];
    sizes[i] = tensor->dtype.bits / 8;
    for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
      shapes[i][axis] = read_int(file);
      sizes[i] *= (size_t)shapes[i][axis];
    }
    tensor->data = TVMBackendAllocWorkspace(kDLCPU, 0, sizes[i] + 1, 0, 0);
    starts[i] = ftell(file);
    if (fread(tensor->data, 1, sizes[i], file) != sizes[i]) return 2;
    args[i].type_index = kTVMFFIDLTensorPtr;
    args[i].v_ptr = tensor;
  }
  TVMFFIAny result;
  memset(&result, 0, sizeof(result));
  if (__tvm_ffi_kernel(NULL, args, tensor_count, &result) != 0) return 1;
  for (int32_t i = 0; i < tensor_count; ++i) {
    if (fseek(file, starts[i], SEEK_SET) != 0) return 2;
    if (fwrite(tensors[i].data, 1, sizes[i], file) != sizes[i]) return 2;
  }
  return fclose(file) != 0;
}
