// Matrix products of views: f32, f64, bf16 and f16. C[m, n] (+)= A[m, k] B[k, n] (+ bias[n]); a transpose is a view (Tensor::transpose).
// Narrow operands are summed in f32 and rounded once, if C is narrow. On a CPU all threads pack the smaller operand once, and each task
// packs the strips of the other that it needs; an element's bits depend on its row of A, its column of B and K alone (gemm.h). A GPU
// multiplies with cuBLASLt in fp32 (no TF32) or fp64; there an element's bits also depend on all extents, strides and dtypes. Workspace
// sizes are functions of shape and dtypes.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

enum class Store { replace, add };

/// Returns the bytes that matmul() needs for these extents and dtypes on the current stream's device, or on the GPU that it stands for.
i64 matmul_workspace_bytes(i64 m, i64 n, i64 k, DType operands, DType out);
inline i64 matmul_workspace_bytes(i64 m, i64 n, i64 k, DType dtype) { return matmul_workspace_bytes(m, n, k, dtype, dtype); }

/// Returns whether matmul() accepts a b of another dtype than a on the current stream's device. A CPU accepts bf16 beside f32 with an f32
/// result, as if it had been widened.
bool widens(DType a, DType b);

/// Computes out (+)= a b (+ bias). a[M, K] and b[K, N] have any strides, of which a GPU requires one to be 1; b may have a dtype that
/// widens(). out[M, N] may have strided rows of contiguous elements and overlaps neither operand. It has the operands' dtype, or may be f32
/// for bf16 and f16. bias[N] is undefined, or contiguous and of the operands' dtype. The workspace is uint8, at least
/// matmul_workspace_bytes(). Store::add adds to out's old values (not for bf16 or f16). Throws Error(usage) on a GPU if cuBLASLt is not
/// installed.
void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store = Store::replace);

/// Computes out = addend + (a b + bias), under matmul()'s conditions. addend has out's shape and shares no memory with it; both are
/// contiguous and of the operands' dtype. A GPU rounds once if cuBLASLt does it in one kernel; a CPU rounds the product, then the sum, like
/// add() after matmul().
void matmul_onto(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace);

/// Computes kept = a b + bias and out = gelu_tanh(kept) (elementwise.h), under matmul()'s conditions; kept and out are contiguous and of
/// the operands' dtype. A GPU may compute out from the sum before it is rounded, if cuBLASLt does both in one kernel.
void matmul_gelu(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept, const Tensor& out, const Tensor& workspace);
/// Computes out = (a b) * gelu_tanh'(kept) under the same conditions.
void matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& kept, const Tensor& out, const Tensor& workspace);

namespace cuda {
decltype(kernels::matmul) matmul;
/// The next three return false if the library has no such kernel; nothing was done then.
bool matmul_onto(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace);
bool matmul_gelu(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept, const Tensor& out, const Tensor& workspace);
bool matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& kept, const Tensor& out, const Tensor& workspace);
}  // namespace cuda

}  // namespace spillway::kernels
