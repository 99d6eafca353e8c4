#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"
#include "kernels/elementwise/clamped_glu.h"

namespace spillway::kernels::cuda {
namespace {

// The formulas are those of clamped_glu_cpu.cc, with fused multiply-adds in the same places. The clamps keep NaN.
template <class W>
struct ClampedGlu {
  W slope, limit;

  __device__ W at_most(W x) const { return x > limit ? limit : x; }
  __device__ W within(W x) const { return x < -limit ? -limit : at_most(x); }
  __device__ static W sigmoid(W x) { return W(1) / (W(1) + std::exp(-x)); }

  __device__ W operator()(W gate, W up) const {
    const W g = at_most(gate);
    return (within(up) + W(1)) * (g * sigmoid(slope * g));
  }
  __device__ W to_up(W gate, W up, W dy) const {
    const W g = at_most(gate);
    return std::abs(up) <= limit ? dy * (g * sigmoid(slope * g)) : W(0);
  }
  __device__ W to_gate(W gate, W up, W dy) const {
    const W steep = slope * at_most(gate), s = sigmoid(steep);
    return gate <= limit ? dy * (within(up) + W(1)) * (s * std::fma(steep, W(1) - s, W(1))) : W(0);
  }
};

// dgate or dup may be null and is then not computed.
template <int kCount, class T>
__global__ void clamped_glu_gradients(i64 packs, ClampedGlu<Wide<T>> unit, const T* gate, const T* up, const T* dy, T* dgate, T* dup) {
  using Packed = Pack<T, kCount>;
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 p = i64{blockIdx.x} * blockDim.x + threadIdx.x; p < packs; p += step) {
    const i64 at = p * kCount;
    const Packed gates = load_pack<kCount>(gate + at), ups = load_pack<kCount>(up + at), gradients = load_pack<kCount>(dy + at);
    Packed result;
    if (dup) {
      for (int i = 0; i < kCount; ++i) result.at[i] = narrow<T>(unit.to_up(widen(gates.at[i]), widen(ups.at[i]), widen(gradients.at[i])));
      store_pack(result, dup + at);
    }
    if (dgate) {
      for (int i = 0; i < kCount; ++i) result.at[i] = narrow<T>(unit.to_gate(widen(gates.at[i]), widen(ups.at[i]), widen(gradients.at[i])));
      store_pack(result, dgate + at);
    }
  }
}

template <class W>
ClampedGlu<W> unit_of(const GluClamp& clamp) {
  return {static_cast<W>(clamp.slope), static_cast<W>(clamp.limit)};
}

}  // namespace

void clamped_glu(const GluClamp& clamp, const Tensor& gate, const Tensor& up, const Tensor& y) {
  for_dtype("clamped_glu", y.dtype(),
            [&]<class T>(T) { map_on_gpu("clamped_glu", y.elems(), unit_of<Wide<T>>(clamp), y.data<T>(), gate.data<T>(), up.data<T>()); });
}

void clamped_glu_gradient(const GluClamp& clamp, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& dgate,
                          const Tensor& dup) {
  const i64 n = dy.elems();
  if (n == 0) return;
  for_dtype("clamped_glu_gradient", dy.dtype(), [&]<class T>(T) {
    constexpr int kCount = 16 / sizeof(T);
    const auto unit = unit_of<Wide<T>>(clamp);
    const T *g = gate.data<T>(), *u = up.data<T>(), *from = dy.data<T>();
    T *dg = data_or_null<T>(dgate), *du = data_or_null<T>(dup);
    const auto aligned = [](const auto*... at) { return (is_aligned(at, 16) && ...); };
    const i64 packs = aligned(g, u, from, dg, du) ? n / kCount : 0, done = packs * kCount;
    if (packs > 0)
      launch("clamped_glu_gradient", clamped_glu_gradients<kCount, T>, blocks_for(packs), dim3(kBlockThreads), packs, unit, g, u, from, dg,
             du);
    if (done == n) return;
    launch("clamped_glu_gradient", clamped_glu_gradients<1, T>, blocks_for(n - done), dim3(kBlockThreads), n - done, unit, g + done,
           u + done, from + done, dg ? dg + done : nullptr, du ? du + done : nullptr);
  });
}

}  // namespace spillway::kernels::cuda
