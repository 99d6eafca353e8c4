#include "kernels/elementwise/elementwise.h"

#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// The formulas in this file are those of elementwise_cpu.cc, with fused multiply-adds in the same places.
template <class T>
__device__ T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}
// Returns 0.5 (1 + tanh u), computed as sigmoid(2u), where u is the polynomial of x in gelu's tanh approximation.
template <class T>
__device__ T gelu_sigmoid(T x) {
  return sigmoid(T(1.5957691216057308) * x * std::fma(T(0.044715), x * x, T(1)));
}
template <class T>
__device__ T gaussian_integral(T x) {
  return T(0.5) * (T(1) + std::erf(x * T(0.70710678118654752440)));
}
// Returns the derivative of silu: s (1 + x (1 - s)), with s = sigmoid(x).
template <class T>
__device__ T silu_slope(T x, T s) {
  return s * std::fma(x, T(1) - s, T(1));
}

template <Unary kOp>
struct Value {
  template <class T>
  __device__ T operator()(T x) const {
    if constexpr (kOp == Unary::exp) return std::exp(x);
    if constexpr (kOp == Unary::log) return std::log(x);
    if constexpr (kOp == Unary::sqrt) return std::sqrt(x);
    if constexpr (kOp == Unary::rsqrt) return T(1) / std::sqrt(x);
    if constexpr (kOp == Unary::tanh) return std::tanh(x);
    if constexpr (kOp == Unary::sigmoid) return sigmoid(x);
    if constexpr (kOp == Unary::relu) return x < T(0) ? T(0) : x;
    if constexpr (kOp == Unary::relu_squared) return x < T(0) ? T(0) : x * x;
    if constexpr (kOp == Unary::silu) return x * sigmoid(x);
    if constexpr (kOp == Unary::gelu_tanh) return x * gelu_sigmoid(x);
    if constexpr (kOp == Unary::gelu_erf) return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440)));
  }
};

// Computes dx from dy and either the op's output or its input, as gradient_wants_output() says.
template <Unary kOp>
struct Gradient {
  template <class T>
  __device__ T operator()(T kept, T dy) const {
    if constexpr (kOp == Unary::exp) return dy * kept;
    if constexpr (kOp == Unary::log) return dy / kept;
    if constexpr (kOp == Unary::sqrt) return dy / (kept + kept);
    if constexpr (kOp == Unary::rsqrt) return dy * (T(-0.5) * kept * kept * kept);
    if constexpr (kOp == Unary::tanh) return dy * (T(1) - kept * kept);
    if constexpr (kOp == Unary::sigmoid) return dy * (kept * (T(1) - kept));
    if constexpr (kOp == Unary::relu) return kept > T(0) ? dy : T(0);
    if constexpr (kOp == Unary::relu_squared) return kept > T(0) ? dy * (kept + kept) : T(0);
    if constexpr (kOp == Unary::silu) return dy * silu_slope(kept, sigmoid(kept));
    if constexpr (kOp == Unary::gelu_tanh) {
      const T s = gelu_sigmoid(kept), slope = T(1.5957691216057308) * std::fma(T(3 * 0.044715), kept * kept, T(1));
      return dy * std::fma(kept * slope, s * (T(1) - s), s);
    }
    if constexpr (kOp == Unary::gelu_erf) {
      const T density = T(0.39894228040143267794) * std::exp(T(-0.5) * kept * kept);
      return dy * (gaussian_integral(kept) + kept * density);
    }
  }
};

template <class T>
struct Factor {
  T factor;
  __device__ T operator()(T x) const { return x * factor; }
};

template <class T>
struct Softcap {
  T cap;
  __device__ T operator()(T x) const { return cap * std::tanh(x / cap); }
};

template <Unary kActivation>
struct Gated {
  template <class T>
  __device__ T operator()(T gate, T up) const {
    return value(gate) * up;
  }
  template <class T>
  __device__ static T value(T gate) {
    return Value<kActivation>()(gate);
  }
  template <class T>
  __device__ static T gradient(T gate, T dy) {
    return Gradient<kActivation>()(gate, dy);
  }
};
template <class F>
void for_activation(Glu activation, F f) {
  if (activation == Glu::silu) return f(Gated<Unary::silu>());
  f(Gated<Unary::gelu_tanh>());
}

