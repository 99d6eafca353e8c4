#include "device/stream.h"

#include <algorithm>

#include "device/gpu_queue.h"
#include "device/memory_pool.h"

namespace spillway {
namespace {
thread_local const Stream* in_force = nullptr;
}

void Stream::run(i64 count, const std::function<void(i64, int)>& task) const {
  if (threads) return threads->run(count, task);
  ThreadPool::run_in_place(count, task);
}

void Stream::for_ranges(i64 n, i64 grain, const std::function<void(i64, i64)>& body) const {
  run(ceil_div(n, grain), [&](i64 i, int) { body(i * grain, std::min(n, (i + 1) * grain)); });
}

const Stream& Stream::current() {
  static const Stream serial{Device::cpu(), nullptr, &MemoryPool::heap()};
  return in_force ? *in_force : serial;
}

StreamScope::StreamScope(const Stream& stream) : outer_(in_force) {
  use_device(stream.device);
  in_force = &stream;
}
StreamScope::~StreamScope() { in_force = outer_; }

}  // namespace spillway
