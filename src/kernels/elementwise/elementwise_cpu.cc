#include "kernels/elementwise/elementwise.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/elementwise_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/vector_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

struct Exp {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return exp(d, x);
  }
};
struct Tanh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return tanh(d, x);
  }
};
struct Sigmoid {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return sigmoid(d, x);
  }
};
struct Silu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::Mul(x, sigmoid(d, x));
  }
};
// The derivative of silu is s (1 + x (1 - s)), with s = sigmoid(x).
struct SiluGradient {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V dy) const {
    const V one = hn::Set(d, 1), s = sigmoid(d, x);
    return hn::Mul(dy, hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one)));
  }
};

// GELU is computed with 0.5 (1 + tanh u) = sigmoid(2u). The right-hand side keeps its relative precision for negative x.
constexpr double kTwiceRootTwoOverPi = 1.5957691216057308, kCubic = 0.044715;
struct GeluTanh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V square = hn::Mul(x, x), one = hn::Set(d, 1);
    using T = hn::TFromD<D>;
    const V twice_u = hn::Mul(hn::Mul(hn::Set(d, T(kTwiceRootTwoOverPi)), x), hn::MulAdd(hn::Set(d, T(kCubic)), square, one));
    return hn::Mul(x, sigmoid(d, twice_u));
  }
};
struct GeluTanhGradient {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V dy) const {
    using T = hn::TFromD<D>;
    const V square = hn::Mul(x, x), one = hn::Set(d, 1), factor = hn::Set(d, T(kTwiceRootTwoOverPi));
    const V s = sigmoid(d, hn::Mul(hn::Mul(factor, x), hn::MulAdd(hn::Set(d, T(kCubic)), square, one)));
    const V slope = hn::Mul(factor, hn::MulAdd(hn::Set(d, T(3 * kCubic)), square, one));
    return hn::Mul(dy, hn::MulAdd(hn::Mul(x, slope), hn::Mul(s, hn::Sub(one, s)), s));
  }
};
struct SwiGlu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V gate, V up) const {
    return hn::Mul(hn::Mul(gate, sigmoid(d, gate)), up);
  }
};
struct GeGlu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V gate, V up) const {
    return hn::Mul(GeluTanh()(d, gate), up);
  }
};
template <class T>
struct Softcap {
  T cap;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V c = hn::Set(d, cap);
    return hn::Mul(c, tanh(d, hn::Div(x, c)));
  }
};

// Computes y[i] = f(x[i]) in a scalar loop, which the compiler vectorises if f contains no transcendental function. f computes in Wide<T>.
template <class T, class F>
void plain_map(const T* x, T* y, i64 n, F f) {
  for (i64 i = 0; i < n; ++i) y[i] = narrow<T>(f(widen(x[i])));
}
template <class T, class F>
void plain_map(const T* x, const T* y, T* z, i64 n, F f) {
  for (i64 i = 0; i < n; ++i) z[i] = narrow<T>(f(widen(x[i]), widen(y[i])));
}

template <class T>
void plain(Unary op, const T* from, T* to, i64 n) {
  using W = Wide<T>;
  switch (op) {
    case Unary::log:
      return plain_map(from, to, n, [](W x) { return std::log(x); });
    case Unary::sqrt:
      return plain_map(from, to, n, [](W x) { return std::sqrt(x); });
    case Unary::rsqrt:
      return plain_map(from, to, n, [](W x) { return W(1) / std::sqrt(x); });
    case Unary::relu:
      return plain_map(from, to, n, [](W x) { return x < W(0) ? W(0) : x; });
    case Unary::relu_squared:
      return plain_map(from, to, n, [](W x) { return x < W(0) ? W(0) : x * x; });
    case Unary::gelu_erf:
      return plain_map(from, to, n, [](W x) { return W(0.5) * x * (W(1) + std::erf(x * W(0.70710678118654752440))); });
    default:
      break;
  }
}

