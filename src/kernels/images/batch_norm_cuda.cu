// Batch and group normalisation on a GPU. One thread block sums a channel: it sums kQuad adjacent elements in fp32 and adds
// these sums in fp64. The shape alone decides which groups of four elements and which images a thread sums. The threads'
// sums are then added as a tree. Mean and variance are computed in one pass, relative to the channel's first element.
#include <bit>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/images/batch_norm.h"
#include "kernels/packs_cuda.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels::cuda {
namespace {

constexpr int kQuad = 4, kThreads = 512;
using Block = BlockRows<kThreads>;

// The batch x[N, C, plane] as a thread block processes it: `lanes` adjacent threads (a power of two) share a plane.
struct Images {
  i64 images, channels, plane;
  int lanes;
  explicit Images(const Tensor& x) : Images(x.size(0), x.size(1), x.elems() / (x.size(0) * x.size(1))) {}
  Images(i64 images_, i64 channels_, i64 plane_) : images(images_), channels(channels_), plane(plane_) {
    lanes = static_cast<int>(std::bit_ceil(static_cast<u64>(std::min<i64>(kThreads, ceil_div(plane, kQuad)))));
  }
  double count() const { return static_cast<double>(images * plane); }

  // Calls f(index, left) for each group of four elements of channel c that this thread processes.
  // `index` is the index of the group's first element in x, and `left` is how many elements the
  // plane has from there on. Images first, first + step, ... are processed, several at a time.
  template <class F>
  __device__ void for_quads(i64 c, i64 first, i64 step, F f) const {
    const int thread = static_cast<int>(threadIdx.x), abreast = kThreads / lanes;
    for (i64 n = first * abreast + thread / lanes; n < images; n += step * abreast) {
      const i64 begin = (n * channels + c) * plane;
      for (i64 at = i64{thread % lanes} * kQuad; at < plane; at += i64{lanes} * kQuad) f(begin + at, plane - at);
    }
  }
};

template <class S>
struct Statistics {
  Images images;
  const S* x;
  Wide<S>*statistics, *mean, *variance;  // the sums to write; mean and variance may be null
  double eps, count;
  bool aligned;
};

template <class S>
__global__ void channel_statistics(Statistics<S> r) {
  using T = Wide<S>;
  for (i64 c = blockIdx.x; c < r.images.channels; c += gridDim.x) {
    const T origin = widen(r.x[c * r.images.plane]);
    double sum = 0, squares = 0;
    r.images.for_quads(c, 0, 1, [&](i64 at, i64 left) {
      const auto x = load_pack<kQuad>(r.x + at, left, r.aligned, origin);
      T some = 0, some_squares = 0;
      for (int i = 0; i < kQuad; ++i) some += x.at[i] - origin, some_squares += (x.at[i] - origin) * (x.at[i] - origin);
      sum += static_cast<double>(some), squares += static_cast<double>(some_squares);
    });
    sum = Block::fold(sum, Plus()), squares = Block::fold(squares, Plus());
    if (threadIdx.x != 0) continue;
    const double mean = static_cast<double>(origin) + sum / r.count,
                 variance = Larger()(0.0, squares / r.count - (sum / r.count) * (sum / r.count));
    r.statistics[2 * c] = static_cast<T>(mean);
    r.statistics[2 * c + 1] = static_cast<T>(1 / std::sqrt(variance + r.eps));
    if (r.mean) r.mean[c] = static_cast<T>(mean);
    if (r.variance) r.variance[c] = static_cast<T>(variance * r.count / (r.count - 1));
  }
}

template <class W>
__global__ void from_running(const W* mean, const W* variance, i64 channels, double eps, W* statistics) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 c = i64{blockIdx.x} * blockDim.x + threadIdx.x; c < channels; c += step) {
    statistics[2 * c] = mean[c];
    statistics[2 * c + 1] = static_cast<W>(1 / std::sqrt(static_cast<double>(variance[c]) + eps));
  }
}

template <class S>
struct Forward {
  Images images;
  const S *x, *gamma, *beta;
  const Wide<S>* statistics;
  S* y;
  // width: the number of channels that share statistics; gains: the number of gains, which repeat after that many channels
  i64 width, gains;
  bool aligned;
};

// Thread block (x, y) computes channels x, x + gridDim.x, and so on; y selects the block's share of the images.
template <class S>
__global__ void normalise(Forward<S> r) {
  using T = Wide<S>;
  for (i64 c = blockIdx.x; c < r.images.channels; c += gridDim.x) {
    const T* own = r.statistics + 2 * (c / r.width);
    const T mean = own[0], scale = own[1] * widen(r.gamma[c % r.gains]), shift = widen(r.beta[c % r.gains]);
    r.images.for_quads(c, blockIdx.y, gridDim.y, [&](i64 at, i64 left) {
      auto x = load_pack<kQuad>(r.x + at, left, r.aligned);
      for (int i = 0; i < kQuad; ++i) x.at[i] = (x.at[i] - mean) * scale + shift;
      store_pack(x, r.y + at, left, r.aligned);
    });
  }
}

