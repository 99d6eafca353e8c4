// a[i] += s * b[i] in place by the widest vectors of this CPU: the loop whose bandwidth is the memory's ceiling, here and in bench/.
// Thread-safe; one thread's share.
#pragma once
#include "base/types.h"

namespace spillway::app {

/// 12 bytes of memory traffic an element.
constexpr double kAxpyBytes = 12;
void axpy(float* a, const float* b, i64 n, float s);

}  // namespace spillway::app
