// How a GPU computes a product: cuBLASLt's kernel and the layouts, chosen by the library's heuristic once per process and kept. If it knows
// no kernel that includes the bias, one without bias is used, then one that needs no workspace, then our own. Nothing is chosen by
// measuring, so the choice, and with it the order of every sum, depends only on the key below, the GPU and the library's version. The key
// contains no address. A chosen kernel gives the same bits in every run on GPUs of one architecture with as many SMs, even on several
// streams at once, because the workspace is the caller's (cuBLAS library 13.0, "Results Reproducibility"). Included only by
// kernels/*_cuda.*. Thread-safe.
#pragma once
#include <compare>
#include <optional>

#include "kernels/matmul/blas_lt_cuda.h"
#include "tensor/dtype.h"

namespace spillway::kernels {

/// A matrix stored column by column, as BLAS sees it.
struct BlasMatrix {
  i64 rows, columns;
  i64 leading;      // elements from one column to the next
  bool transposed;  // BLAS uses the matrix transposed
  i64 alignment;    // bytes that divide its address: derived from the extents, less only if the address itself is aligned worse
  auto operator<=>(const BlasMatrix&) const = default;
};

/// An operation on the sums before they are stored (CUBLASLT_EPILOGUE_GELU_AUX, which is the tanh approximation, and _DGELU).
enum class Epilogue : u8 { none, gelu, gelu_gradient };

/// The product D (+)= op(A) op(B) (+ bias, of D's dtype, to every column). With an epilogue, a second matrix like D holds gelu's input.
struct MatmulKey {
  int gpu;
  DType in, out;
  BlasMatrix a, b, d;
  i64 bias_alignment;  // 0: no bias
  i64 workspace_bytes;
  bool tf32;  // TF32 may be used for f32 operands
  Epilogue epilogue = Epilogue::none;
  auto operator<=>(const MatmulKey&) const = default;
};

struct MatmulPlan {
  cublasLtHandle_t handle;
  BlasLtLayout a, b, d;
  std::optional<cublasLtMatmulAlgo_t> algo;  // empty: the library has no kernel for the product
  bool adds_bias = false;                    // the kernel adds the bias
  i64 workspace_bytes = 0;
};

/// Returns the plan, whose address stays valid. The key's GPU must be current. Throws Error(io) if neither the library nor our kernel
/// supports these dtypes. With an epilogue there is no alternative to the library's first choice: algo is empty if it has none.
const MatmulPlan& matmul_plan(const MatmulKey& key);
/// Returns whether our kernel supports these dtypes: operands of one dtype, and a result of the same or of f32.
inline bool plain_matmul_takes(DType in, DType out) { return in == out || (is_half(in) && out == DType::f32); }

/// Makes the operation's descriptor for one call. bias: null if there is none. gelu: the second matrix of an epilogue.
BlasLtDesc matmul_desc(const MatmulKey& key, const void* bias, const void* gelu);

}  // namespace spillway::kernels