template <class T>
void plain_gradient(Unary op, const T* from, const T* gradient, T* to, i64 n) {
  using W = Wide<T>;
  switch (op) {
    case Unary::exp:
      return plain_map(from, gradient, to, n, [](W kept, W dy) { return dy * kept; });
    case Unary::log:
      return plain_map(from, gradient, to, n, [](W kept, W dy) { return dy / kept; });
    case Unary::sqrt:
      return plain_map(from, gradient, to, n, [](W kept, W dy) { return dy / (kept + kept); });
    case Unary::rsqrt:
      return plain_map(from, gradient, to, n, [](W kept, W dy) { return dy * (W(-0.5) * kept * kept * kept); });
    case Unary::tanh:
      return plain_map(from, gradient, to, n, [](W kept, W dy) { return dy * (W(1) - kept * kept); });
    case Unary::sigmoid:
      return plain_map(from, gradient, to, n, [](W kept, W dy) { return dy * (kept * (W(1) - kept)); });
    case Unary::relu:
      return plain_map(from, gradient, to, n, [](W kept, W dy) { return kept > W(0) ? dy : W(0); });
    case Unary::relu_squared:
      return plain_map(from, gradient, to, n, [](W kept, W dy) { return kept > W(0) ? dy * (kept + kept) : W(0); });
    case Unary::gelu_erf:
      return plain_map(from, gradient, to, n, [](W x, W dy) {
        const W density = W(0.39894228040143267794) * std::exp(W(-0.5) * x * x);
        return dy * (W(0.5) * (W(1) + std::erf(x * W(0.70710678118654752440))) + x * density);
      });
    default:
      break;
  }
}

template <class T>
HWY_ATTR void unary_range(Unary op, const T* x, T* y, i64 n) {
  switch (op) {
    case Unary::exp:
      return map(x, y, n, Exp());
    case Unary::tanh:
      return map(x, y, n, Tanh());
    case Unary::sigmoid:
      return map(x, y, n, Sigmoid());
    case Unary::silu:
      return map(x, y, n, Silu());
    case Unary::gelu_tanh:
      return map(x, y, n, GeluTanh());
    default:
      return plain(op, x, y, n);
  }
}

template <class T>
HWY_ATTR void gradient_range(Unary op, const T* kept, const T* dy, T* dx, i64 n) {
  switch (op) {
    case Unary::silu:
      return map(kept, dy, dx, n, SiluGradient());
    case Unary::gelu_tanh:
      return map(kept, dy, dx, n, GeluTanhGradient());
    default:
      return plain_gradient(op, kept, dy, dx, n);
  }
}

template <class T>
HWY_ATTR void softcap_range(const T* x, T* y, i64 n, double cap) {
  map(x, y, n, Softcap<Wide<T>>{static_cast<Wide<T>>(cap)});
}

template <class T>
HWY_ATTR void glu_range(Glu activation, const T* gate, const T* up, T* y, i64 n) {
  activation == Glu::silu ? map(gate, up, y, n, SwiGlu()) : map(gate, up, y, n, GeGlu());
}

// Computes dup = dy f(gate) and dgate = dy up f'(gate), where f is the activation. dup or dgate may be null and is then not computed.
template <class T>
HWY_ATTR void glu_gradient_range(Glu activation, const T* gate, const T* up, const T* dy, T* dgate, T* dup, i64 n) {
  using W = Wide<T>;
  const hn::ScalableTag<W> d;
  constexpr i64 lanes = lanes_of<T>();
  for (i64 i = 0; i < n; i += lanes) {
    const i64 used = n - i < lanes ? n - i : lanes;
    const bool whole = used == lanes;
    const auto g = whole ? load(d, gate + i) : load_rest(d, gate + i, used, W(0));
    const auto u = whole ? load(d, up + i) : load_rest(d, up + i, used, W(0));
    const auto gradient = whole ? load(d, dy + i) : load_rest(d, dy + i, used, W(0));
    const bool silu = activation == Glu::silu;
    const auto to_up = hn::Mul(gradient, silu ? Silu()(d, g) : GeluTanh()(d, g));
    const auto to_gate = silu ? SiluGradient()(d, g, hn::Mul(gradient, u)) : GeluTanhGradient()(d, g, hn::Mul(gradient, u));
    if (dgate) whole ? store(d, to_gate, dgate + i) : store_rest(d, to_gate, dgate + i, used);
    if (dup) whole ? store(d, to_up, dup + i) : store_rest(d, to_up, dup + i, used);
  }
}

