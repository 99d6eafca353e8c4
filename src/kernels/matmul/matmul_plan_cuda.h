// How a GPU does a product: cuBLASLt's kernel and the layouts, chosen by its heuristic once in a process and kept; where it knows none with
// the bias in it, one without, then one that wants no workspace, then ours. Never by measuring, so that the choice, and with it the order
// of every sum, is a function of the key below, the GPU and the version of the library. The key holds no address. What is chosen gives the
// same bits at every run on GPUs of one architecture with as many SMs, also on several streams at once, because the workspace is the
// caller's (cuBLAS library 13.0, "Results Reproducibility"). Included by kernels/*_cuda.* alone. Thread-safe.
#pragma once
#include <compare>
#include <optional>

#include "kernels/matmul/blas_lt_cuda.h"
#include "tensor/dtype.h"

namespace spillway::kernels {

/// A matrix in memory, column by column, as BLAS sees it.
struct BlasMatrix {
  i64 rows, columns;
  i64 leading;      // elements from one column to the next
  bool transposed;  // to be used so
  i64 alignment;    // bytes of which its address is a multiple, by its extents alone wherever the address meets that
  auto operator<=>(const BlasMatrix&) const = default;
};

/// What is done with the sums before they are stored (CUBLASLT_EPILOGUE_GELU_AUX, which is the approximation by tanh, and _DGELU).
enum class Epilogue : u8 { none, gelu, gelu_gradient };

/// D (+)= op(A) op(B) (+ bias, of D's type, to every column). With an epilogue a second matrix like D holds what gelu is taken of.
struct MatmulKey {
  int gpu;
  DType in, out;
  BlasMatrix a, b, d;
  i64 bias_alignment;  // 0: none
  i64 workspace_bytes;
  bool tf32;  // of f32 operands
  Epilogue epilogue = Epilogue::none;
  auto operator<=>(const MatmulKey&) const = default;
};

struct MatmulPlan {
  cublasLtHandle_t handle;
  BlasLtLayout a, b, d;
  std::optional<cublasLtMatmulAlgo_t> algo;  // none: the library knows no way
  bool adds_bias = false;                    // as part of the product
  i64 workspace_bytes = 0;
};

/// Stays where it is. Needs the GPU to be current. Error(io) where neither the library nor our kernel takes such types. With an epilogue
/// there is no other way than the library's first: algo is none where it knows none.
const MatmulPlan& matmul_plan(const MatmulKey& key);
/// Ours takes operands of one type, and a result of theirs or f32.
inline bool plain_matmul_takes(DType in, DType out) { return in == out || (is_half(in) && out == DType::f32); }

/// The operation, made for one call. bias: null without. gelu: the second matrix of an epilogue.
BlasLtDesc matmul_desc(const MatmulKey& key, const void* bias, const void* gelu);

}  // namespace spillway::kernels
