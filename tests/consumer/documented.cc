// The C++ that docs/ shows, block by block as it stands there: test.sh puts it into blocks.inc. Runs in a folder with a text.
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
