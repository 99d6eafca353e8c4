#include "tensor/flop_count.h"

namespace spillway {
namespace {

thread_local FlopCount* counting = nullptr;

}  // namespace

FlopCount::FlopCount() : outer_(counting) { counting = this; }
FlopCount::~FlopCount() { counting = outer_; }

void count_flops(double flops) {
  for (FlopCount* count = counting; count; count = count->outer_) count->flops_ += flops;
}

}  // namespace spillway
