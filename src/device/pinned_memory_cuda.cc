#include <sched.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "base/units.h"
#include "device/cuda_handle.h"
#include "device/gpu_copy_cuda.h"
#include "device/memory_source.h"

namespace spillway {
namespace {

// The largest number of threads that touch and lock memory. More threads do not speed up the kernel's zeroing and the driver's pinning.
constexpr i64 kMostThreads = 8;
constexpr i64 kTouchedBytes = 64 * kMiB;  // the number of bytes that a thread touches as one task
constexpr i64 kHostPage = 4 * kKiB;

struct Piece {
  std::byte* at;
  i64 bytes;
};
std::vector<Piece> pieces_of(std::byte* at, i64 bytes) {
  std::vector<Piece> pieces;
  for (i64 done = 0; done < bytes; done += pieces.back().bytes)
    pieces.push_back({at + done, std::min(rest_of_piece(at + done), bytes - done)});
  return pieces;
}

void run_on_cores(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core < CPU_SETSIZE) CPU_SET(core, &set);
  }
  sched_setaffinity(0, sizeof set, &set);  // an error is ignored: the memory then lies near the cores on which the thread runs
}

// Keeps the first problem that any of several threads reports.
class Problem {
 public:
  bool none() const { return !there_; }
  void is(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!there_.exchange(true)) why_ = why;
  }
  const std::string& why() const { return why_; }

 private:
  std::atomic<bool> there_ = false;
  std::mutex mutex_;
  std::string why_;
};

class PinnedMemory final : public MemorySource {
 public:
  explicit PinnedMemory(Pinning pinning) : pinning_(std::move(pinning)) {}

  std::byte* take(i64 bytes) override {
    std::byte* at = pages_->take(bytes);
    if (!at) return nullptr;
    const std::string why = lock(at, bytes);
    if (pinning_.progress) pinning_.progress(bytes, bytes);
    locked_[at] = why.empty();
    if (!why.empty() && pinning_.refused) pinning_.refused(bytes, why);
    return at;
  }
  void give_back(std::byte* at, i64 bytes) noexcept override {
    const auto locked = locked_.find(at);
    if (locked->second) unlock(pieces_of(at, bytes));
    locked_.erase(locked);
    pages_->give_back(at, bytes);
  }

 private:
  // Locks all of the memory, or none of it if a piece is refused. Returns why locking failed; empty on success.
  std::string lock(std::byte* at, i64 bytes) const {
    const std::vector<Piece> pieces = pieces_of(at, bytes);
    std::vector<char> locked(pieces.size(), 0);
    Problem problem;
    std::atomic<i64> done_twice = 0;
    const auto done = [&](i64 more) {
      const i64 halves = done_twice += more;
      if (pinning_.progress && halves < 2 * bytes) pinning_.progress(halves / 2, bytes);
    };
    try {
      touch(at, bytes, done);
      on_threads(std::ssize(pieces), [&](i64 n) {
        const Piece& piece = pieces[static_cast<size_t>(n)];
        if (!problem.none()) return;
        const cudaError_t status = cudaHostRegister(piece.at, static_cast<size_t>(piece.bytes), cudaHostRegisterPortable);
        if (status == cudaSuccess) {
          locked[static_cast<size_t>(n)] = 1;
          done(piece.bytes);
        } else {
          static_cast<void>(cudaGetLastError());
          problem.is(std::string("cudaHostRegister says ") + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
        }
      });
    } catch (const Error& error) {  // the system refused to start a thread, so no memory stays locked
      problem.is(error.what());
    }
    if (problem.none()) return "";
    std::vector<Piece> back;
    for (size_t n = 0; n < pieces.size(); ++n) {
      if (locked[n]) back.push_back(pieces[n]);
    }
    unlock(back);
    return problem.why();
  }

  void unlock(const std::vector<Piece>& pieces) const noexcept {
    std::vector<std::atomic<char>> done(pieces.size());
    const auto unlock_one = [&](i64 n) {
      if (!done[static_cast<size_t>(n)].exchange(1)) static_cast<void>(cudaHostUnregister(pieces[static_cast<size_t>(n)].at));
    };
    try {
      on_threads(std::ssize(pieces), unlock_one);
    } catch (const Error&) {
      static_cast<void>(cudaSetDevice(pinning_.gpu));
      for (i64 n = 0; n < std::ssize(pieces); ++n) unlock_one(n);
    }
  }

  // Touches all pages, so that they exist in memory near the GPU before the driver locks them. The driver locks pages one after the other.
  template <class Done>
  void touch(std::byte* at, i64 bytes, const Done& done) const {
    on_threads(ceil_div(bytes, kTouchedBytes), [&](i64 n) {
      const i64 begin = n * kTouchedBytes, end = std::min(bytes, begin + kTouchedBytes);
      for (i64 page = begin; page < end; page += kHostPage) *static_cast<volatile std::byte*>(at + page) = std::byte{0};
      done(end - begin);
    });
  }

  // Calls body(0) … body(count - 1) once each on worker threads. Each thread selects the GPU first; otherwise CUDA would open GPU 0.
  template <class Body>
  void on_threads(i64 count, const Body& body) const {
    std::atomic<i64> next = 0;
    const auto work = [&] {
      run_on_cores(pinning_.cores);
      static_cast<void>(cudaSetDevice(pinning_.gpu));
      for (i64 n = next++; n < count; n = next++) body(n);
    };
    const i64 cores = pinning_.cores.empty() ? std::max<i64>(1, std::thread::hardware_concurrency()) : std::ssize(pinning_.cores);
    std::vector<std::thread> threads;
    for (i64 t = 0; t < std::min({count, cores, kMostThreads}); ++t) {
      try {
        threads.push_back(start_thread(work));
      } catch (const Error&) {
        if (threads.empty()) throw;
        break;
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  const Pinning pinning_;
  const std::unique_ptr<MemorySource> pages_ = system_memory();
  std::map<std::byte*, bool> locked_;  // whether each allocation, by its address, is locked
};

}  // namespace

std::unique_ptr<MemorySource> pinned_memory(Pinning pinning) { return std::make_unique<PinnedMemory>(std::move(pinning)); }

}  // namespace spillway
