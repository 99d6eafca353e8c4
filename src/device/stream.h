// What code needs to run: the device, the threads it may use and the memory it may take. One per rank and lane, made by whoever drives the
// computation and put in force for the calling thread by StreamScope; ops and kernels ask for Stream::current(). There is no process-wide
// current stream: ranks may be threads. A thread that was given none computes serially on the CPU with memory from MemoryPool::heap().
#pragma once
#include "base/thread_pool.h"
#include "device/allocator.h"
#include "device/device.h"

struct CUstream_st;  // cudaStream_t's

namespace spillway {

/// Where a GPU may multiply f32 on its tensor cores, which take 10 of the 23 bits behind an operand's point.
struct Tf32 {
  bool matmul = false, conv = false;
};

struct Stream {
  Device device;
  ThreadPool* threads = nullptr;  // null: serial
  Allocator* memory = nullptr;    // never null in a stream in force
  CUstream_st* queue = nullptr;   // of a GPU: what kernels and copies are put on, to be done in order, later
  Tf32 tf32;

  bool is_meta() const { return device.is_meta(); }
  /// ThreadPool::run, serial without a pool.
  void run(i64 count, const std::function<void(i64 task, int thread)>& task) const;
  /// ThreadPool::for_ranges, serial without a pool.
  void for_ranges(i64 n, i64 grain, const std::function<void(i64 begin, i64 end)>& body) const;
  int thread_count() const { return threads ? threads->threads() : 1; }

  static const Stream& current();
};

class StreamScope {
 public:
  explicit StreamScope(const Stream& stream);  // `stream` must outlive the scope
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  const Stream* outer_;
};

}  // namespace spillway
