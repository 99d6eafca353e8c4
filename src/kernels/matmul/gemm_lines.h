// Asks for Ahead's memory, some lines at a time: a burst of them would hold up the loads of the loop that makes the sums, whose panels come
// from the second-level cache through the same buffers.
#pragma once
#include "kernels/matmul/gemm.h"

namespace spillway::kernels::gemm {

class Lines {
 public:
  static constexpr i64 kEvery = 8;  // k between two asks

  /// All are asked for in so many calls.
  Lines(const Ahead& ahead, i64 asks) : ahead_(ahead), each_(ceil_div(ahead.rows * ceil_div(ahead.row_bytes, kBytes), asks)) {}

  void ask() {
    for (i64 left = each_; left > 0 && row_ < ahead_.rows; --left) {
      __builtin_prefetch(ahead_.data + row_ * ahead_.stride_bytes + at_, 0, 2);
      if ((at_ += kBytes) >= ahead_.row_bytes) at_ = 0, ++row_;
    }
  }

 private:
  static constexpr i64 kBytes = 64;
  const Ahead ahead_;
  const i64 each_;
  i64 row_ = 0, at_ = 0;
};

}  // namespace spillway::kernels::gemm
