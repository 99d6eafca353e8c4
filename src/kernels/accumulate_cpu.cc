#include <cstring>

#include "base/error.h"
#include "kernels/accumulate.h"

namespace spillway::kernels {
namespace {

constexpr i64 kGrain = 1 << 16;

template <class T>
void add_all(const Tensor& a, const Tensor& b, const Tensor& out) {
  const T *x = a.data<T>(), *y = b.data<T>();
  T* z = out.data<T>();
  Stream::current().for_ranges(out.elems(), kGrain, [=](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) z[i] = x[i] + y[i];
  });
}

}  // namespace

void add(const Tensor& a, const Tensor& b, const Tensor& out) {
  require(a.shape() == b.shape() && a.shape() == out.shape(), "[add] expected equal shapes");
  require(a.is_contiguous() && b.is_contiguous() && out.is_contiguous(), "[add] expected contiguous views");
  if (out.device().is_meta()) return;
  out.dtype() == DType::f64 ? add_all<double>(a, b, out) : add_all<float>(a, b, out);
}

void copy(const Tensor& from, const Tensor& to) {
  require(from.shape() == to.shape() && from.dtype() == to.dtype(), "[copy] expected equal shapes and types");
  require(from.is_contiguous() && to.is_contiguous(), "[copy] expected contiguous views");
  if (to.device().is_meta()) return;
  const std::byte* source = from.raw();
  std::byte* target = to.raw();
  Stream::current().for_ranges(to.bytes(), kGrain * 4,
                               [=](i64 begin, i64 end) { std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin)); });
}

void accumulate(const Tensor& to, const Tensor& from) { add(to, from, to); }

}  // namespace spillway::kernels
