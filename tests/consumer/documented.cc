// Runs the C++ code that docs/ shows: test.sh copies it, block by block and unchanged, into blocks.inc. It runs in a folder that contains a
// text.
#include <iostream>

#include "app/training.h"
#include "base/thread_pool.h"
#include "device/memory_pool.h"
#include "device/stream.h"

using namespace spillway;

namespace {
i64 heard = 0;
void hear_step(const app::StepEvent&) { ++heard; }
}  // namespace

int main() {
#include "blocks.inc"
  std::cout << heard << " steps heard\n";
  return heard == 20 ? 0 : 1;
}
