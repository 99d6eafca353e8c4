// How many floating-point operations the products that are asked for take: matrices, attention, convolutions and experts, two for each
// multiplication that is added up. Asked on the meta device nothing is computed, and the count is the same. What is element by element does
// not count, as is usual. Per thread.
#pragma once

namespace spillway {

/// Counts on the thread that made it while it lives; those within it count in it too.
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

/// Said by a kernel's front, where it is asked for.
void count_flops(double flops);

}  // namespace spillway
