// How a GPU computes a matrix product: with which of cuBLASLt's kernels, and with which layouts. cuBLASLt's heuristic chooses a kernel,
// once per process, and the choice is kept. If the heuristic knows no kernel that adds the bias, we ask for one without bias; if there is
// none, for one that also needs no workspace. The last resort is our own kernel. Nothing is chosen by measuring. So the choice, and with it
// the order of every sum, depends only on MatmulKey, the GPU and cuBLASLt's version. The key contains no address. A chosen kernel gives
// bitwise the same result in every run on GPUs of one architecture with equally many SMs. That holds even on several streams at once,
// because the workspace is the caller's (cuBLAS library 13.0, "Results Reproducibility"). Included only by kernels/*/*_cuda.*. Thread-safe.
#pragma once
#include <compare>
#include <optional>

#include "kernels/products/blas_lt_cuda.h"
#include "kernels/products/fp8.h"
#include "tensor/dtype.h"

namespace spillway::kernels {

/// Describes a matrix stored column by column, as BLAS sees it.
struct BlasMatrix {
  i64 rows, columns;
  i64 leading;      // the distance in elements from the beginning of one column to that of the next
  bool transposed;  // whether cuBLASLt multiplies with the transpose of the matrix
  i64 alignment;    // the alignment in bytes that the matrix's width and row stride imply, or that of the address if it is smaller
  auto operator<=>(const BlasMatrix&) const = default;
};

/// An operation on the sums before they are stored: CUBLASLT_EPILOGUE_GELU_AUX (gelu in its tanh approximation) or the corresponding DGELU
/// (its gradient).
enum class Epilogue : u8 { none, gelu, gelu_gradient };

/// The formats of the two operands of a product of codes.
struct Fp8Formats {
  Fp8 a, b;
  auto operator<=>(const Fp8Formats&) const = default;
};

/// A product D (+)= op(A) op(B) (+ bias), with a bias of D's dtype that is added to every column. If there is an epilogue, a second matrix
/// with D's shape and layout holds the input of gelu.
struct MatmulKey {
  int gpu;
  DType in, out;
  BlasMatrix a, b, d;
  i64 bias_alignment;  // the alignment of the bias in bytes; 0 if there is no bias
  i64 workspace_bytes;
  bool tf32;  // whether TF32 may be used for f32 operands
  Epilogue epilogue = Epilogue::none;
  std::optional<Fp8Formats> fp8 = {};  // the formats of op(A) and op(B) if they are codes of fp8; `in` is then the dtype of the bias
  auto operator<=>(const MatmulKey&) const = default;
};

struct MatmulPlan {
  cublasLtHandle_t handle;
  BlasLtLayout a, b, d;
  std::optional<cublasLtMatmulAlgo_t> algo;  // the algorithm; empty if cuBLASLt has no kernel for the product
  bool adds_bias = false;                    // whether the kernel adds the bias
  i64 workspace_bytes = 0;
};

/// Returns the plan for a product, at an address that stays valid. The key's GPU must be the current
/// one. Throws Error(io) if neither cuBLASLt nor our own kernel supports these dtypes, or if cuBLASLt
/// has no kernel for a product of fp8 with its bias. If there is an epilogue, only cuBLASLt's first
/// choice is tried; if the heuristic knows none, `algo` is empty.
const MatmulPlan& matmul_plan(const MatmulKey& key);
/// Returns whether our own kernel supports these dtypes: `in` is the dtype of both
/// operands, and `out` that of the result. `out` must be `in`, or f32 for bf16 and f16.
inline bool plain_matmul_takes(DType in, DType out) { return in == out || (is_half(in) && out == DType::f32); }

/// Makes cuBLASLt's descriptor of the product for one call. `bias` is null if there is none. `gelu` is the second matrix of an epilogue.
/// For fp8, the codes of A and B are multiplied by the numbers at `a_factor` and `b_factor`, which are in GPU memory.
BlasLtDesc matmul_desc(const MatmulKey& key, const void* bias, const void* gelu, const float* a_factor = nullptr,
                       const float* b_factor = nullptr);

}  // namespace spillway::kernels
