// Cross entropy on a GPU. Each row is read twice. The first pass gives its statistics: the largest
// logit and the sum are updated online (Milakov and Gimelshein, arXiv:1805.02867). The second pass
// gives its gradient. A warp computes rows of up to kWarpColumns columns, a thread block wider rows.
#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/index_report_cuda.h"
#include "kernels/losses/cross_entropy.h"
#include "kernels/packs_cuda.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels::cuda {
namespace {

constexpr i64 kWarpColumns = 1024;
constexpr int kThreads = 512;  // many threads, because a vocabulary is wide and a piece of the logits may have few rows

// The running statistics of a row: the largest of the elements so far, and the sum of exp(x - largest) over them.
template <class T>
struct Running {
  T largest = -std::numeric_limits<T>::infinity(), sum = 0;

  template <int kCount>
  __device__ void add(const Pack<T, kCount>& x) {
    T top = x.at[0];
    for (int i = 1; i < kCount; ++i) top = Larger()(top, x.at[i]);
    if (largest < top) {
      sum *= std::exp(largest - top);
      largest = top;
    }
    // Elements that are -inf add nothing. They are excluded because -inf minus a `largest` of -inf would be NaN.
    for (int i = 0; i < kCount; ++i) sum += is_lowest(x.at[i]) ? T(0) : std::exp(x.at[i] - largest);
  }
  __device__ static bool is_lowest(T x) { return x == -std::numeric_limits<T>::infinity(); }
};

template <class Rows, class S>
__device__ Running<Wide<S>> row_statistics(const S* x, i64 columns, bool aligned) {
  using T = Wide<S>;
  constexpr i64 kCount = kPackOf<S>;
  Running<T> mine;
  for (i64 c = Rows::rank() * kCount; c < columns; c += Rows::kThreads * kCount) {
    mine.add(load_pack<kCount>(x + c, columns - c, aligned, -std::numeric_limits<T>::infinity()));
  }
  const T largest = Rows::fold(mine.largest, Larger());
  const T sum = mine.sum == 0 ? T(0) : mine.sum * std::exp(mine.largest - largest);
  return {largest, Rows::fold(sum, Plus())};
}

// A part of the logits: columns [first, first + columns) of rows that have `vocabulary` columns in all. Rows are `pitch` elements apart.
template <class S>
struct Part {
  const S* x;
  i64 rows, columns, pitch, first, vocabulary;
};

template <class S>
Part<S> part_of(const Tensor& logits, i64 first, i64 vocabulary) {
  return {logits.data<S>(), logits.size(0), logits.size(1), logits.stride(0), first, vocabulary};
}

template <class S>
struct Losses {
  Part<S> part;
  const i32* targets;
  Wide<S>*statistics, *losses;
  bool aligned;
  IndexReport report;
};

// Returns the sum of exponentials of r, rescaled from exp(x - r.largest) to exp(x - top).
template <class T>
__device__ T moved_to(T top, const Running<T>& r) {
  if (r.largest == top) return r.sum;
  return Running<T>::is_lowest(r.largest) ? T(0) : r.sum * std::exp(r.largest - top);
}

template <class Rows, class S>
__global__ void losses_of_rows(Losses<S> r) {
  using T = Wide<S>;
  const Part<S>& part = r.part;
  for (i64 row = Rows::first(); row < part.rows; row += Rows::step()) {
    const S* x = part.x + row * part.pitch;
    Running<T> all = row_statistics<Rows>(x, part.columns, r.aligned);
    if (Rows::rank() != 0) continue;
    if (part.first > 0) {
      const Running<T> before{r.statistics[2 * row], r.statistics[2 * row + 1]};
      const T top = Larger()(before.largest, all.largest);
      all = {top, moved_to(top, before) + moved_to(top, all)};
    }
    r.statistics[2 * row] = all.largest, r.statistics[2 * row + 1] = all.sum;
    const i64 target = r.targets[row], own = target - part.first;
    if (0 <= own && own < part.columns) r.losses[row] = widen(x[own]);
    if (part.first + part.columns < part.vocabulary) continue;
    if (target >= part.vocabulary) r.report(target, part.vocabulary);
    const T none = target < 0 ? T(0) : std::numeric_limits<T>::quiet_NaN();
    r.losses[row] = 0 <= target && target < part.vocabulary ? std::log(all.sum) - (r.losses[row] - all.largest) : none;
  }
}

template <class S, class Out>
struct Gradients {
  Part<S> part;
  const i32* targets;
  const Wide<S>* statistics;
  Wide<S> factor, slope;  // factor: the factor of the gradient; slope: 1 / cap, or 0 if there is no soft cap
  Out* dx;
  i64 width, stride;  // the number of columns of dx, and the distance between its rows in elements
  bool aligned;
};

// Writes the gradients of rows. dx may be narrower than x and overwrite it. Overwriting is safe because a step writes
// only to memory that it or an earlier step has read, and within a step all threads read before any thread writes.
template <class Rows, class S, class Out>
__global__ void gradients_of_rows(Gradients<S, Out> r) {
  using T = Wide<S>;
  constexpr int kCount = kPackOf<S>;
  constexpr i64 kStep = i64{Rows::kThreads} * kCount;
  const Part<S>& part = r.part;
  for (i64 row = Rows::first(); row < part.rows; row += Rows::step()) {
    const S* x = part.x + row * part.pitch;
    Out* dx = r.dx + row * r.stride;
    const i64 target = r.targets[row], in_part = target - part.first, own = in_part < part.columns ? in_part : -1;
    const T largest = r.statistics[2 * row];
    // A target beyond the vocabulary has a NaN loss, and so its gradient is NaN too.
    const T factor = target < part.vocabulary ? r.factor : std::numeric_limits<T>::quiet_NaN(), share = factor / r.statistics[2 * row + 1];
    for (i64 begin = 0; begin < r.width; begin += kStep) {
      const i64 c = begin + Rows::rank() * kCount;
      auto value = load_pack<kCount>(x + c, part.columns - c, r.aligned);
      for (int i = 0; i < kCount; ++i) {
        const T capped = value.at[i] * r.slope;
        value.at[i] = target < 0 || c + i >= part.columns ? T(0) : std::exp(value.at[i] - largest) * share;
        if (c + i == own) value.at[i] -= factor;
        if (r.slope != 0) value.at[i] *= std::fma(-capped, capped, T(1));
      }
      if constexpr (sizeof(Out) < sizeof(S)) Rows::wait();
      store_pack(value, dx + c, r.width - c, r.aligned);
    }
  }
}

template <class S, class Out>
void gradient(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics, double factor,
              const Tensor& dlogits, double cap) {
  using T = Wide<S>;
  constexpr int kCount = kPackOf<S>;
  Gradients<S, Out> r{part_of<S>(logits, first, vocabulary),
                      targets.data<i32>(),
                      statistics.data<T>(),
                      static_cast<T>(factor),
                      cap > 0 ? static_cast<T>(1 / cap) : T(0),
                      dlogits.data<Out>(),
                      dlogits.size(1),
                      dlogits.stride(0),
                      false};
  r.aligned = rows_aligned<kCount>(r.part.x, r.part.pitch) && rows_aligned<kCount>(r.dx, r.stride);
  for_rows<kThreads>(r.part.rows, r.width, kWarpColumns, [&]<class Rows>(Rows, dim3 blocks, dim3 threads) {
    launch("cross_entropy_gradient", gradients_of_rows<Rows, S, Out>, blocks, threads, r);
  });
}

// The threads of the only thread block, which adds in order. All of them load values; one thread adds the values up.
constexpr int kSummed = 1024;

template <class S>
__global__ void add_in_order(const S* x, i64 n, double factor, double* total) {
  __shared__ double some[kSummed];
  double sum = 0;
  for (i64 begin = 0; begin < n; begin += kSummed) {
    const int count = static_cast<int>(min(i64{kSummed}, n - begin));
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlockThreads) some[i] = static_cast<double>(widen(x[begin + i]));
    __syncthreads();
    for (int i = 0; threadIdx.x == 0 && i < count; ++i) sum += some[i];
    __syncthreads();
  }
  if (threadIdx.x == 0) *total = sum * factor;
}

}  // namespace

