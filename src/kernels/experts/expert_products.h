// Matrix products over the rows of experts (expert_rows.h), each expert's rows with the weight of that expert. Only the device needs to
// know how many rows an expert has: it reads begins[E + 1], and expert e has the rows [begins[e], begins[e + 1]). Legend: M = rows of all
// experts together, O = outputs, I = inputs. On a CPU these are bitwise matmul()'s products. A GPU computes all experts with one kernel,
// which sums in f32 (f64 for f64) and rounds once: bf16 and f16 on tensor cores, 16 terms at a time; f32 and f64 term by term, without
// TF32. Both go over the terms in ascending order, so that an element depends bitwise only on its row or its expert's rows, on its column,
// and on the extents of the weights.
#pragma once
#include <span>
#include <vector>

#include "kernels/products/quantized.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// The weights [O, I] of all experts. A plain weight has the dtype of the rows; other formats are quantized_bytes() in words of that dtype.
/// `stored` is contiguous.
struct ExpertWeights {
  std::vector<Tensor> stored;  // one for each expert
  WeightFormat format = WeightFormat::plain;
  Shape shape;  // [O, I]
};

/// The two products of rows and weights: out[r] = a[r] w^T, with a[M, I] and out[M, O], or out[r] = a[r] w, with a[M, O] and out[M, I].
enum class ExpertProduct { with_transpose, with_weight };

/// The tiles that a GPU's thread block computes on tensor cores: kRows x kColumns elements of a result, kDepth terms at a time. The rows of
/// a product of rows and weights come in tiles of rows_of(M, E), which are smaller where tiles of 128 would be filled badly: on average,
/// half a tile of each expert that has rows is empty.
struct ExpertTile {
  static constexpr i64 kRows = 128, kColumns = 128, kDepth = 32;
  static constexpr i64 rows_of(i64 rows, i64 experts) { return rows >= 2 * kRows * experts ? kRows : kRows / 2; }
};

/// expert_rows_workspace_bytes() and expert_weight_workspace_bytes() return the bytes of workspace that a product needs, on the current
/// stream's device or on the GPU that a meta device imitates. The bytes are enough however the M rows are distributed over the experts.
i64 expert_rows_workspace_bytes(ExpertProduct product, i64 rows, const Shape& weight_OI, WeightFormat format, DType dtype);
i64 expert_weight_workspace_bytes(i64 rows, i64 m, i64 n, DType operands, DType out);

/// Multiplies each row of `a` with the weight of the row's expert. Values of quantized weights are rounded to the dtype of the rows before
/// they are multiplied, as dequantize() rounds them. Weights of experts without rows are not read. a and out are contiguous and of one
/// dtype: f32, f64, bf16 or f16.
void multiply_expert_rows(const Tensor& begins, ExpertProduct product, const Tensor& a, const ExpertWeights& weights, const Tensor& out,
                          const Tensor& workspace);

/// Computes out[e][O, I] = a^T b over the rows of a[M, O] and b[M, I] that belong to expert e, for each expert whose out[e] is defined. The
/// result is zero for an expert without rows. All tensors are contiguous. The results have the dtype of a and b, or are f32 for bf16 and
/// f16.
void multiply_over_expert_rows(const Tensor& begins, const Tensor& a, const Tensor& b, std::span<const Tensor> out,
                               const Tensor& workspace);

namespace cuda {
void multiply_expert_rows(const Tensor& begins, ExpertProduct product, const Tensor& a, const ExpertWeights& weights, const Tensor& out);
void multiply_over_expert_rows(const Tensor& begins, const Tensor& a, const Tensor& b, std::span<const Tensor> out);
}  // namespace cuda

}  // namespace spillway::kernels
