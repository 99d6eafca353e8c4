#include "kernels/elementwise/clamped_glu.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/clamped_glu_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/vector_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

// The clamps keep NaN.
template <class V>
HWY_INLINE V at_most(V x, V limit) {
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
}
template <class V>
HWY_INLINE V within(V x, V limit) {
  return hn::IfThenElse(hn::Lt(x, hn::Neg(limit)), hn::Neg(limit), at_most(x, limit));
}

template <class T>
struct ClampedGlu {
  T slope, limit;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V gate, V up) const {
    const V most = hn::Set(d, limit), g = at_most(gate, most);
    return hn::Mul(hn::Add(within(up, most), hn::Set(d, 1)), hn::Mul(g, sigmoid(d, hn::Mul(hn::Set(d, slope), g))));
  }
};

template <class T>
HWY_ATTR void clamped_glu_range(const GluClamp& clamp, const T* gate, const T* up, T* y, i64 n) {
  using W = Wide<T>;
  map(gate, up, y, n, ClampedGlu<W>{static_cast<W>(clamp.slope), static_cast<W>(clamp.limit)});
}

// The derivative of g sigmoid(a g) is s (1 + a g (1 - s)), with s = sigmoid(a g). dgate or dup may be null and is then not computed.
template <class T>
HWY_ATTR void clamped_glu_gradient_range(const GluClamp& clamp, const T* gate, const T* up, const T* dy, T* dgate, T* dup, i64 n) {
  using W = Wide<T>;
  const hn::ScalableTag<W> d;
  const auto one = hn::Set(d, 1), limit = hn::Set(d, static_cast<W>(clamp.limit)), slope = hn::Set(d, static_cast<W>(clamp.slope));
  constexpr i64 lanes = lanes_of<T>();
  for (i64 i = 0; i < n; i += lanes) {
    const i64 used = n - i < lanes ? n - i : lanes;
    const bool whole = used == lanes;
    const auto raw_gate = whole ? load(d, gate + i) : load_rest(d, gate + i, used, W(0));
    const auto raw_up = whole ? load(d, up + i) : load_rest(d, up + i, used, W(0));
    const auto gradient = whole ? load(d, dy + i) : load_rest(d, dy + i, used, W(0));
    const auto g = at_most(raw_gate, limit), steep = hn::Mul(slope, g), s = sigmoid(d, steep);
    const auto to_up = hn::IfThenElseZero(hn::Le(hn::Abs(raw_up), limit), hn::Mul(gradient, hn::Mul(g, s)));
    const auto more = hn::Mul(gradient, hn::Add(within(raw_up, limit), one));
    const auto to_gate = hn::IfThenElseZero(hn::Le(raw_gate, limit), hn::Mul(more, hn::Mul(s, hn::MulAdd(steep, hn::Sub(one, s), one))));
    if (dgate) whole ? store(d, to_gate, dgate + i) : store_rest(d, to_gate, dgate + i, used);
    if (dup) whole ? store(d, to_up, dup + i) : store_rest(d, to_up, dup + i, used);
  }
}

SPILLWAY_FOR_TYPES(clamped_glu, clamped_glu_range);
SPILLWAY_FOR_TYPES(clamped_glu_gradient, clamped_glu_gradient_range);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {

SPILLWAY_EXPORT_TYPES(clamped_glu);
SPILLWAY_EXPORT_TYPES(clamped_glu_gradient);

// The approximate number of elements that one task computes.
constexpr i64 kTask = 1 << 14;

void check_clamped(const GluClamp& clamp, std::initializer_list<Tensor> views) {
  require(clamp.limit > 0, "[clamped_glu] expected a limit above 0");
  for (const Tensor& view : views) {
    if (!view.defined()) continue;
    require(view.is_contiguous() && view.elems() == views.begin()->elems() && view.dtype() == views.begin()->dtype(),
            "[clamped_glu] expected contiguous views of the same shape and dtype");
  }
}

}  // namespace

void clamped_glu(const GluClamp& clamp, const Tensor& gate, const Tensor& up, const Tensor& y) {
  check_clamped(clamp, {gate, up, y});
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, clamped_glu(clamp, gate, up, y));
  for_dtype("clamped_glu", y.dtype(), [&]<class T>(T) {
    const T *g = gate.data<T>(), *u = up.data<T>();
    T* to = y.data<T>();
    Stream::current().for_ranges(y.elems(), kTask, [=](i64 begin, i64 end) {
      SPILLWAY_DISPATCH_TYPE(T, clamped_glu, clamp, g + begin, u + begin, to + begin, end - begin);
    });
  });
}

void clamped_glu_gradient(const GluClamp& clamp, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& dgate,
                          const Tensor& dup) {
  check_clamped(clamp, {gate, up, dy, dgate, dup});
  if (dy.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dy, clamped_glu_gradient(clamp, gate, up, dy, dgate, dup));
  for_dtype("clamped_glu_gradient", dy.dtype(), [&]<class T>(T) {
    const T *g = gate.data<T>(), *u = up.data<T>(), *from = dy.data<T>();
    T *dg = data_or_null<T>(dgate), *du = data_or_null<T>(dup);
    Stream::current().for_ranges(dy.elems(), kTask, [=](i64 begin, i64 end) {
      T *to_gate = dg ? dg + begin : nullptr, *to_up = du ? du + begin : nullptr;
      SPILLWAY_DISPATCH_TYPE(T, clamped_glu_gradient, clamp, g + begin, u + begin, from + begin, to_gate, to_up, end - begin);
    });
  });
}

}  // namespace spillway::kernels
#endif
