#include "kernels/reduce.h"

#include <algorithm>
#include <array>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

constexpr i64 kColumns = 64;      // the most columns that a task sums side by side
constexpr i64 kChunk = 1 << 14;   // the number of elements of a long row that one task sums
constexpr i64 kMaxChunks = 1024;  // the most chunks of a long row; their sums are kept on the stack

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

using Strides = std::array<i64, Shape::kMaxRank>;

Strides padded(const Shape& shape, i64 with) {
  Strides all;
  all.fill(with);
  for (int i = 0; i < shape.rank(); ++i) all[static_cast<size_t>(Shape::kMaxRank - shape.rank() + i)] = shape[i];
  return all;
}

template <class T, class F>
void binary_row(const T* a, i64 a_stride, const T* b, i64 b_stride, T* out, i64 n, F f) {
  if (a_stride == 1 && b_stride == 1) {
    for (i64 i = 0; i < n; ++i) out[i] = narrow<T>(f(widen(a[i]), widen(b[i])));
  } else {
    for (i64 i = 0; i < n; ++i) out[i] = narrow<T>(f(widen(a[i * a_stride]), widen(b[i * b_stride])));
  }
}

template <class T, class F>
void binary_rows(const Tensor& a, const Tensor& b, const Tensor& out, F f) {
  const T *x = a.data<T>(), *y = b.data<T>();
  T* z = out.data<T>();
  const Stream& stream = Stream::current();
  if (a.shape() == out.shape() && b.shape() == out.shape()) {
    stream.for_ranges(out.elems(), kChunk, [=](i64 begin, i64 end) { binary_row(x + begin, 1, y + begin, 1, z + begin, end - begin, f); });
    return;
  }
  const Strides extent = padded(out.shape(), 1), step_a = padded(broadcast_strides(a.shape(), out.shape()), 0),
                step_b = padded(broadcast_strides(b.shape(), out.shape()), 0);
  const i64 columns = extent.back();
  stream.for_ranges(out.elems() / columns, std::max<i64>(1, kChunk / columns), [=](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      i64 rest = row, at_a = 0, at_b = 0;
      for (size_t axis = Shape::kMaxRank - 1; axis-- > 0;) {
        at_a += rest % extent[axis] * step_a[axis];
        at_b += rest % extent[axis] * step_b[axis];
        rest /= extent[axis];
      }
      binary_row(x + at_a, step_a.back(), y + at_b, step_b.back(), z + row * columns, columns, f);
    }
  });
}

}  // namespace

void sum_axis(const Tensor& from, i64 outer, i64 n, i64 inner, double factor, const Tensor& to) {
  require(from.is_contiguous() && to.is_contiguous(), "[sum] expected a contiguous source and destination");
  require(from.elems() == outer * n * inner && to.elems() == outer * inner,
          "[sum] expected views of outer x n x inner and of outer x inner elements");
  if (to.device().is_meta() || to.elems() == 0) return;
  if constexpr (kHasCuda) {
    if (to.device().is_cuda()) return cuda::sum_axis(from, outer, n, inner, factor, to);
  }
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

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape out = a.rank() >= b.rank() ? a : b;
  const int lower = std::min(a.rank(), b.rank());
  for (int i = 1; i <= lower; ++i) {
    if (a[-i] != b[-i] && a[-i] != 1 && b[-i] != 1) {
      throw Error(ErrorCode::bug, "[broadcast] the shapes " + to_string(a) + " and " + to_string(b) + " do not broadcast");
    }
    out.set(-i, a[-i] == 1 ? b[-i] : a[-i]);
  }
  return out;
}

Shape broadcast_strides(const Shape& shape, const Shape& wanted) {
  if (!(broadcast_shape(shape, wanted) == wanted)) {
    throw Error(ErrorCode::bug, "[broadcast] the shape " + to_string(shape) + " does not broadcast to " + to_string(wanted));
  }
  Shape strides = wanted;
  for (int i = 0; i < wanted.rank(); ++i) strides.set(i, 0);
  i64 step = 1;
  for (int i = 1; i <= shape.rank(); ++i) {
    if (shape[-i] != 1) strides.set(-i, step);
    step *= shape[-i];
  }
  return strides;
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) {
  require(a.is_contiguous() && b.is_contiguous() && out.is_contiguous(), "[binary] expected contiguous operands and a contiguous result");
  require(a.dtype() == out.dtype() && b.dtype() == out.dtype(), "[binary] expected operands and result of the same dtype");
  if (out.device().is_meta() || out.elems() == 0) return;
  if constexpr (kHasCuda) {
    if (out.device().is_cuda()) return cuda::binary(op, a, b, out);
  }
  for_dtype("binary", out.dtype(), [&]<class T>(T) {
    switch (op) {
      case Binary::add:
        return binary_rows<T>(a, b, out, [](Wide<T> x, Wide<T> y) { return x + y; });
      case Binary::sub:
        return binary_rows<T>(a, b, out, [](Wide<T> x, Wide<T> y) { return x - y; });
      case Binary::mul:
        return binary_rows<T>(a, b, out, [](Wide<T> x, Wide<T> y) { return x * y; });
      case Binary::div:
        return binary_rows<T>(a, b, out, [](Wide<T> x, Wide<T> y) { return x / y; });
    }
  });
}

void broadcast(const Tensor& x, const Tensor& out) {
  require(x.is_contiguous() && out.is_contiguous() && x.dtype() == out.dtype(),
          "[broadcast] expected a contiguous source and destination of the same dtype");
  if (out.device().is_meta() || out.elems() == 0) return;
  if constexpr (kHasCuda) {
    if (out.device().is_cuda()) return cuda::broadcast(x, out);
  }
  for_dtype("broadcast", out.dtype(), [&]<class T>(T) { binary_rows<T>(x, x, out, [](Wide<T> value, Wide<T>) { return value; }); });
}

}  // namespace spillway::kernels
