// The weight gradient of a convolution on a GPU. The positions are processed in strips (conv_strips.h), in order. Each strip's product is
// accumulated by cuBLASLt into the gradient in the workspace, which is fp32 (fp64 for f64).
#include "kernels/dispatch.h"
#include "kernels/images/conv.h"
#include "kernels/images/conv_columns_cuda.h"
#include "kernels/products/matmul.h"

namespace spillway::kernels::cuda {
namespace {

// Maps each row (or column) of the kernel to the index of its tap on this axis (conv_columns.h), or to -1 if the tap is left out because it
// lies outside the image at every position.
struct TapNumbers {
  i8 number[kMaxKernel];
  explicit TapNumbers(const AxisTaps& axis) {
    std::fill(number, number + kMaxKernel, i8{-1});
    for (i64 t = 0; t < axis.count; ++t) number[axis.tap[static_cast<size_t>(t)]] = static_cast<i8>(t);
  }
};

struct Kernel {
  TapNumbers h, w;
  Pair extent, count;
  i64 channels;
};

// Rounds the sums of a weight gradient and writes dw[rows, channels, kh, kw]. Taps that were skipped get zero.
template <class W, class Out>
__global__ void store_gradient(Kernel kernel, i64 rows, const W* sums, i64 sums_stride, Out* dw) {
  const i64 step = i64{gridDim.x} * blockDim.x, size = kernel.extent.h * kernel.extent.w, row_elems = kernel.channels * size;
  for (i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * row_elems; i += step) {
    const i64 row = i / row_elems, channel = i % row_elems / size, h = kernel.h.number[i % size / kernel.extent.w],
              w = kernel.w.number[i % kernel.extent.w];
    const bool took_part = h >= 0 && w >= 0;
    dw[i] = narrow<Out>(took_part ? sums[row * sums_stride + (channel * kernel.count.h + h) * kernel.count.w + w] : W(0));
  }
}

template <class T, class Out>
void weight_gradient(const ConvShape& shape, const T* x, const T* dy, Out* dw, const Tensor& workspace) {
  constexpr DType dtype = DTypeOf<T>::value, wide = DTypeOf<Wide<T>>::value;
  const Columns columns = forward_columns(shape), places = position_columns(shape);
  const Pair at = shape.positions(), extent = shape.window.kernel;
  const i64 rows = shape.outputs_of_group(), inputs = shape.inputs_of_group();
  const Strips s = gradient_strips(columns, rows, dtype);
  const Tensor product_space = workspace.slice(0, s.product_at, s.bytes);
  const Tensor sums = matrix_in(workspace, s.matrix_at, rows, s.k, s.k_stride, wide);
  const Kernel kernel{TapNumbers(columns.h), TapNumbers(columns.w), extent, {columns.h.count, columns.w.count}, inputs};
  for (i64 group = 0; group < shape.groups; ++group) {
    for (i64 begin = 0; begin < s.j && s.k > 0; begin += s.width) {
      const i64 number = std::min(s.width, s.j - begin);
      const Tensor strip = matrix_in(workspace, s.columns_at, s.k, number, s.width, dtype),
                   gradient = matrix_in(workspace, s.beside_at, rows, number, s.width, dtype);
      gather_strip(columns, x + group * inputs * shape.extent.h * shape.extent.w, begin, number, strip.data<T>(), s.width);
      gather_strip(places, dy + group * rows * at.h * at.w, begin, number, gradient.data<T>(), s.width);
      kernels::matmul(gradient, strip.transpose(0, 1), {}, sums, product_space, begin == 0 ? Store::replace : Store::add);
    }
    const i64 elems = rows * inputs * extent.h * extent.w;
    launch("conv2d", store_gradient<Wide<T>, Out>, blocks_for(elems), dim3(kBlockThreads), kernel, rows, sums.data<Wide<T>>(), s.k_stride,
           dw + group * elems);
  }
}

}  // namespace

void conv2d_weight_gradient(const ConvShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& workspace) {
  for_dtypes("conv2d", x.dtype(), dw.dtype(),
             [&]<class T, class Out>(T, Out) { weight_gradient(s, x.data<T>(), dy.data<T>(), dw.data<Out>(), workspace); });
}

}  // namespace spillway::kernels::cuda