SPILLWAY_FOR_TYPES(unary, unary_range);
SPILLWAY_FOR_TYPES(gradient, gradient_range);
SPILLWAY_FOR_TYPES(softcap, softcap_range);
SPILLWAY_FOR_TYPES(glu, glu_range);
SPILLWAY_FOR_TYPES(glu_gradient, glu_gradient_range);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {

SPILLWAY_EXPORT_TYPES(unary);
SPILLWAY_EXPORT_TYPES(gradient);
SPILLWAY_EXPORT_TYPES(softcap);
SPILLWAY_EXPORT_TYPES(glu);
SPILLWAY_EXPORT_TYPES(glu_gradient);

// The approximate number of elements that one task computes.
constexpr i64 kGrain = 1 << 14;

void check(const char* op, std::initializer_list<Tensor> views) {
  for (const Tensor& view : views) {
    if (!view.defined()) continue;
    if (!view.is_contiguous() || view.elems() != views.begin()->elems() || view.dtype() != views.begin()->dtype()) {
      throw Error(ErrorCode::bug, std::string("[") + op + "] expected contiguous views of the same shape and dtype, got " +
                                      to_string(views.begin()->shape()) + " and " + to_string(view.shape()));
    }
  }
}

}  // namespace

void unary(Unary op, const Tensor& x, const Tensor& y) {
  check("unary", {x, y});
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, unary(op, x, y));
  for_dtype("unary", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    Stream::current().for_ranges(x.elems(), kGrain,
                                 [=](i64 begin, i64 end) { SPILLWAY_DISPATCH_TYPE(T, unary, op, from + begin, to + begin, end - begin); });
  });
}

void unary_gradient(Unary op, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  check("unary_gradient", {kept, dy, dx});
  if (dx.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dx, unary_gradient(op, kept, dy, dx));
  for_dtype("unary_gradient", dx.dtype(), [&]<class T>(T) {
    const T *x = kept.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    Stream::current().for_ranges(dx.elems(), kGrain, [=](i64 begin, i64 end) {
      SPILLWAY_DISPATCH_TYPE(T, gradient, op, x + begin, from + begin, to + begin, end - begin);
    });
  });
}

void scale(const Tensor& x, double factor, const Tensor& y) {
  check("scale", {x, y});
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, scale(x, factor, y));
  for_dtype("scale", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const auto f = static_cast<Wide<T>>(factor);
    Stream::current().for_ranges(x.elems(), kGrain, [=](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) to[i] = narrow<T>(widen(from[i]) * f);
    });
  });
}

void softcap(const Tensor& x, double cap, const Tensor& y) {
  check("softcap", {x, y});
  require(cap > 0, "[softcap] expected a cap above 0");
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, softcap(x, cap, y));
  for_dtype("softcap", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    Stream::current().for_ranges(
        x.elems(), kGrain, [=](i64 begin, i64 end) { SPILLWAY_DISPATCH_TYPE(T, softcap, from + begin, to + begin, end - begin, cap); });
  });
}

void glu(Glu f, const Tensor& gate, const Tensor& up, const Tensor& y) {
  check("glu", {gate, up, y});
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, glu(f, gate, up, y));
  for_dtype("glu", y.dtype(), [&]<class T>(T) {
    const T *g = gate.data<T>(), *u = up.data<T>();
    T* to = y.data<T>();
    Stream::current().for_ranges(
        y.elems(), kGrain, [=](i64 begin, i64 end) { SPILLWAY_DISPATCH_TYPE(T, glu, f, g + begin, u + begin, to + begin, end - begin); });
  });
}

void glu_gradient(Glu f, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& dgate, const Tensor& dup) {
  check("glu_gradient", {gate, up, dy, dgate, dup});
  if (dy.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dy, glu_gradient(f, gate, up, dy, dgate, dup));
  for_dtype("glu_gradient", dy.dtype(), [&]<class T>(T) {
    const T *g = gate.data<T>(), *u = up.data<T>(), *from = dy.data<T>();
    T *dg = data_or_null<T>(dgate), *du = data_or_null<T>(dup);
    Stream::current().for_ranges(dy.elems(), kGrain, [=](i64 begin, i64 end) {
      T *to_gate = dg ? dg + begin : nullptr, *to_up = du ? du + begin : nullptr;
      SPILLWAY_DISPATCH_TYPE(T, glu_gradient, f, g + begin, u + begin, from + begin, to_gate, to_up, end - begin);
    });
  });
}

}  // namespace spillway::kernels
#endif