void cross_entropy_part(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                        const Tensor& loss) {
  if (logits.elems() == 0) return;
  for_dtype("cross_entropy", logits.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    Losses<S> r{part_of<S>(logits, first, vocabulary), targets.data<i32>(), statistics.data<T>(), loss.data<T>(), false,
                IndexReport("cross_entropy")};
    r.aligned = rows_aligned<kPackOf<S>>(r.part.x, r.part.pitch);
    for_rows<kThreads>(r.part.rows, r.part.columns, kWarpColumns, [&]<class Rows>(Rows, dim3 blocks, dim3 threads) {
      launch("cross_entropy", losses_of_rows<Rows, S>, blocks, threads, r);
    });
  });
}

void cross_entropy_part_gradient(const Tensor& logits, i64 first, i64 vocabulary, const Tensor& targets, const Tensor& statistics,
                                 double factor, const Tensor& dlogits, double cap) {
  if (logits.elems() == 0) return;
  if (logits.dtype() == DType::f32 && dlogits.dtype() == DType::bf16)
    return gradient<float, BFloat16>(logits, first, vocabulary, targets, statistics, factor, dlogits, cap);
  if (logits.dtype() == DType::f32 && dlogits.dtype() == DType::f16)
    return gradient<float, Float16>(logits, first, vocabulary, targets, statistics, factor, dlogits, cap);
  for_dtype("cross_entropy_gradient", logits.dtype(),
            [&]<class S>(S) { gradient<S, S>(logits, first, vocabulary, targets, statistics, factor, dlogits, cap); });
}

void sum_in_order(const Tensor& x, double factor, const Tensor& total) {
  for_dtype("sum_in_order", x.dtype(), [&]<class S>(S) {
    launch("sum_in_order", add_in_order<S>, dim3(1), dim3(kBlockThreads), x.data<S>(), x.elems(), factor, total.data<double>());
  });
}

}  // namespace spillway::kernels::cuda
