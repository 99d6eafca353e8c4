// A row is read once for its statistics (the largest and the sum kept while going; Milakov and Gimelshein, arXiv:1805.02867) and once for
// its gradient. Rows of up to kWarpColumns columns are a warp's, wider ones a block's.
#include <cmath>
#include <limits>

#include "kernels/cross_entropy.h"
#include "kernels/dispatch.h"
#include "kernels/packs_cuda.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels::cuda {
namespace {

constexpr i64 kWarpColumns = 1024;
constexpr int kThreads = 512;  // a vocabulary is wide, and a chunk of the head has few rows

// The largest so far, and the sum of exp(x - largest).
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
    // What is -inf adds nothing, even to a row that has begun with nothing else.
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

template <class S>
struct Losses {
  const S* x;
  const i32* targets;
  Wide<S>*statistics, *losses;
  i64 rows, columns;
  bool aligned;
};

template <class Rows, class S>
__global__ void losses_of_rows(Losses<S> r) {
  using T = Wide<S>;
  for (i64 row = Rows::first(); row < r.rows; row += Rows::step()) {
    const S* x = r.x + row * r.columns;
    const Running<T> all = row_statistics<Rows>(x, r.columns, r.aligned);
    if (Rows::rank() != 0) continue;
    r.statistics[2 * row] = all.largest, r.statistics[2 * row + 1] = all.sum;
    const i32 target = r.targets[row];
    const T none = target < 0 ? T(0) : std::numeric_limits<T>::quiet_NaN();
    r.losses[row] = 0 <= target && target < r.columns ? std::log(all.sum) - (widen(x[target]) - all.largest) : none;
  }
}

template <class S, class Out>
struct Gradients {
  const S* x;
  const i32* targets;
  const Wide<S>* statistics;
  Wide<S> factor;
  Out* dx;
  i64 rows, columns, stride;  // of dx
  bool aligned;
};

// Where dx is narrower and in the place of x, what a step writes lies where it or an earlier step has read: all read before one writes.
template <class Rows, class S, class Out>
__global__ void gradients_of_rows(Gradients<S, Out> r) {
  using T = Wide<S>;
  constexpr int kCount = kPackOf<S>;
  constexpr i64 kStep = i64{Rows::kThreads} * kCount;
  for (i64 row = Rows::first(); row < r.rows; row += Rows::step()) {
    const S* x = r.x + row * r.columns;
    Out* dx = r.dx + row * r.stride;
    const i64 target = r.targets[row];
    const T largest = r.statistics[2 * row];
    // No target of this vocabulary: a loss that is none has a gradient that is none.
    const T factor = target < r.columns ? r.factor : std::numeric_limits<T>::quiet_NaN(), share = factor / r.statistics[2 * row + 1];
    for (i64 begin = 0; begin < r.columns; begin += kStep) {
      const i64 c = begin + Rows::rank() * kCount, left = r.columns - c;
      auto value = load_pack<kCount>(x + c, left, r.aligned);
      for (int i = 0; i < kCount; ++i) {
        value.at[i] = target < 0 ? T(0) : std::exp(value.at[i] - largest) * share;
        if (c + i == target) value.at[i] -= factor;
      }
      if constexpr (sizeof(Out) < sizeof(S)) Rows::wait();
      store_pack(value, dx + c, left, r.aligned);
    }
  }
}

template <class S, class Out>
void gradient(const Tensor& logits, const Tensor& targets, const Tensor& statistics, double factor, const Tensor& dlogits) {
  using T = Wide<S>;
  constexpr int kCount = kPackOf<S>;
  Gradients<S, Out> r{logits.data<S>(),       targets.data<i32>(), statistics.data<T>(),
                      static_cast<T>(factor), dlogits.data<Out>(), logits.size(0),
                      logits.size(1),         dlogits.stride(0),   false};
  r.aligned = rows_aligned<kCount>(r.x, r.columns) && rows_aligned<kCount>(r.dx, r.stride);
  for_rows<kThreads>(r.rows, r.columns, kWarpColumns, [&]<class Rows>(Rows, dim3 blocks, dim3 threads) {
    launch("cross_entropy_gradient", gradients_of_rows<Rows, S, Out>, blocks, threads, r);
  });
}

// One block; the values come by all threads, and one adds them up.
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

void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& statistics, const Tensor& loss) {
  if (logits.elems() == 0) return;
  for_dtype("cross_entropy", logits.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    Losses<S> r{logits.data<S>(), targets.data<i32>(), statistics.data<T>(), loss.data<T>(), logits.size(0), logits.size(1), false};
    r.aligned = rows_aligned<kPackOf<S>>(r.x, r.columns);
    for_rows<kThreads>(r.rows, r.columns, kWarpColumns, [&]<class Rows>(Rows, dim3 blocks, dim3 threads) {
      launch("cross_entropy", losses_of_rows<Rows, S>, blocks, threads, r);
    });
  });
}

void cross_entropy_gradient(const Tensor& logits, const Tensor& targets, const Tensor& statistics, double factor, const Tensor& dlogits) {
  if (logits.elems() == 0) return;
  if (logits.dtype() == DType::f32 && dlogits.dtype() == DType::bf16) {
    return gradient<float, BFloat16>(logits, targets, statistics, factor, dlogits);
  }
  if (logits.dtype() == DType::f32 && dlogits.dtype() == DType::f16) {
    return gradient<float, Float16>(logits, targets, statistics, factor, dlogits);
  }
  for_dtype("cross_entropy_gradient", logits.dtype(), [&]<class S>(S) { gradient<S, S>(logits, targets, statistics, factor, dlogits); });
}

void sum_in_order(const Tensor& x, double factor, const Tensor& total) {
  for_dtype("sum_in_order", x.dtype(), [&]<class S>(S) {
    launch("sum_in_order", add_in_order<S>, dim3(1), dim3(kBlockThreads), x.data<S>(), x.elems(), factor, total.data<double>());
  });
}

}  // namespace spillway::kernels::cuda
