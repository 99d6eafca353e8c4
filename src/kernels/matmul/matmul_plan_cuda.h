// How cuBLASLt does a product: its kernel and the layouts, chosen by its heuristic once in a process and kept. Never by measuring, so that
// the choice, and with it the order of every sum, is a function of the key below, the GPU and the version of the library. What is chosen
// gives the same bits at every run on GPUs of one architecture with as many SMs, also on several streams at once, because the workspace is
// the caller's (cuBLAS library 13.0, "Results Reproducibility"). Included by kernels/*_cuda.* alone. Thread-safe.
#pragma once
#include <compare>

#include "kernels/matmul/blas_lt_cuda.h"
#include "tensor/dtype.h"

namespace spillway::kernels {

/// A matrix in memory, column by column, as BLAS sees it.
struct BlasMatrix {
  i64 rows, columns;
  i64 leading;      // elements from one column to the next
  bool transposed;  // to be used so
  i64 alignment;    // bytes of which its address is a multiple
  auto operator<=>(const BlasMatrix&) const = default;
};

/// D (+)= op(A) op(B) (+ bias, of D's type, to every column).
struct MatmulKey {
  int gpu;
  DType in, out;
  BlasMatrix a, b, d;
  i64 bias_alignment;  // 0: none
  i64 workspace_bytes;
  bool tf32;  // of f32 operands
  auto operator<=>(const MatmulKey&) const = default;
};

struct MatmulPlan {
  cublasLtHandle_t handle;
  BlasLtLayout a, b, d;
  cublasLtMatmulAlgo_t algo;
};

/// Stays where it is. Needs the GPU to be current. Error(io) where the library knows no way.
const MatmulPlan& matmul_plan(const MatmulKey& key);

/// The operation, made for one call. bias: null without.
BlasLtDesc matmul_desc(const MatmulKey& key, const void* bias);

}  // namespace spillway::kernels
