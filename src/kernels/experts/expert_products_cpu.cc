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

void check(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out) {
  require(begins.rank() == 1 && begins.dtype() == DType::int32 && begins.is_contiguous() && expert >= 0 && expert + 1 < begins.elems(),
          "[expert_products] expected contiguous int32 begins [E + 1] and the index of one of the E experts");
  require(a.rank() == 2 && b.rank() == 2 && out.rank() == 2 && a.is_contiguous() && out.is_contiguous() &&
              (a.dtype() == b.dtype() || widens(a.dtype(), b.dtype())),
          "[expert_products] expected matrices, a and the result contiguous, and b of a's dtype or one that widens to it");
}

struct Range {
  i64 begin, end;
};
Range rows_of(const Tensor& begins, i64 expert, i64 rows) {
  const i32* begin = begins.data<i32>();
  const Range range{begin[expert], begin[expert + 1]};
  require(0 <= range.begin && range.begin <= range.end && range.end <= rows,
          "[expert_products] expected begins that ascend and lie in [0, M], where M is the number of rows");
  return range;
}

// Counts the FLOPs of a product as if all experts had equally many rows. This serves GPUs,
// whose numbers of rows the host does not know. On a CPU matmul() counts the actual FLOPs.
void count_share(const Tensor& begins, const Tensor& a, i64 columns) {
  if (a.device() == Device::cpu()) return;
  count_flops(2.0 * static_cast<double>(a.elems()) * static_cast<double>(columns) / static_cast<double>(begins.elems() - 1));
}

}  // namespace

// Returns the largest workspace over all numbers of rows that the expert may
// have, because with fewer rows the packed operand may be deeper and so larger.
i64 expert_rows_workspace_bytes(i64 rows, i64 n, i64 k, DType dtype) {
  if (Stream::current().device.works_as_cuda()) return 0;
  i64 most = matmul_workspace_bytes(rows, n, k, dtype);
  for (i64 m = gemm::kStrip; m < round_up(std::min(rows, n), gemm::kStrip); m += gemm::kStrip)
    most = std::max(most, matmul_workspace_bytes(m, n, k, dtype));
  return most;
}

i64 expert_weight_workspace_bytes(i64 rows, i64 m, i64 n, DType operands, DType out) {
  return Stream::current().device.works_as_cuda() ? 0 : matmul_workspace_bytes(m, n, rows, operands, out);
}

void multiply_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& workspace) {
  check(begins, expert, a, b, out);
  require(a.size(1) == b.size(0) && out.size(0) == a.size(0) && out.size(1) == b.size(1) && out.dtype() == a.dtype(),
          "[expert_products] expected a [M, K], b [K, N] and a result [M, N] of a's dtype");
  count_share(begins, a, b.size(1));
  if (out.device().is_meta() || out.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(out, multiply_expert_rows(begins, expert, a, b, out));
  const auto [begin, end] = rows_of(begins, expert, a.size(0));
  if (begin < end) matmul(a.slice(0, begin, end), b, {}, out.slice(0, begin, end), workspace);
}

void multiply_over_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out,
                               const Tensor& workspace) {
  check(begins, expert, a, b, out);
  require(b.is_contiguous() && a.size(0) == b.size(0) && out.size(0) == a.size(1) && out.size(1) == b.size(1),
          "[expert_products] expected a [M, O], b [M, I] and a result of shape [O, I]");
  count_share(begins, a, b.size(1));
  if (out.device().is_meta() || out.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(out, multiply_over_expert_rows(begins, expert, a, b, out));
  const auto [begin, end] = rows_of(begins, expert, a.size(0));
  if (begin == end) return fill_zero(out);
  matmul(a.slice(0, begin, end).transpose(0, 1), b.slice(0, begin, end), {}, out, workspace);
}

}  // namespace spillway::kernels
