// Counts the floating-point operations of a convolution, which its op reports.
#pragma once
#include "kernels/images/conv.h"

namespace spillway::kernels {

/// Returns the floating-point operations of a convolution. Each of the
/// convolution's two gradients has as many. Taps in the padding are counted too.
inline double conv_flops(const ConvShape& s) {
  const Pair at = s.positions();
  return 2.0 * static_cast<double>(s.images * s.outputs * at.h * at.w) *
         static_cast<double>(s.inputs_of_group() * s.window.kernel.h * s.window.kernel.w);
}

}  // namespace spillway::kernels
