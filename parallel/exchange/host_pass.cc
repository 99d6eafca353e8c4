#include "parallel/exchange/host_pass.h"

#include <array>

#include "parallel/comm/pending.h"

namespace spillway::parallel {

HostPass::HostPass(MemoryPool& host, i64 buffer_bytes)
    : buffer_bytes_(buffer_bytes), memory_(host.allocate(2 * buffer_bytes, "between the GPU and other ranks")) {}

// Both host buffers can be reused safely. A buffer is filled after the copies out of it, because both copies are on one queue. The
// communicator uses the buffer only after queue.wait(), when these copies are done.
void HostPass::run(const GpuQueue& queue, i64 pieces, const Work& work) {
  std::array<Pending, 2> crossing;
  for (i64 p = 0; p <= pieces; ++p) {
    if (p < pieces) {
      if (work.fill) work.fill(p, buffer(p));
      queue.wait();
      crossing[static_cast<size_t>(p % 2)].add(work.cross(p, buffer(p)));
    }
    if (p == 0) continue;
    crossing[static_cast<size_t>((p - 1) % 2)].wait();
    if (work.empty) work.empty(p - 1, buffer(p - 1));
  }
}

}  // namespace spillway::parallel
