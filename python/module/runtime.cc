#include "python/module/runtime.h"

#include <pthread.h>

#include <atomic>
#include <memory>

#include "app/node/grant.h"
#include "base/error.h"
#include "device/memory_pool.h"

namespace spillway::python {
namespace {

std::atomic<bool> computed{false}, forked{false};
std::atomic<int> under_way{0};

struct Threads {
  std::unique_ptr<ThreadPool> pool;
  int wanted = 0;
};
// Never destroyed: a thread may still compute while the interpreter ends.
Threads& threads() {
  static Threads* const one = new Threads();
  return *one;
}

void watch_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] {
    if (computed) forked = true;
  });
  static_cast<void>(once);
}

// Under the GIL.
ThreadPool* pool() {
  check_process();
  Threads& all = threads();
  if (!all.pool) all.pool = std::make_unique<ThreadPool>(get_threads());
  return all.pool.get();
}

Stream stream_on(Device device) {
  if (device != Device::cpu())
    throw Error(ErrorCode::usage,
                "[device] expected a tensor on the CPU, got one on " + to_string(device) + ": bring it to host memory first");
  return {device, pool(), &MemoryPool::heap()};
}

}  // namespace

void check_process() {
  if (forked) {
    throw Error(
        ErrorCode::usage,
        "[fork] expected a process that was started afresh, got a fork of one in which spillway had computed: its threads are not here; "
        "use multiprocessing's \"spawn\" start method, or fork before the first computation");
  }
  watch_forks();
  computed = true;
}

Running::Running(Device device) : stream_(stream_on(device)), scope_(stream_) { ++under_way; }
Running::~Running() { --under_way; }

void set_threads(int count) {
  if (count < 1) throw Error(ErrorCode::usage, "[set_threads] expected 1 or more, got " + std::to_string(count));
  if (under_way > 0) throw Error(ErrorCode::usage, "[set_threads] expected a moment when nothing computes: another thread does");
  threads().wanted = count;
  threads().pool.reset();
}

int get_threads() {
  Threads& all = threads();
  if (all.wanted == 0) all.wanted = app::core_grant(app::Host{}).cores;
  return all.wanted;
}

void bind_runtime(nb::module_& module) {
  module.def("set_threads", set_threads, nb::arg("threads"),
             "Compute threads of tensors, models and optimizers from now on (a Trainer has its own flag). No result depends on it.");
  module.def("get_threads", get_threads, "Compute threads; at first as many as cores are granted to this process.");
}

}  // namespace spillway::python
