// Matrix products over the rows of one expert (expert_rows.h). Only the device needs to know how many rows that expert has: the kernel
// reads begins[e] and begins[e + 1], between which the rows lie. Dtypes are those of matmul.h. On the CPU these are bitwise matmul()'s
// products. A GPU uses plain kernels of ours, which sum in ascending order in f32 (f64 for f64) and round once. Legend: M = rows of all
// experts together.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// expert_rows_workspace_bytes() and expert_weight_workspace_bytes() return the bytes of workspace that a product needs, on the current
/// stream's device or on the GPU that a meta device imitates. The bytes are enough however many of the M rows belong to the expert.
i64 expert_rows_workspace_bytes(i64 rows, i64 n, i64 k, DType dtype);
i64 expert_weight_workspace_bytes(i64 rows, i64 m, i64 n, DType operands, DType out);

/// Computes out[r] = a[r] b for those rows r of a[M, K] and out[M, N] that belong to the expert. Other rows of out stay unchanged. a
/// and out are contiguous and of one dtype. b[K, N] has any strides; its dtype is that of a, or one that widens() accepts beside it.
void multiply_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& workspace);

/// Computes out[O, I] = a^T b over those rows of a[M, O] and b[M, I] that belong to the expert; out is zero if the expert has none. a and b
/// are contiguous. out has their dtype, or may be f32 for bf16 and f16.
void multiply_over_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out,
                               const Tensor& workspace);

namespace cuda {
void multiply_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out);
void multiply_over_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out);
}  // namespace cuda

}  // namespace spillway::kernels
