// What a convolution multiplies, for its FlopCount.
#pragma once
#include "kernels/convolution/conv.h"

namespace spillway::kernels {

/// Of the convolution, as of either of its gradients; taps in the padding count.
inline double conv_flops(const ConvShape& s) {
  const Pair at = s.positions();
  return 2.0 * static_cast<double>(s.images * s.outputs * at.h * at.w) *
         static_cast<double>(s.inputs_of_group() * s.window.kernel.h * s.window.kernel.w);
}

}  // namespace spillway::kernels
