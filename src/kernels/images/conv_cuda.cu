// Convolution on a GPU. As on the CPU it is a product of gathered columns; cuBLASLt multiplies them (conv_strips.h). We do not use
// cudnnConvolution*, for three reasons. It requires dw in x's dtype, so sums over bf16 images would be rounded to bf16. The memory that one
// of its algorithms needs is known only where the GPU is, but memory plans are made before. And tests without a GPU could not check which
// algorithm suits a shape, while everything here except cuBLASLt itself runs in such tests.
#include "kernels/dispatch.h"
#include "kernels/images/conv.h"
#include "kernels/images/conv_columns_cuda.h"
#include "kernels/packs_cuda.h"
#include "kernels/products/matmul.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// Gathers the weights of one group into to[row, k].
template <class T>
__global__ void gather_weights(Columns c, Weights<T> weights, i64 rows, T* to, i64 to_stride) {
  const i64 step = i64{gridDim.x} * blockDim.x, taps = c.taps(), all = c.k();
  for (i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * all; i += step) {
    const i64 row = i / all, k = i % all, tap = k % taps;
    const i64 h = c.h.tap[static_cast<size_t>(tap / c.w.count)], w = c.w.tap[static_cast<size_t>(tap % c.w.count)];
    to[row * to_stride + k] = weights.data[row * weights.row_stride + k / taps * weights.channel_stride + h * weights.kernel.w + w];
  }
}

// Rounds sums and stores them into the images, for the columns from `begin` on.
// If `sums` is null the sums are zeros. The bias is added unless it is null.
template <class T>
__global__ void store_columns(Shares columns, Place place, const Wide<T>* sums, i64 sums_stride, const T* bias, i64 rows, i64 begin,
                              T* out) {
  columns.for_each([&](i64 at, i64 share) {
    const i64 image = (begin + at) / place.positions, i = (begin + at) % place.positions;
    T* to = out + image * place.image_stride + place.first + i / place.columns * place.row_step + i % place.columns * place.column_step;
    for (i64 r = share; r < rows; r += columns.shares) {
      const Wide<T> sum = sums ? sums[r * sums_stride + at] : Wide<T>(0);
      to[r * place.plane] = narrow<T>(bias ? sum + widen(bias[r]) : sum);
    }
  });
}

// Computes out[row, j] = weights[row, k] columns[k, j] (+ bias[row]) for every group, as Product in conv_cpu.cc does.
template <class T>
struct StripProduct {
  Columns columns;
  Weights<T> weights;
  const T *source, *bias;
  T* out;
  Place place;
  i64 groups, rows;                 // the number of groups, and of output channels of one group
  i64 source_group, weights_group;  // the distances between groups in the source, and in the weights

  void run(const Tensor& workspace) const {
    constexpr DType dtype = DTypeOf<T>::value, wide = DTypeOf<Wide<T>>::value;
    const Strips s = product_strips(columns, rows, dtype);
    const ConvolutionScope scope;
    const Tensor product_space = workspace.slice(0, s.product_at, s.bytes);
    for (i64 group = 0; group < groups && s.k > 0; ++group) {
      const Tensor matrix = matrix_in(workspace, s.matrix_at, rows, s.k, s.k_stride, dtype);
      Weights<T> of_group = weights;
      of_group.data += group * weights_group;
      launch("conv2d", gather_weights<T>, blocks_for(rows * s.k), dim3(kBlockThreads), columns, of_group, rows, matrix.data<T>(),
             s.k_stride);
      for (i64 begin = 0; begin < s.j; begin += s.width) {
        const i64 number = std::min(s.width, s.j - begin);
        const Tensor strip = matrix_in(workspace, s.columns_at, s.k, number, s.width, dtype),
                     sums = matrix_in(workspace, s.beside_at, rows, number, s.width, wide);
        gather_strip(columns, source + group * source_group, begin, number, strip.data<T>(), s.width);
        kernels::matmul(matrix, strip, {}, sums, product_space);
        store(group, sums.data<Wide<T>>(), s.width, begin, number);
      }
    }
    for (i64 group = 0; group < groups && s.k == 0; ++group) store(group, nullptr, 0, 0, s.j);
  }

