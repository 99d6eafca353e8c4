// Matrix products of views, f32 and f64. C[m, n] (+)= A[m, k] B[k, n] (+ bias[n]); transposes are views (Tensor::transpose). The smaller
// operand is packed once by all threads, the other strip by strip by the task that needs it. An element's bits depend on its row of A, its
// column of B and K alone (gemm.h). Workspaces are functions of the shape alone.
#pragma once
#include "kernels/gemm.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Bytes matmul() wants for these extents.
i64 matmul_workspace_bytes(i64 m, i64 n, i64 k, DType dtype);

/// a[M, K], b[K, N]: any strides. out[M, N]: rows may be strided, elements of a row not; overlaps neither. bias[N] contiguous, or
/// undefined. workspace: uint8, at least matmul_workspace_bytes. Store::add adds to what out holds.
void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace,
            gemm::Store store = gemm::Store::replace);

}  // namespace spillway::kernels
