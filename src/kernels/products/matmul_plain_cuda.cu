#include "kernels/products/matmul_plain_cuda.h"

#include "device/launch_cuda.h"
#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// The strides of a matrix in elements: from one row to the next, and from one column to the next.
struct Strides {
  i64 row, column;
};
struct Extents {
  i64 m, n, k;
};

template <class T, class Out>
__global__ void multiply(Extents e, const T* a, Strides sa, const T* b, Strides sb, const T* bias, Out* out, Strides so, bool adds) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x; i < e.m * e.n; i += step) {
    const i64 row = i / e.n, column = i % e.n;
    Wide<T> sum = 0;
    for (i64 k = 0; k < e.k; ++k) sum += widen(a[row * sa.row + k * sa.column]) * widen(b[k * sb.row + column * sb.column]);
    if (bias) sum += widen(bias[column]);
    Out& to = out[row * so.row + column * so.column];
    to = narrow<Out>(adds ? sum + widen(to) : sum);
  }
}

Strides strides_of(const Tensor& x) { return {x.stride(0), x.stride(1)}; }

template <class T, class Out>
void run(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store) {
  launch("plain_matmul", multiply<T, Out>, blocks_for(out.elems()), dim3(kBlockThreads), Extents{out.size(0), out.size(1), a.size(1)},
         a.data<T>(), strides_of(a), b.data<T>(), strides_of(b), data_or_null<T>(bias), out.data<Out>(), strides_of(out),
         store == Store::add);
}

template <class T>
void run_half(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store) {
  out.dtype() == DType::f32 ? run<T, float>(a, b, bias, out, store) : run<T, T>(a, b, bias, out, store);
}

}  // namespace

void plain_matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store) {
  switch (a.dtype()) {
    case DType::f64:
      return run<double, double>(a, b, bias, out, store);
    case DType::f32:
      return run<float, float>(a, b, bias, out, store);
    case DType::f16:
      return run_half<Float16>(a, b, bias, out, store);
    default:
      return run_half<BFloat16>(a, b, bias, out, store);
  }
}

}  // namespace spillway::kernels::cuda
