#include "python/module/runtime.h"

#include <pthread.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>
#include <memory>

#include "base/error.h"
#include "device/device_query.h"
#include "device/memory_pool.h"
#include "python/module/arguments.h"
#include "python/module/errors.h"
#include "python/module/pass.h"
#include "trainer/node/grant.h"

namespace spillway::python {
namespace {

std::atomic<bool> computed{false}, forked{false};

constexpr int kMostThreads = 4096;

struct Threads {
  std::unique_ptr<ThreadPool> pool;
  int wanted = 0;
};
// Returns the module's compute threads, for the thread that has the turn (turn.h). The
// object is never destroyed: a thread may still compute while the interpreter ends.
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

int wanted_threads() {
  Threads& all = threads();
  if (all.wanted == 0) all.wanted = trainer::core_grant(trainer::Host{}).threads;
  return all.wanted;
}

ThreadPool* pool() {
  Threads& all = threads();
  if (!all.pool) all.pool = std::make_unique<ThreadPool>(wanted_threads());
  return all.pool.get();
}

// Returns the memory of the machine, including swap, or the limit of the process's cgroup
// if that is lower. Linux would promise more, and kill the process when it uses more.
i64 host_memory_bytes() {
  struct sysinfo machine = {};
  if (::sysinfo(&machine) != 0) return kUnlimited;
  const auto bytes = static_cast<i64>((machine.totalram + machine.totalswap) * machine.mem_unit);
  return std::min(bytes, trainer::memory_grant(trainer::Host{}).cgroup_limit_bytes.value_or(bytes));
}

MemoryPool* host_memory() {
  static auto* const pool = new MemoryPool("host", host_memory_bytes(), "that is all this machine, or the process's cgroup, has");
  return pool;
}

// Returns the memory pools of the GPUs that were used, for the thread that has the turn (turn.h). The pools
// are never destroyed, because a thread may still compute while the interpreter ends.
std::map<int, std::unique_ptr<MemoryPool>>& gpu_pools() {
  static auto* const all = new std::map<int, std::unique_ptr<MemoryPool>>();
  return *all;
}

MemoryPool* memory_of(Device gpu) {
  std::unique_ptr<MemoryPool>& memory = gpu_pools()[gpu.index];
  if (memory) return memory.get();
  const GpuReport report = query_gpus(gpu.index, GpuWaiting::as_it_is);
  const auto count = std::ssize(report.gpus);
  const std::string problem = count == 0           ? report.problem
                              : gpu.index >= count ? "the number of GPUs is " + std::to_string(count)
                                                   : report.gpus[static_cast<size_t>(gpu.index)].problem;
  if (!problem.empty()) throw Error(ErrorCode::usage, "[device] expected a GPU that can be used, got " + to_string(gpu) + ": " + problem);
  memory = std::make_unique<MemoryPool>(to_string(gpu), kUnlimited, "", pooled_gpu_memory(gpu.index));
  return memory.get();
}

Stream stream_on(Device device) {
  if (!device.is_cuda()) return {device, pool(), host_memory()};
  MemoryPool* const memory = memory_of(device);
  return {device, pool(), memory, common_gpu_queue()};
}

}  // namespace

void check_process() {
  if (forked) {
    throw Error(ErrorCode::usage,
                "[fork] expected a process that was started afresh, got a fork of one that had already computed with spillway, whose "
                "threads a fork does not copy: use multiprocessing's \"spawn\" start method, or fork before the first computation");
  }
  watch_forks();
  computed = true;
}

void settle(Device device, Settle what) noexcept {
  if (!device.is_cuda()) return;
  try {
    what == Settle::all ? wait_for_gpu(device) : wait_for_common_queue(device);
  } catch (const Error&) {  // the error is ignored here: the thread that computes on the GPU gets it
  }
}

Device device_of(const nb::handle& given) {
  const std::string name = words_of(given);
  if (name == "cpu") return Device::cpu();
  int index = 0;
  bool known = name == "cuda";
  if (name.starts_with("cuda:")) {
    const char *begin = name.data() + 5, *end = name.data() + name.size();
    const auto [at, error] = std::from_chars(begin, end, index);
    known = error == std::errc() && at == end && index >= 0;
  }
  if (!known) throw WrongValue("device: expected cpu, cuda or cuda:1, got " + name);
  return Device::cuda(index);
}

Running::Running(Device device, bool long_enough, InForward in_forward) {
  if (Pass::current() == nullptr || in_forward == InForward::refused) {
    check_process();
    turn_.emplace(long_enough);
    stream_ = stream_on(device);
  } else {
    if (long_enough) unlocked_.emplace();
    if (in_forward == InForward::on_block) return;
    if (device != Device::cpu())
      throw Error(ErrorCode::usage, "[forward] expected arrays in host memory in a block's forward, got one on " + to_string(device));
    stream_.memory = &MemoryPool::heap();
  }
  current_.emplace(device);
  scope_.emplace(stream_);
}

namespace {

void set_threads(const Whole& threads_wanted) {
  const i64 count = threads_wanted;
  if (count < 1 || count > kMostThreads)
    throw WrongValue("[set_threads] expected 1 to " + std::to_string(kMostThreads) + " threads, got " + std::to_string(count));
  check_process();
  const Turn turn(true);
  threads().wanted = static_cast<int>(count);
  threads().pool.reset();
}

void empty_cache() {
  check_process();
  const Turn turn(true);
  for (const auto& [gpu, memory] : gpu_pools()) {
    if (memory) trim_gpu_memory(gpu);
  }
}

int get_threads() {
  const Turn turn(false);
  return wanted_threads();
}

}  // namespace

void bind_runtime(nb::module_& module) {
  module.def(
      "set_threads", set_threads, nb::arg("threads"),
      "Sets the number of compute threads of tensors, models and optimizers (a Trainer has its own flag). Results do not depend on it.");
  module.def(
      "empty_cache", empty_cache,
      "Gives the GPU memory of tensors that no longer exist back to the driver, for PyTorch or other processes. Until then it is kept "
      "for\nother tensors. A request that the GPU cannot meet does the same before it is refused.");
  module.def("get_threads", get_threads,
             "The number of compute threads; at first the number of cores granted to this process, or OMP_NUM_THREADS if that is less.");
}

}  // namespace spillway::python
