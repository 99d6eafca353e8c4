// Runs kernels thread by thread: each thread of a block is a fiber that runs until it waits. A real GPU does not define the order
// of blocks, warps and lanes, nor when a cp.async arrives. The emulation draws both at random, from SPILLWAY_EMULATED_SEED.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include "fiber_switch.h"
#include "race_detector.h"
#include "work.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;

namespace emulated_cuda {
namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr int kLanes = 32;

std::minstd_rand& chance() {
  static const char* const seed = std::getenv("SPILLWAY_EMULATED_SEED");
  static thread_local std::minstd_rand numbers(seed ? static_cast<unsigned>(std::atoi(seed)) + 1 : 1);
  return numbers;
}
size_t any_below(size_t n) { return chance()() % n; }

// A barrier opens once all threads of its group that have not ended have arrived.
struct Barrier {
  int come = 0;
  unsigned opened = 0;  // the number of times that the barrier has opened
  // one barrier for this round and one for the next, since some threads arrive for the next round before others have left this one
  Meeting meetings[2];
};

struct Warp {
  Barrier barrier;
  unsigned lanes = 0;  // a mask with one bit for each lane that has not ended
  int alive = 0;
  alignas(16) std::byte given[kLanes][16];
  alignas(16) std::byte published[2][kLanes][kPublishedBytes];
};

// A cp.async (asynchronous copy) that the thread has not waited for yet.
struct Copy {
  unsigned to;
  const void* from;
  size_t bytes, there;
  unsigned group;
};

// Owns a fiber's stack. Stacks are kept for later launches, since allocating new ones would cost more than most kernels.
class Stack {
 public:
  Stack() {
    if (kept().empty()) {
      memory_.reset(new std::byte[kStackBytes]);
    } else {
      memory_ = std::move(kept().back());
      kept().pop_back();
    }
#if defined(__SANITIZE_ADDRESS__)
    // Fibers end without leaving their functions, so their stack frames are still poisoned.
    __asan_unpoison_memory_region(memory_.get(), kStackBytes);
#endif
  }
  Stack(Stack&&) = default;
  ~Stack() {
    if (memory_) kept().push_back(std::move(memory_));
  }
  std::byte* get() const { return memory_.get(); }

 private:
  using Memory = std::unique_ptr<std::byte[]>;
  static std::vector<Memory>& kept() {
    static thread_local std::vector<Memory> all;
    return all;
  }
  Memory memory_;
};

struct Fiber {
  Context context;
  Stack stack;
  uint3 index;
  const Barrier* waits_for = nullptr;
  unsigned until = 0;  // the value of waits_for->opened until which the fiber does not run again
  bool ended = false;
  void* fake_stack = nullptr;  // used by AddressSanitizer
  SeenAsThread seen;           // identity of the fiber as ThreadSanitizer sees it
  unsigned publications = 0, copy_groups = 0;
  std::vector<Copy> copies;

  bool runs() const { return !ended && (!waits_for || waits_for->opened != until); }
};

class Block {
 public:
  static thread_local Block* running;

