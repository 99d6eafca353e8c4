// Prefetches memory a few cache lines at a time, while a loop computes sums. Prefetching everything at once would delay the loop: its own
// loads, of panels in the second-level cache, go through the same buffers as the prefetches.
#pragma once
#include "kernels/products/gemm.h"

namespace spillway::kernels::gemm {

class Lines {
 public:
  static constexpr i64 kEvery = 8;  // the number of inner indices k that the loop adds between two calls of ask()

  /// Prefetches all of `ahead` within `asks` calls of ask().
  Lines(const Ahead& ahead, i64 asks) : next_(ahead, asks) {}

  /// Also prefetches, from now on, the rows x columns of C to which the current sums
  /// will be written. All of these are prefetched within `asks` calls of ask().
  template <class P, class Out>
  void write_to(const Output<P, Out>& c, i64 rows, i64 columns, i64 asks) {
    constexpr i64 kSize = sizeof(Out);
    written_ = Walk({reinterpret_cast<const char*>(c.data), rows, columns * kSize, c.row_stride * kSize}, asks);
  }

  void ask() {
    next_.ask([](const char* line) { __builtin_prefetch(line, 0, 2); });
    written_.ask([](const char* line) { __builtin_prefetch(line, 1); });
  }

 private:
  class Walk {
   public:
    Walk() = default;
    Walk(const Ahead& all, i64 asks) : all_(all), each_(ceil_div(all.rows * ceil_div(all.row_bytes, kBytes), asks)) {}
    template <class F>
    void ask(F fetch) {
      for (i64 left = each_; left > 0 && row_ < all_.rows; --left) {
        fetch(all_.data + row_ * all_.stride_bytes + at_);
        if ((at_ += kBytes) >= all_.row_bytes) at_ = 0, ++row_;
      }
    }

   private:
    static constexpr i64 kBytes = 64;
    Ahead all_;
    i64 each_ = 0, row_ = 0, at_ = 0;
  };
  Walk next_, written_;
};

}  // namespace spillway::kernels::gemm
