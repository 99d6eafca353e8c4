// Matrix products of views, f32, f64, bf16 and f16. C[m, n] (+)= A[m, k] B[k, n] (+ bias[n]); transposes are views (Tensor::transpose).
// Sums of both are f32 and rounded once, when C is narrow. The smaller operand is packed once by all threads, the other strip by strip by
// the task that needs it. An element's bits depend on its row of A, its column of B and K alone (gemm.h). A GPU multiplies with cuBLASLt,
// in fp32 (no TF32) or fp64, where an element's bits depend on all extents, strides and types too. Workspaces are functions of shape and
// types.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

enum class Store { replace, add };

/// Bytes matmul() wants for these extents and types where the stream in force is, or a GPU that it stands for.
i64 matmul_workspace_bytes(i64 m, i64 n, i64 k, DType operands, DType out);
inline i64 matmul_workspace_bytes(i64 m, i64 n, i64 k, DType dtype) { return matmul_workspace_bytes(m, n, k, dtype, dtype); }

/// Whether matmul takes b of another type than a where the stream in force is: bf16 beside f32 on a CPU, into f32, as if it were widened.
bool widens(DType a, DType b);

/// a[M, K], b[K, N]: any strides; on a GPU one of them 1. out[M, N]: rows may be strided, elements of a row not; overlaps neither; of the
/// operands' type, or f32 of bf16 and f16. b may be of a type that widens(). bias[N] contiguous, of the operands' type, or undefined. workspace: uint8, at least
/// matmul_workspace_bytes. Store::add adds to what out holds (not to bf16 or f16). Error(usage) on a GPU where cuBLASLt is not installed.
void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store = Store::replace);

/// out = addend + (a b + bias): all as matmul()'s, addend like out and apart from it, both contiguous and of the operands' type. A GPU
/// rounds once, where cuBLASLt does it in one kernel; a CPU rounds the product, then the sum, as add() after matmul().
void matmul_onto(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace);

/// kept = a b + bias and out = gelu_tanh(kept) (elementwise.h): all as matmul()'s, kept and out of the operands' type and contiguous. A GPU
/// may compute out from the sum before that is rounded, where cuBLASLt does both in one kernel.
void matmul_gelu(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept, const Tensor& out, const Tensor& workspace);
/// out = (a b) * gelu_tanh'(kept), likewise.
void matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& kept, const Tensor& out, const Tensor& workspace);

namespace cuda {
decltype(kernels::matmul) matmul;
/// False: the library has no such kernel, and nothing was done.
bool matmul_onto(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace);
bool matmul_gelu(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept, const Tensor& out, const Tensor& workspace);
bool matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& kept, const Tensor& out, const Tensor& workspace);
}  // namespace cuda

}  // namespace spillway::kernels
