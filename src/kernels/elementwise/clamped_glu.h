// The gated linear unit of gpt-oss (arXiv:2508.10925), for f32, f64, bf16 and f16; bf16 and f16 are computed in f32 and rounded once when
// they are stored. Tensors are contiguous. The result for an element is bitwise the same at every position.
#pragma once
#include "tensor/tensor.h"

namespace spillway::kernels {

struct GluClamp {
  double slope = 1.702;  // the factor within the sigmoid
  double limit = 7;      // the gate is clamped to at most `limit`, the other input to [-limit, limit]; above 0
  bool operator==(const GluClamp&) const = default;
};

/// clamped_glu() computes y = (clamp(up) + 1) g sigmoid(slope g) with the clamped gate g. clamped_glu_gradient() computes dgate and dup; a
/// gradient whose tensor is undefined is not computed. As in PyTorch's clamp, a gradient passes where an input equals its limit, and is 0
/// where the input is NaN.
void clamped_glu(const GluClamp& clamp, const Tensor& gate, const Tensor& up, const Tensor& y);
void clamped_glu_gradient(const GluClamp& clamp, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& dgate,
                          const Tensor& dup);

namespace cuda {
decltype(kernels::clamped_glu) clamped_glu;
decltype(kernels::clamped_glu_gradient) clamped_glu_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
