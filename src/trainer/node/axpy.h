// axpy() and plain_sum() are two loops for measuring memory bandwidth; this program and bench/ use them. axpy() computes a[i] += s *
// b[i] in place, plain_sum() only reads. Both use the widest vectors of this CPU and run on the calling thread alone. Thread-safe.
#pragma once
#include "base/types.h"

namespace spillway::trainer {

/// kAxpyBytes is the memory traffic of axpy() per element: two floats are read and one is written.
constexpr double kAxpyBytes = 12;
void axpy(float* a, const float* b, i64 n, float s);
/// Returns the sum of a[0] … a[n - 1], added in an unspecified order. Eight parts of the array are read side by side, because the processor
/// prefetches for each of them; reading a single stream is only three quarters as fast.
float plain_sum(const float* a, i64 n);

}  // namespace spillway::trainer
