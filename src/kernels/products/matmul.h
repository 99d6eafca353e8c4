// Matrix products of views: C[m, n] (+)= A[m, k] B[k, n] (+ bias[n]) in f32, f64, bf16 and f16. A transpose is a view (Tensor::transpose).
// bf16 and f16 are summed in f32 and, if C is bf16 or f16, rounded once. On a CPU all threads together pack the smaller operand once, and
// each task packs the strips of the larger one that it needs. An element then depends bitwise on its row of A, its column of B and K alone
// (gemm.h). A GPU multiplies with cuBLASLt in fp32 (without TF32) or fp64. An element then also depends on m, n and all strides and dtypes.
// Workspace sizes are functions of shape and dtypes.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

enum class Store { replace, add };

/// Returns the bytes of workspace that matmul() needs for these extents and dtypes,
/// on the current stream's device or on the GPU that a meta device imitates.
i64 matmul_workspace_bytes(i64 m, i64 n, i64 k, DType operands, DType out);
inline i64 matmul_workspace_bytes(i64 m, i64 n, i64 k, DType dtype) { return matmul_workspace_bytes(m, n, k, dtype, dtype); }

/// Returns whether matmul() accepts operands of the two different dtypes a and b on the current stream's
/// device. Only a CPU does: f32 times bf16 with an f32 result. The sums are as if b had been widened before.
bool widens(DType a, DType b);

/// Computes out (+)= a b (+ bias). a[M, K] and b[K, N] have any strides, but on a GPU one of the two strides must be 1. b has
/// a's dtype, or another one if widens() returns true. out[M, N] has rows of contiguous elements with any row stride and
/// overlaps neither operand. out has the operands' dtype, or may be f32 for bf16 and f16. bias[N] is undefined, or contiguous
/// and of the operands' dtype. The workspace is uint8 and has at least matmul_workspace_bytes(). Store::add adds the product
/// to out's old values; it is not allowed if out is bf16 or f16. Throws Error(usage) on a GPU if cuBLASLt is not installed.
void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store = Store::replace);

/// Computes out = addend + (a b + bias), with the requirements of matmul(). addend has out's shape and shares no memory with out. addend
/// and out are contiguous and of the operands' dtype. A GPU rounds once if cuBLASLt has one kernel for the whole formula. A CPU rounds the
/// product and then the sum, as matmul() followed by add() does.
void matmul_onto(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace);

/// Computes kept = a b + bias and out = gelu_tanh(kept) (elementwise.h), with the requirements of matmul(). kept and out are contiguous
/// and of the operands' dtype. If cuBLASLt has one kernel for both formulas, a GPU computes out from the sum before rounding it.
void matmul_gelu(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept, const Tensor& out, const Tensor& workspace);
/// Computes out = (a b) * gelu_tanh'(kept), with the requirements of matmul_gelu().
void matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& kept, const Tensor& out, const Tensor& workspace);

namespace cuda {
decltype(kernels::matmul) matmul;
/// cuda::matmul_onto(), matmul_gelu() and matmul_gelu_gradient() return false and do nothing if cuBLASLt has no kernel that computes the
/// whole formula at once.
bool matmul_onto(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace);
bool matmul_gelu(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept, const Tensor& out, const Tensor& workspace);
bool matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& kept, const Tensor& out, const Tensor& workspace);
}  // namespace cuda

}  // namespace spillway::kernels