// Computes dup = dy f(gate) and dgate = dy up f'(gate), where f is the activation. dup or dgate may be null and is then not computed.
template <class Activation, int kCount, class T>
__global__ void glu_gradients(i64 packs, const T* gate, const T* up, const T* dy, T* dgate, T* dup) {
  using Packed = Pack<T, kCount>;
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 p = i64{blockIdx.x} * blockDim.x + threadIdx.x; p < packs; p += step) {
    const i64 at = p * kCount;
    const Packed gates = load_pack<kCount>(gate + at), ups = load_pack<kCount>(up + at), gradients = load_pack<kCount>(dy + at);
    if (dup) {
      Packed result;
      for (int i = 0; i < kCount; ++i) {
        const Wide<T> g = widen(gates.at[i]);
        result.at[i] = narrow<T>(widen(gradients.at[i]) * Activation::value(g));
      }
      store_pack(result, dup + at);
    }
    if (dgate) {
      Packed result;
      for (int i = 0; i < kCount; ++i) {
        const Wide<T> g = widen(gates.at[i]);
        result.at[i] = narrow<T>(Activation::gradient(g, widen(gradients.at[i]) * widen(ups.at[i])));
      }
      store_pack(result, dgate + at);
    }
  }
}

// A type that stands for the op kOp. Code that chooses an op at run time passes a Which<op>() to f, for which the op is a template
// argument.
template <Unary kOp>
struct Which {
  static constexpr Unary op = kOp;
};
template <class F>
void for_op(Unary op, F f) {
  switch (op) {
    case Unary::exp:
      return f(Which<Unary::exp>());
    case Unary::log:
      return f(Which<Unary::log>());
    case Unary::sqrt:
      return f(Which<Unary::sqrt>());
    case Unary::rsqrt:
      return f(Which<Unary::rsqrt>());
    case Unary::tanh:
      return f(Which<Unary::tanh>());
    case Unary::sigmoid:
      return f(Which<Unary::sigmoid>());
    case Unary::relu:
      return f(Which<Unary::relu>());
    case Unary::relu_squared:
      return f(Which<Unary::relu_squared>());
    case Unary::silu:
      return f(Which<Unary::silu>());
    case Unary::gelu_tanh:
      return f(Which<Unary::gelu_tanh>());
    case Unary::gelu_erf:
      return f(Which<Unary::gelu_erf>());
  }
}

}  // namespace

void unary(Unary op, const Tensor& x, const Tensor& y) {
  for_dtype("unary", y.dtype(), [&]<class T>(T) {
    for_op(op, [&]<class Op>(Op) { map_on_gpu("unary", y.elems(), Value<Op::op>(), y.data<T>(), x.data<T>()); });
  });
}

void unary_gradient(Unary op, const Tensor& kept, const Tensor& dy, const Tensor& dx) {
  for_dtype("unary_gradient", dx.dtype(), [&]<class T>(T) {
    for_op(op,
           [&]<class Op>(Op) { map_on_gpu("unary_gradient", dx.elems(), Gradient<Op::op>(), dx.data<T>(), kept.data<T>(), dy.data<T>()); });
  });
}

void scale(const Tensor& x, double factor, const Tensor& y) {
  for_dtype("scale", y.dtype(),
            [&]<class T>(T) { map_on_gpu("scale", y.elems(), Factor<Wide<T>>{static_cast<Wide<T>>(factor)}, y.data<T>(), x.data<T>()); });
}

void softcap(const Tensor& x, double cap, const Tensor& y) {
  for_dtype("softcap", y.dtype(),
            [&]<class T>(T) { map_on_gpu("softcap", y.elems(), Softcap<Wide<T>>{static_cast<Wide<T>>(cap)}, y.data<T>(), x.data<T>()); });
}

void glu(Glu activation, const Tensor& gate, const Tensor& up, const Tensor& y) {
  for_activation(activation, [&](auto gated) {
    for_dtype("glu", y.dtype(), [&]<class T>(T) { map_on_gpu("glu", y.elems(), gated, y.data<T>(), gate.data<T>(), up.data<T>()); });
  });
}

void glu_gradient(Glu activation, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& dgate, const Tensor& dup) {
  const i64 n = dy.elems();
  if (n == 0) return;
  for_activation(activation, [&]<class Activation>(Activation) {
    for_dtype("glu_gradient", dy.dtype(), [&]<class T>(T) {
      constexpr int kCount = 16 / sizeof(T);
      const T *g = gate.data<T>(), *u = up.data<T>(), *from = dy.data<T>();
      T *dg = data_or_null<T>(dgate), *du = data_or_null<T>(dup);
      const auto aligned = [](const auto*... at) { return (is_aligned(at, 16) && ...); };
      const i64 packs = aligned(g, u, from, dg, du) ? n / kCount : 0, done = packs * kCount;
      if (packs > 0)
        launch("glu_gradient", glu_gradients<Activation, kCount, T>, blocks_for(packs), dim3(kBlockThreads), packs, g, u, from, dg, du);
      if (done == n) return;
      launch("glu_gradient", glu_gradients<Activation, 1, T>, blocks_for(n - done), dim3(kBlockThreads), n - done, g + done, u + done,
             from + done, dg ? dg + done : nullptr, du ? du + done : nullptr);
    });
  });
}

}  // namespace spillway::kernels::cuda
