#include "kernels/images/conv_strips.h"

#include "device/allocator.h"
#include "kernels/products/matmul.h"

namespace spillway::kernels {
namespace {

// The bytes of a strip's gathered columns plus those of the other matrix of the strip's width. 32
// MiB fit well into the caches of a GPU with 50 MB of cache, and are enough work for the whole GPU.
constexpr i64 kStripBytes = 32 * kMiB;
constexpr i64 kLeastWidth = 256;  // the fewest columns of a strip, unless there are fewer in total
constexpr i64 kUnit = 64;         // strip widths are multiples of this number

// Returns the strip width that gives the fewest strips, all of nearly equal width.
i64 width_of(i64 j, i64 column_bytes) {
  const i64 most = std::max(kLeastWidth, kStripBytes / column_bytes / kUnit * kUnit);
  return round_up(ceil_div(j, ceil_div(j, most)), kUnit);
}

i64 last_width(const Strips& s) { return s.j - (ceil_div(s.j, s.width) - 1) * s.width; }

Strips cut(const Columns& c, i64 rows, DType dtype, DType matrix, DType beside) {
  Strips s{rows, c.k(), c.j()};
  s.width = width_of(s.j, s.k * size_of(dtype) + rows * size_of(beside));
  s.k_stride = round_up(s.k, 8);
  const auto after = [](i64 bytes) { return round_up(bytes, kAllocationAlignment); };
  s.columns_at = s.matrix_at + after(rows * s.k_stride * size_of(matrix));
  s.beside_at = s.columns_at + after(s.k * s.width * size_of(dtype));
  s.product_at = s.beside_at + after(rows * s.width * size_of(beside));
  return s;
}

}  // namespace

Strips product_strips(const Columns& columns, i64 rows, DType dtype) {
  Strips s = cut(columns, rows, dtype, dtype, wide_dtype(dtype));
  const auto product = [&](i64 width) { return s.k == 0 ? 0 : matmul_workspace_bytes(rows, width, s.k, dtype, wide_dtype(dtype)); };
  s.bytes = s.product_at + std::max(product(s.width), product(last_width(s)));
  return s;
}

Strips gradient_strips(const Columns& columns, i64 rows, DType dtype) {
  Strips s = cut(columns, rows, dtype, wide_dtype(dtype), dtype);
  const auto product = [&](i64 width) { return s.k == 0 ? 0 : matmul_workspace_bytes(rows, s.k, width, dtype, wide_dtype(dtype)); };
  s.bytes = s.product_at + std::max(product(s.width), product(last_width(s)));
  return s;
}

}  // namespace spillway::kernels