template <class S>
struct Gradient {
  Images images;
  const S *x, *gamma, *dy;
  const Wide<S>* statistics;
  S* dx;
  Wide<S>*dgamma, *dbeta;  // the gradients of gamma and beta; a gradient that is null is not computed
  double count;
  bool of_batch, aligned;
};

// Computes the gradient of batch_norm() with the CPU's formula: dx = factor gamma (dy - mean(dy) - h mean(dy h)), where h = (x - mean)
// factor. Where the statistics do not depend on x, mean(dy) and mean(dy h) are left out.
template <class S>
__global__ void channel_gradient(Gradient<S> r) {
  using T = Wide<S>;
  for (i64 c = blockIdx.x; c < r.images.channels; c += gridDim.x) {
    const T mean = r.statistics[2 * c], factor = r.statistics[2 * c + 1];
    double sum = 0, sum_h = 0;
    r.images.for_quads(c, 0, 1, [&](i64 at, i64 left) {
      const auto x = load_pack<kQuad>(r.x + at, left, r.aligned, mean), dy = load_pack<kQuad>(r.dy + at, left, r.aligned);
      T some = 0, some_h = 0;
      for (int i = 0; i < kQuad; ++i) some += dy.at[i], some_h = std::fma(dy.at[i], (x.at[i] - mean) * factor, some_h);
      sum += static_cast<double>(some), sum_h += static_cast<double>(some_h);
    });
    sum = Block::fold(sum, Plus()), sum_h = Block::fold(sum_h, Plus());
    if (threadIdx.x == 0 && r.dgamma) r.dgamma[c] = static_cast<T>(sum_h);
    if (threadIdx.x == 0 && r.dbeta) r.dbeta[c] = static_cast<T>(sum);
    if (!r.dx) continue;
    const T scale = factor * widen(r.gamma[c]), shift = r.of_batch ? static_cast<T>(sum / r.count) : T(0),
            slope = r.of_batch ? factor * static_cast<T>(sum_h / r.count) : T(0);
    r.images.for_quads(c, 0, 1, [&](i64 at, i64 left) {
      const auto x = load_pack<kQuad>(r.x + at, left, r.aligned);
      auto dy = load_pack<kQuad>(r.dy + at, left, r.aligned);
      for (int i = 0; i < kQuad; ++i) dy.at[i] = (dy.at[i] - shift - (x.at[i] - mean) * slope) * scale;
      store_pack(dy, r.dx + at, left, r.aligned);
    });
  }
}

// One thread block computes the gradient of a group of `width` planes, with the CPU's formula:
// dx = factor (d - mean(d) - h mean(d h)), where h = (x - mean) factor and d = gamma dy.
template <class S>
__global__ void group_gradient(Gradient<S> r, i64 width, i64 gains) {
  using T = Wide<S>;
  for (i64 g = blockIdx.x; g < r.images.channels / width; g += gridDim.x) {
    const T mean = r.statistics[2 * g], factor = r.statistics[2 * g + 1];
    double all = 0, all_h = 0;
    for (i64 p = g * width; p < (g + 1) * width; ++p) {
      double sum = 0, sum_h = 0;
      r.images.for_quads(p, 0, 1, [&](i64 at, i64 left) {
        const auto x = load_pack<kQuad>(r.x + at, left, r.aligned, mean), dy = load_pack<kQuad>(r.dy + at, left, r.aligned);
        T some = 0, some_h = 0;
        for (int i = 0; i < kQuad; ++i) some += dy.at[i], some_h = std::fma(dy.at[i], (x.at[i] - mean) * factor, some_h);
        sum += static_cast<double>(some), sum_h += static_cast<double>(some_h);
      });
      sum = Block::fold(sum, Plus()), sum_h = Block::fold(sum_h, Plus());
      if (threadIdx.x == 0 && r.dgamma) r.dgamma[p] = static_cast<T>(sum_h);
      if (threadIdx.x == 0 && r.dbeta) r.dbeta[p] = static_cast<T>(sum);
      const double gain = static_cast<double>(widen(r.gamma[p % gains]));
      all += gain * sum, all_h += gain * sum_h;
    }
    if (!r.dx) continue;
    const T shift = static_cast<T>(all / r.count), slope = factor * static_cast<T>(all_h / r.count);
    for (i64 p = g * width; p < (g + 1) * width; ++p) {
      const T gain = widen(r.gamma[p % gains]);
      r.images.for_quads(p, 0, 1, [&](i64 at, i64 left) {
        const auto x = load_pack<kQuad>(r.x + at, left, r.aligned);
        auto dy = load_pack<kQuad>(r.dy + at, left, r.aligned);
        for (int i = 0; i < kQuad; ++i) dy.at[i] = (gain * dy.at[i] - shift - (x.at[i] - mean) * slope) * factor;
        store_pack(dy, r.dx + at, left, r.aligned);
      });
    }
  }
}