  void store(i64 group, const Wide<T>* sums, i64 sums_stride, i64 begin, i64 number) const {
    const Shares columns_by_rows(number, rows, 8);
    launch("conv2d", store_columns<T>, columns_by_rows.blocks(), dim3(kBlockThreads), columns_by_rows, place, sums, sums_stride,
           bias ? bias + group * rows : nullptr, rows, begin, out + group * rows * place.plane);
  }
};

constexpr int kQuad = 4, kSumThreads = 512;
using Block = BlockRows<kSumThreads>;

// Sums the channels of x, with one thread block for each channel. `lanes` adjacent threads, a power of two, share the plane of one image.
template <class T, class Out>
__global__ void channel_sums(i64 images, i64 channels, i64 plane, int lanes, bool aligned, const T* x, Out* to) {
  const int thread = static_cast<int>(threadIdx.x), abreast = kSumThreads / lanes;
  for (i64 c = blockIdx.x; c < channels; c += gridDim.x) {
    double sum = 0;
    for (i64 n = thread / lanes; n < images; n += abreast) {
      const T* from = x + (n * channels + c) * plane;
      for (i64 at = i64{thread % lanes} * kQuad; at < plane; at += i64{lanes} * kQuad) {
        const auto quad = load_pack<kQuad>(from + at, plane - at, aligned);
        for (int i = 0; i < kQuad; ++i) sum += static_cast<double>(quad.at[i]);
      }
    }
    sum = Block::fold(sum, Plus());
    if (threadIdx.x == 0) to[c] = narrow<Out>(static_cast<Wide<Out>>(sum));
  }
}

}  // namespace

void conv2d(const ConvShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y, const Tensor& workspace) {
  const i64 taps = s.window.kernel.h * s.window.kernel.w, rows = s.outputs_of_group(), inputs = s.inputs_of_group();
  for_dtype("conv2d", x.dtype(), [&]<class T>(T) {
    StripProduct<T>{forward_columns(s),
                    {w.data<T>(), inputs * taps, taps, s.window.kernel},
                    x.data<T>(),
                    data_or_null<T>(bias),
                    y.data<T>(),
                    forward_place(s),
                    s.groups,
                    rows,
                    inputs * s.extent.h * s.extent.w,
                    rows * inputs * taps}
        .run(workspace);
  });
}

void conv2d_input_gradient(const ConvShape& s, const Tensor& dy, const Tensor& w, const Tensor& bias, const Tensor& dx,
                           const Tensor& workspace) {
  const i64 taps = s.window.kernel.h * s.window.kernel.w, rows = s.inputs_of_group(), outputs = s.outputs_of_group();
  const Pair stride = s.window.stride, at = s.positions();
  for (i64 row = 0; row < std::min(stride.h, s.extent.h); ++row) {
    for (i64 column = 0; column < std::min(stride.w, s.extent.w); ++column) {
      const Columns columns = phase_columns(s, row, column);
      for_dtype("conv2d", dx.dtype(), [&]<class T>(T) {
        StripProduct<T>{columns,
                        {w.data<T>(), taps, rows * taps, s.window.kernel},
                        dy.data<T>(),
                        data_or_null<T>(bias),
                        dx.data<T>(),
                        phase_place(s, row, column, columns),
                        s.groups,
                        rows,
                        outputs * at.h * at.w,
                        outputs * rows * taps}
            .run(workspace);
      });
    }
  }
}

void sum_channels(const Tensor& x, const Tensor& to) {
  const i64 images = x.size(0), channels = x.size(1), plane = x.elems() / (images * channels);
  const auto lanes = static_cast<int>(std::bit_ceil(static_cast<u64>(std::min<i64>(kSumThreads, ceil_div(plane, kQuad)))));
  for_dtypes("sum_channels", x.dtype(), to.dtype(), [&]<class T, class Out>(T, Out) {
    const T* from = x.data<T>();
    launch("sum_channels", channel_sums<T, Out>, blocks_for_tasks(channels), dim3(kSumThreads), images, channels, plane, lanes,
           rows_aligned<kQuad>(from, plane), from, to.data<Out>());
  });
}

}  // namespace spillway::kernels::cuda
