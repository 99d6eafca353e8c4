#include "kernels/rows/reduce.h"

#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

constexpr i64 kColumns = 64;      // most columns that a task sums side by side
constexpr i64 kChunk = 1 << 14;   // elements of a long row that one task sums
constexpr i64 kMaxChunks = 1024;  // most chunks of a long row; their sums are kept on the stack

// Sums the columns [begin, end) of one [n, inner] matrix.
template <class T, class Out>
void sum_columns(const T* from, i64 n, i64 inner, i64 begin, i64 end, double factor, Out* to) {
  double sums[kColumns] = {};
  const i64 columns = end - begin;
  for (i64 i = 0; i < n; ++i) {
    const T* row = from + i * inner + begin;
    for (i64 c = 0; c < columns; ++c) sums[c] += static_cast<double>(widen(row[c]));
  }
  for (i64 c = 0; c < columns; ++c) to[begin + c] = narrow<Out>(static_cast<Wide<Out>>(sums[c] * factor));
}

// Sums n elements with eight running sums, which are then added pairwise.
template <class T>
double sum_run(const T* from, i64 n) {
  double lanes[8] = {};
  i64 i = 0;
  for (; i + 8 <= n; i += 8) {
    for (i64 lane = 0; lane < 8; ++lane) lanes[lane] += static_cast<double>(widen(from[i + lane]));
  }
  for (; i < n; ++i) lanes[i % 8] += static_cast<double>(widen(from[i]));
  for (i64 half = 4; half > 0; half /= 2) {
    for (i64 lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class T>
double sum_long(const T* from, i64 n, double factor) {
  double partial[kMaxChunks];
  const i64 chunk = std::max(kChunk, round_up(ceil_div(n, kMaxChunks), 8)), chunks = ceil_div(n, chunk);
  Stream::current().run(chunks, [&](i64 i, int) { partial[i] = sum_run(from + i * chunk, std::min(chunk, n - i * chunk)); });
  double sum = 0;
  for (i64 i = 0; i < chunks; ++i) sum += partial[i];
  return sum * factor;
}

}  // namespace

void sum_axis(const Tensor& from, i64 outer, i64 n, i64 inner, double factor, const Tensor& to) {
  require(from.is_contiguous() && to.is_contiguous(), "[sum] expected a contiguous source and destination");
  require(from.elems() == outer * n * inner && to.elems() == outer * inner,
          "[sum] expected views of outer x n x inner and of outer x inner elements");
  if (to.device().is_meta() || to.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(to, sum_axis(from, outer, n, inner, factor, to));
  for_dtypes("sum", from.dtype(), to.dtype(), [&]<class T, class Out>(T, Out) {
    const T* x = from.data<T>();
    Out* y = to.data<Out>();
    const auto rounded = [](double sum) { return narrow<Out>(static_cast<Wide<Out>>(sum)); };
    const Stream& stream = Stream::current();
    if (inner == 1 && n > 2 * kChunk) {
      for (i64 o = 0; o < outer; ++o) y[o] = rounded(sum_long(x + o * n, n, factor));
    } else if (inner == 1) {
      stream.for_ranges(outer, std::max<i64>(1, kChunk / std::max<i64>(1, n)), [=](i64 begin, i64 end) {
        for (i64 o = begin; o < end; ++o) y[o] = rounded(sum_run(x + o * n, n) * factor);
      });
    } else {
      const i64 blocks = ceil_div(inner, kColumns);
      stream.run(outer * blocks, [=](i64 task, int) {
        const i64 o = task / blocks, begin = task % blocks * kColumns;
        sum_columns(x + o * n * inner, n, inner, begin, std::min(inner, begin + kColumns), factor, y + o * inner);
      });
    }
  });
}

}  // namespace spillway::kernels
