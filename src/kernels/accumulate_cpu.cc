#include <cstring>

#include "kernels/accumulate.h"
#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

constexpr i64 kGrain = 1 << 16;

template <class From, class To>
void convert(const Tensor& from, const Tensor& to) {
  const From* x = from.data<From>();
  To* y = to.data<To>();
  Stream::current().for_ranges(to.elems(), kGrain, [=](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) y[i] = narrow<To>(widen(x[i]));
  });
}

}  // namespace

void add(const Tensor& a, const Tensor& b, const Tensor& out) {
  require(a.shape() == b.shape() && a.shape() == out.shape(), "[add] expected operands and result of equal shape");
  require(a.is_contiguous() && b.is_contiguous() && out.is_contiguous(), "[add] expected contiguous operands and a contiguous result");
  if (out.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(out, add(a, b, out));
  for_dtype("add", out.dtype(), [&]<class T>(T) {
    const T *x = a.data<T>(), *y = b.data<T>();
    T* z = out.data<T>();
    Stream::current().for_ranges(out.elems(), kGrain, [=](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) z[i] = narrow<T>(widen(x[i]) + widen(y[i]));
    });
  });
}

void copy(const Tensor& from, const Tensor& to) {
  require(from.shape() == to.shape(), "[copy] expected source and destination of equal shape");
  require(from.is_contiguous() && to.is_contiguous(), "[copy] expected a contiguous source and destination");
  if (to.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(to, copy(from, to));
  if (from.dtype() != to.dtype())
    return from.dtype() == DType::f16 ? convert<Float16, float>(from, to) : convert<BFloat16, float>(from, to);
  const std::byte* source = from.raw();
  std::byte* target = to.raw();
  Stream::current().for_ranges(to.bytes(), kGrain * 4,
                               [=](i64 begin, i64 end) { std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin)); });
}

void rounded_copy(const Tensor& from, const Tensor& to) {
  require(from.shape() == to.shape() && from.is_contiguous() && to.is_contiguous() && from.dtype() == DType::f32 && is_half(to.dtype()),
          "[rounded_copy] expected a contiguous source in f32, and a contiguous destination of its shape in bf16 or f16");
  if (to.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(to, rounded_copy(from, to));
  to.dtype() == DType::f16 ? convert<float, Float16>(from, to) : convert<float, BFloat16>(from, to);
}

void accumulate(const Tensor& to, const Tensor& from) { add(to, from, to); }

}  // namespace spillway::kernels