unsigned blocks_for_each(i64 channels) { return static_cast<unsigned>(std::min<i64>(channels, 1 << 16)); }
unsigned blocks_of(const Images& images) { return blocks_for_each(images.channels); }

// Describes x as one image that has all planes of x as its channels.
Images planes_of(const Tensor& x) { return {1, x.size(0) * x.size(1), x.elems() / (x.size(0) * x.size(1))}; }

void launch_normalise(const char* name, const Images& images, i64 width, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                      const Tensor& statistics, const Tensor& y) {
  for_dtype(name, x.dtype(), [&]<class S>(S) {
    Forward<S> r{images, x.data<S>(), gamma.data<S>(), beta.data<S>(), statistics.data<Wide<S>>(), y.data<S>(), width, x.size(1), false};
    r.aligned = rows_aligned<kQuad>(r.x, images.plane) && rows_aligned<kQuad>(r.y, images.plane);
    constexpr i64 kElemsOfBlock = 1 << 14, kMostShares = 1024;
    const i64 shares = std::clamp<i64>(images.images * images.plane / kElemsOfBlock, 1, std::min(images.images, kMostShares));
    launch(name, normalise<S>, dim3(blocks_of(images), static_cast<unsigned>(shares)), dim3(kThreads), r);
  });
}

template <class S>
Gradient<S> gradient_of(const Images& images, const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy,
                        const Tensor& dx, const Tensor& dgamma, const Tensor& dbeta) {
  using T = Wide<S>;
  Gradient<S> r{images,
                x.data<S>(),
                gamma.data<S>(),
                dy.data<S>(),
                statistics.data<T>(),
                data_or_null<S>(dx),
                data_or_null<T>(dgamma),
                data_or_null<T>(dbeta),
                images.count(),
                true,
                false};
  r.aligned = rows_aligned<kQuad>(r.x, images.plane) && rows_aligned<kQuad>(r.dy, images.plane) && rows_aligned<kQuad>(r.dx, images.plane);
  return r;
}

}  // namespace

void batch_statistics(const Tensor& x, double eps, const Tensor& statistics, const Tensor& mean, const Tensor& variance) {
  for_dtype("batch_norm", x.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    const Images images(x);
    const S* from = x.data<S>();
    const Statistics<S> r{images,
                          from,
                          statistics.data<T>(),
                          data_or_null<T>(mean),
                          data_or_null<T>(variance),
                          eps,
                          images.count(),
                          rows_aligned<kQuad>(from, images.plane)};
    launch("batch_norm", channel_statistics<S>, dim3(blocks_of(images)), dim3(kThreads), r);
  });
}

void running_statistics(const Tensor& running_mean, const Tensor& running_variance, double eps, const Tensor& statistics) {
  for_dtype("batch_norm", statistics.dtype(), [&]<class T>(T) {
    if constexpr (sizeof(T) > 2) {
      const i64 channels = running_mean.elems();
      launch("batch_norm", from_running<T>, blocks_for(channels), dim3(kBlockThreads), running_mean.data<T>(), running_variance.data<T>(),
             channels, eps, statistics.data<T>());
    }
  });
}

void batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y) {
  launch_normalise("batch_norm", Images(x), 1, x, gamma, beta, statistics, y);
}

void group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics, const Tensor& y) {
  const Images planes = planes_of(x);
  launch_normalise("group_norm", planes, planes.channels / statistics.size(0), x, gamma, beta, statistics, y);
}

void batch_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool of_batch, const Tensor& dx,
                         const Tensor& dgamma, const Tensor& dbeta) {
  for_dtype("batch_norm", x.dtype(), [&]<class S>(S) {
    Gradient<S> r = gradient_of<S>(Images(x), x, gamma, statistics, dy, dx, dgamma, dbeta);
    r.of_batch = of_batch;
    launch("batch_norm_gradient", channel_gradient<S>, dim3(blocks_of(r.images)), dim3(kThreads), r);
  });
}

void group_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, const Tensor& dx,
                         const Tensor& dgamma, const Tensor& dbeta) {
  const i64 groups = statistics.size(0);
  for_dtype("group_norm", x.dtype(), [&]<class S>(S) {
    Gradient<S> r = gradient_of<S>(planes_of(x), x, gamma, statistics, dy, dx, dgamma, dbeta);
    const i64 width = r.images.channels / groups;
    r.count *= static_cast<double>(width);
    launch("group_norm_gradient", group_gradient<S>, dim3(blocks_for_each(groups)), dim3(kThreads), r, width, x.size(1));
  });
}

}  // namespace spillway::kernels::cuda
