#include <algorithm>

#include "base/error.h"
#include "kernels/experts/expert_products.h"
#include "kernels/has_cuda.h"
#include "kernels/layout/layout.h"
#include "kernels/products/gemm.h"
#include "kernels/products/matmul.h"
#include "tensor/flop_count.h"

namespace spillway::kernels {
namespace {

void check_begins(const Tensor& begins, size_t experts) {
  require(experts > 0 && begins.rank() == 1 && begins.dtype() == DType::int32 && begins.is_contiguous() &&
              begins.elems() == static_cast<i64>(experts) + 1,
          "[expert_products] expected contiguous int32 begins [E + 1], and one weight or result for each of the E experts");
}

struct Range {
  i64 begin, end;
};
Range rows_of(const Tensor& begins, size_t expert, i64 rows) {
  const i32* begin = begins.data<i32>();
  const Range range{begin[expert], begin[expert + 1]};
  require(0 <= range.begin && range.begin <= range.end && range.end <= rows,
          "[expert_products] expected begins that ascend and lie in [0, M], where M is the number of rows");
  return range;
}

// Counts the FLOPs of a product over the rows `a`. This serves GPUs. On a CPU matmul() counts the FLOPs.
void count(const Tensor& a, i64 columns, double share = 1) {
  if (a.device() != Device::cpu()) count_flops(2.0 * share * static_cast<double>(a.elems()) * static_cast<double>(columns));
}

// Returns whether matmul() reads weights of this format where they are stored, as ops/products/weight.h has it for other products: plain
// weights, and bf16 where widens() allows it.
bool read_in_place(WeightFormat format, DType dtype) {
  return format == WeightFormat::plain || (format == WeightFormat::bf16 && widens(dtype, DType::bf16));
}

// Returns the bytes into which the weight of one expert is dequantized.
i64 values_bytes(WeightFormat format, const Shape& shape, DType dtype) {
  return read_in_place(format, dtype) ? 0 : round_up(shape.elems() * size_of(dtype), kAllocationAlignment);
}

// Returns the values of an expert's weight. Those that cannot be read where they are stored are dequantized into the beginning of
// `workspace`.
Tensor values_of(const Tensor& stored, WeightFormat format, const Shape& shape, const Tensor& workspace) {
  if (format == WeightFormat::plain) return stored;
  if (read_in_place(format, stored.dtype()))
    return stored.reinterpret(Shape{stored.bytes() / size_of(DType::bf16)}, DType::bf16).slice(0, 0, shape.elems()).reshape(shape);
  const Tensor values = workspace.slice(0, 0, shape.elems() * size_of(stored.dtype())).reinterpret(shape, stored.dtype());
  dequantize(format, stored, values);
  return values;
}

}  // namespace

// Returns the largest workspace over all numbers of rows that an expert may
// have, because with fewer rows the packed operand may be deeper and so larger.
i64 expert_rows_workspace_bytes(ExpertProduct product, i64 rows, const Shape& weight, WeightFormat format, DType dtype) {
  if (Stream::current().device.works_as_cuda()) return 0;
  const bool transposed = product == ExpertProduct::with_transpose;
  const i64 n = weight[transposed ? 0 : 1], k = weight[transposed ? 1 : 0];
  i64 most = matmul_workspace_bytes(rows, n, k, dtype);
  for (i64 m = gemm::kStrip; m < round_up(std::min(rows, n), gemm::kStrip); m += gemm::kStrip)
    most = std::max(most, matmul_workspace_bytes(m, n, k, dtype));
  return values_bytes(format, weight, dtype) + most;
}

i64 expert_weight_workspace_bytes(i64 rows, i64 m, i64 n, DType operands, DType out) {
  return Stream::current().device.works_as_cuda() ? 0 : matmul_workspace_bytes(m, n, rows, operands, out);
}

void multiply_expert_rows(const Tensor& begins, ExpertProduct product, const Tensor& a, const ExpertWeights& weights, const Tensor& out,
                          const Tensor& workspace) {
  check_begins(begins, weights.stored.size());
  const bool transposed = product == ExpertProduct::with_transpose;
  const i64 outputs = weights.shape[0], inputs = weights.shape[1];
  require(a.rank() == 2 && out.rank() == 2 && a.is_contiguous() && out.is_contiguous() && out.dtype() == a.dtype() &&
              out.size(0) == a.size(0) && a.size(1) == (transposed ? inputs : outputs) && out.size(1) == (transposed ? outputs : inputs),
          "[expert_products] expected weights [O, I] and contiguous rows of one dtype: [M, I] and [M, O]");
  const i64 bytes = weights.format == WeightFormat::plain ? weights.shape.elems() * size_of(a.dtype())
                                                          : quantized_bytes(weights.format, weights.shape.elems());
  for (const Tensor& one : weights.stored)
    require(one.is_contiguous() && one.dtype() == a.dtype() && one.bytes() == bytes,
            "[expert_products] expected contiguous weights in words of the dtype of the rows");
  count(a, out.size(1));
  if (out.device().is_meta() || out.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(out, multiply_expert_rows(begins, product, a, weights, out));
  const i64 first = values_bytes(weights.format, weights.shape, a.dtype());
  const Tensor scratch = workspace.defined() ? workspace.slice(0, first, workspace.elems()) : workspace;
  for (size_t e = 0; e < weights.stored.size(); ++e) {
    const auto [begin, end] = rows_of(begins, e, a.size(0));
    if (begin == end) continue;
    const Tensor w = values_of(weights.stored[e], weights.format, weights.shape, workspace);
    matmul(a.slice(0, begin, end), transposed ? w.transpose(0, 1) : w, {}, out.slice(0, begin, end), scratch);
  }
}

void multiply_over_expert_rows(const Tensor& begins, const Tensor& a, const Tensor& b, std::span<const Tensor> out,
                               const Tensor& workspace) {
  check_begins(begins, out.size());
  require(a.rank() == 2 && b.rank() == 2 && a.is_contiguous() && b.is_contiguous() && a.size(0) == b.size(0) && a.dtype() == b.dtype(),
          "[expert_products] expected contiguous rows a [M, O] and b [M, I] of one dtype");
  i64 wanted = 0;
  for (const Tensor& one : out) {
    require(!one.defined() || (one.shape() == Shape{a.size(1), b.size(1)} && one.is_contiguous()),
            "[expert_products] expected contiguous results [O, I]");
    wanted += one.defined();
  }
  count(a, b.size(1), static_cast<double>(wanted) / static_cast<double>(out.size()));
  if (a.device().is_meta() || wanted == 0) return;
  SPILLWAY_RETURN_IF_CUDA(a, multiply_over_expert_rows(begins, a, b, out));
  for (size_t e = 0; e < out.size(); ++e) {
    if (!out[e].defined()) continue;
    const auto [begin, end] = rows_of(begins, e, a.size(0));
    if (begin == end) {
      fill_zero(out[e]);
    } else {
      matmul(a.slice(0, begin, end).transpose(0, 1), b.slice(0, begin, end), {}, out[e], workspace);
    }
  }
}

}  // namespace spillway::kernels
