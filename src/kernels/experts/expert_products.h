// Matrix products of one expert's rows (expert_rows.h), which the device alone need know: begins[e] and begins[e + 1] are read where the
// work is done. Types as in matmul.h. On the CPU these are its products, with its bits; a GPU multiplies by plain kernels of ours, sums
// going up in f32 (f64 of f64) and rounded once. Legend: M = rows of all experts.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Bytes that the products want where the stream in force is, or a GPU that it stands for, however many of the M rows are the expert's.
i64 expert_rows_workspace_bytes(i64 rows, i64 n, i64 k, DType dtype);
i64 expert_weight_workspace_bytes(i64 rows, i64 m, i64 n, DType operands, DType out);

/// out[r] = a[r] b for the expert's rows r of a[M, K] and out[M, N], contiguous, of one type; b[K, N] of any strides, of that type or one that
/// widens(). Other rows stay.
void multiply_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& workspace);

/// out[O, I] = a^T b over the expert's rows of a[M, O] and b[M, I], contiguous; zero where it has none. Of the operands' type, or f32 of
/// bf16 and f16.
void multiply_over_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out,
                               const Tensor& workspace);

namespace cuda {
void multiply_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out);
void multiply_over_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out);
}  // namespace cuda

}  // namespace spillway::kernels
