#include "kernels/accumulate.h"
#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"

namespace spillway::kernels::cuda {

namespace {

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

}  // namespace

void add(const Tensor& a, const Tensor& b, const Tensor& out) {
  for_dtype("add", out.dtype(), [&]<class T>(T) { map_on_gpu("add", out.elems(), Sum(), out.data<T>(), a.data<T>(), b.data<T>()); });
}

void copy(const Tensor& from, const Tensor& to) {
  if (from.dtype() != to.dtype()) {
    return for_dtypes("copy", from.dtype(), to.dtype(),
                      [&]<class T, class Out>(T, Out) { map_on_gpu("copy", to.elems(), Same(), to.data<Out>(), from.data<T>()); });
  }
  cuda_check(cudaMemcpyAsync(to.raw(), from.raw(), static_cast<size_t>(to.bytes()), cudaMemcpyDeviceToDevice, Stream::current().queue),
             "copy");
}

void rounded_copy(const Tensor& from, const Tensor& to) {
  for_dtypes("rounded_copy", to.dtype(), from.dtype(),
             [&]<class Out, class T>(Out, T) { map_on_gpu("rounded_copy", to.elems(), Same(), to.data<Out>(), from.data<T>()); });
}

}  // namespace spillway::kernels::cuda
