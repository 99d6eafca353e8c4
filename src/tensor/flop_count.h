// Counts the floating-point operations of matrix products, attention, convolutions and experts:
// two for each multiply-add. Element-wise operations do not count, as is usual. On the meta device
// nothing is computed, but the operations are counted all the same. Counting is per thread.
#pragma once

namespace spillway {

/// Counts the operations of the thread that created the object, for as long as the object lives. If FlopCount objects are nested,
/// operations count in all of them.
class FlopCount {
 public:
  FlopCount();
  ~FlopCount();
  FlopCount(const FlopCount&) = delete;
  FlopCount& operator=(const FlopCount&) = delete;
  double flops() const { return flops_; }

 private:
  friend void count_flops(double flops);
  FlopCount* const outer_;
  double flops_ = 0;
};

/// Adds `flops` to all active counts of the calling thread. A kernel's entry function calls it.
void count_flops(double flops);

}  // namespace spillway
