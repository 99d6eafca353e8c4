// The loops whose bandwidth is the memory's ceiling, here and in bench/: a[i] += s * b[i] in place by the widest vectors of this CPU, and a
// sum, for what only reads. Thread-safe; one thread's share.
#pragma once
#include "base/types.h"

namespace spillway::app {

/// 12 bytes of memory traffic an element.
constexpr double kAxpyBytes = 12;
void axpy(float* a, const float* b, i64 n, float s);
/// Of eight stretches at once: a processor fetches ahead for each, and of one alone reads three quarters as fast. In no promised order.
float plain_sum(const float* a, i64 n);

}  // namespace spillway::app