  Block(const cudaLaunchConfig_t& config, const std::function<void()>& thread)
      : thread_(thread), fibers_(config.blockDim.x * config.blockDim.y * config.blockDim.z), shared_(config.dynamicSmemBytes + 1) {
    warps_.resize((fibers_.size() + kLanes - 1) / kLanes);
    order_.resize(warps_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
  }

  void run() {
    running = this;
    alive_ = static_cast<int>(fibers_.size());
    barrier_ = {};
    for (Warp& warp : warps_) warp = {};
    for (size_t t = 0; t < fibers_.size(); ++t) start(t);
    std::memset(shared_.data(), 0xff, shared_.size());
    begin_.come();
    while (alive_ > 0) {
      // Each warp runs as far as it can, so that warps get as far apart as the barriers of the block allow.
      bool any = false;
      std::shuffle(order_.begin(), order_.end(), chance());
      for (const size_t warp : order_) {
        while (sweep(warp * kLanes)) any = true;
      }
      if (!any && alive_ > 0) {
        std::fprintf(stderr, "emulated CUDA: %d threads of block (%u, %u, %u) wait for each other\n", alive_, blockIdx.x, blockIdx.y,
                     blockIdx.z);
        std::abort();
      }
    }
    end_.leave();
    running = nullptr;
  }

  void wait_for_block() { wait(barrier_, alive_); }
  void wait_for_warp() { wait(warp().barrier, warp().alive); }
  int lane() const { return static_cast<int>(now_ % kLanes); }
  Warp& warp() { return warps_[now_ / kLanes]; }
  std::byte* shared() { return shared_.data(); }
  Fiber& fiber() { return fibers_[now_]; }

 private:
  // Runs the threads of the warp that begins at thread `first` until all of them wait. Returns whether any could run.
  bool sweep(size_t first) {
    bool any = false;
    const size_t lanes = std::min<size_t>(kLanes, fibers_.size() - first), turn = any_below(lanes);
    for (size_t lane = 0; lane < lanes; ++lane) {
      const size_t t = first + (lane + turn) % lanes;
      if (!fibers_[t].runs()) continue;
      any = true;
      go_on(t);
    }
    return any;
  }

  void start(size_t t) {
    Fiber& f = fibers_[t];
    const auto at = static_cast<unsigned>(t);
    f.index = {at % blockDim.x, at / blockDim.x % blockDim.y, at / blockDim.x / blockDim.y};
    f.waits_for = nullptr, f.ended = false;
    f.publications = f.copy_groups = 0;
    f.copies.clear();
    begin_at(f.context, f.stack.get(), kStackBytes, &Block::enter);
    ++warps_[t / kLanes].alive;
    warps_[t / kLanes].lanes |= 1u << t % kLanes;
  }

  static void enter() {
    switched_to(nullptr);
    running->begin_.leave();
    running->thread_();
    running->end_.come();
    running->end();
  }

  void end() {
    Fiber& f = fibers_[now_];
    f.ended = true;
    // The ended lane's bytes are cleared one by one, as volatile, so that ThreadSanitizer counts no access by the kernel.
    for (volatile std::byte& given : warp().given[lane()]) given = std::byte{0};
    --alive_, --warp().alive;
    warp().lanes &= ~(1u << lane());
    open_if_all(barrier_, alive_);
    open_if_all(warp().barrier, warp().alive);
#if defined(__SANITIZE_ADDRESS__)
    __asan_handle_no_return();  // tells AddressSanitizer that the current function never returns
#endif
    leave(nullptr);
  }

  void wait(Barrier& barrier, const int& members) {
    Fiber& f = fibers_[now_];
    f.until = barrier.opened;
    Meeting& meeting = barrier.meetings[f.until % 2];
    meeting.come();
    ++barrier.come;
    open_if_all(barrier, members);
    if (barrier.opened == f.until) {
      f.waits_for = &barrier;
      leave(&f.fake_stack);
      f.waits_for = nullptr;
    }
    meeting.leave();
  }

  static void open_if_all(Barrier& barrier, int members) {
    if (barrier.come == 0 || barrier.come < members) return;
    barrier.come = 0;
    ++barrier.opened;
  }

  // Switches to fiber `t`, which runs until it waits or ends.
  void go_on(size_t t) {
    now_ = t;
    threadIdx = fibers_[t].index;
    void* fake_stack = nullptr;
    switching(&fake_stack, fibers_[t].stack.get(), kStackBytes);
    fibers_[t].seen.enter();
    switch_to(home_, fibers_[t].context);
    switched_to(fake_stack);
  }

  // Switches from the current fiber back to the block's scheduler.
  void leave(void** fake_stack) {
    Fiber& f = fibers_[now_];
    switching(fake_stack, home_stack_, home_stack_bytes_);
    home_seen_.enter();
    switch_to(f.context, home_);
    switched_to(f.fake_stack);
  }

  static void switching([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
#endif
  }
  static void switched_to([[maybe_unused]] void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    if (!fake_stack && running->home_stack_ == nullptr) running->home_stack_ = bottom, running->home_stack_bytes_ = bytes;
#endif
  }

  const std::function<void()>& thread_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<size_t> order_;  // the random order in which the warps run next
  std::vector<std::byte> shared_;
  Barrier barrier_;
  Meeting begin_, end_;  // tell ThreadSanitizer in which order the block's threads and the CPU thread that runs them execute
  SeenAsThread home_seen_{SeenAsThread::caller()};
  int alive_ = 0;
  size_t now_ = 0;
  Context home_;
  const void* home_stack_ = nullptr;  // used by AddressSanitizer
  size_t home_stack_bytes_ = 0;
};
thread_local Block* Block::running = nullptr;

// Under ThreadSanitizer, blocks run on several CPU threads, enough that blocks are likely
// to run at the same time. ThreadSanitizer then sees how they access the same memory.
size_t threads_for(size_t blocks) { return std::min<size_t>(kRaceDetector ? 4 : 1, blocks); }
template <class Work>
void on_threads(size_t blocks, Work work) {
  const size_t threads = threads_for(blocks);
  if (threads == 1) return work(size_t{0}, blocks);
  std::vector<std::thread> all;
  for (size_t t = 0; t < threads; ++t) all.emplace_back(work, blocks * t / threads, blocks * (t + 1) / threads);
  for (std::thread& one : all) one.join();
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread) {
  const size_t threads = size_t{config.blockDim.x} * config.blockDim.y * config.blockDim.z;
  const bool legal = threads > 0 && threads <= 1024 && config.gridDim.x > 0 && config.gridDim.y > 0 && config.gridDim.z > 0 &&
                     config.gridDim.y <= 65535 && config.gridDim.z <= 65535 && config.dynamicSmemBytes <= dynamic_shared_bytes(kernel);
  if (!legal) return cudaErrorInvalidValue;
  load(kernel);
  const auto run = [config, thread = std::move(thread)] {
    const Running running;
    const size_t blocks = size_t{config.gridDim.x} * config.gridDim.y * config.gridDim.z;
    // The stride has no common factor with the number of blocks, so every block is visited once.
    const size_t first = any_below(blocks);
    size_t stride = 1 + any_below(blocks);
    while (std::gcd(stride, blocks) != 1) ++stride;
    // All Block objects are created before any of them runs. Otherwise one Block could reuse fibers that
    // a finished Block has returned, and the race detector would take the threads of both for the same.
    std::latch made(static_cast<std::ptrdiff_t>(threads_for(blocks)));
    on_threads(blocks, [&](size_t begin, size_t end) {
      gridDim = config.gridDim, blockDim = config.blockDim;
      Block block(config, thread);
      made.arrive_and_wait();
      for (size_t i = begin; i < end; ++i) {
        const size_t at = (first + i * stride) % blocks;
        blockIdx = {static_cast<unsigned>(at % gridDim.x), static_cast<unsigned>(at / gridDim.x % gridDim.y),
                    static_cast<unsigned>(at / gridDim.x / gridDim.y)};
        block.run();
      }
    });
  };
  const Cost cost = cost_of_kernel(threads * config.gridDim.x * config.gridDim.y * config.gridDim.z);
  return enqueue(config.stream, "cudaLaunchKernelEx", run, cost);
}

// The compiler's sanitizers watch memory.
void memory_taken(const void*, size_t, bool) {}
void memory_given_back(const void*) {}
void memory_written(const void*, size_t) {}

std::byte* dynamic_shared() { return Block::running->shared(); }
void wait_for_block() { Block::running->wait_for_block(); }
void wait_for_warp() { Block::running->wait_for_warp(); }
int lane() { return Block::running->lane(); }

void check_mask(unsigned mask) {
  Block& block = *Block::running;
  const unsigned lanes = block.warp().lanes;
  if ((mask >> block.lane() & 1) != 0 && (lanes & ~mask) == 0) return;
  std::fprintf(stderr, "emulated CUDA: lane %d comes with a mask of %08x where the lanes %08x run\n", block.lane(), mask, lanes);
  std::abort();
}

void exchange(const void* mine, void* theirs, size_t bytes, int source) {
  Block& block = *Block::running;
  Warp& warp = block.warp();
  std::memcpy(warp.given[block.lane()], mine, bytes);
  block.wait_for_warp();
  std::memcpy(theirs, warp.given[source], bytes);
  block.wait_for_warp();
}

const std::byte* publish(const void* mine, size_t bytes) {
  Block& block = *Block::running;
  Warp& warp = block.warp();
  if (warp.alive != kLanes) {
    std::fprintf(stderr, "emulated CUDA: an instruction of a whole warp, of which %d threads are left\n", warp.alive);
    std::abort();
  }
  auto& slots = warp.published[block.fiber().publications++ % 2];
  std::memcpy(slots[block.lane()], mine, bytes);
  block.wait_for_warp();
  return slots[0];
}

static void land(const Copy& copy) {
  std::byte* to = Block::running->shared() + copy.to;
  if (copy.there > 0) std::memcpy(to, copy.from, copy.there);
  std::memset(to + copy.there, 0, copy.bytes - copy.there);
}

void cp_async(unsigned to, const void* from, size_t bytes, size_t there) {
  Block& block = *Block::running;
  if (to % bytes != 0 || (there > 0 && reinterpret_cast<std::uintptr_t>(from) % bytes != 0)) {
    std::fprintf(stderr, "emulated CUDA: cp.async of %zu bytes that do not begin at a multiple of it\n", bytes);
    std::abort();
  }
  // A cp.async arrives either at once, overwriting what other threads may still read, or
  // as late as allowed. In the second case the destination is NaN until the copy arrives.
  const Copy copy{to, from, bytes, there, block.fiber().copy_groups};
  if (any_below(2) == 0) return land(copy);
  std::memset(block.shared() + to, 0xff, bytes);
  block.fiber().copies.push_back(copy);
}
void cp_async_commit() { ++Block::running->fiber().copy_groups; }
void cp_async_wait(unsigned pending) {
  Fiber& f = Block::running->fiber();
  std::erase_if(f.copies, [&](const Copy& copy) {
    if (copy.group + pending >= f.copy_groups) return false;
    land(copy);
    return true;
  });
}

unsigned ballot(bool mine) {
  unsigned votes = 0;
  for (int source = 0; source < kLanes; ++source) {
    bool theirs = false;
    exchange(&mine, &theirs, sizeof(bool), source);
    votes |= static_cast<unsigned>(theirs) << source;
  }
  return votes;
}

}  // namespace emulated_cuda
