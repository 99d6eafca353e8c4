// Defines Stream, the execution context of code: the device, the threads it may use and the allocator of its memory. The code
// that drives a computation makes a Stream for each rank and for each thread of the rank that computes, and makes it current
// for the calling thread with StreamScope; ops and kernels call Stream::current(). There is no process-wide current stream,
// because ranks may be threads. A thread without a stream computes serially on the CPU with memory from MemoryPool::heap().
#pragma once
#include "base/thread_pool.h"
#include "device/allocator.h"
#include "device/device.h"

struct CUstream_st;  // the struct behind cudaStream_t

namespace spillway {

/// Says whether a GPU may use tensor cores for f32 products. Tensor cores keep only 10 of the 23 fraction bits of each operand.
struct Tf32 {
  bool matmul = false, conv = false;
};

struct Stream {
  Device device;
  ThreadPool* threads = nullptr;  // the compute threads; null means that work runs serially
  Allocator* memory = nullptr;    // the memory of the stream; never null in a current stream
  CUstream_st* queue = nullptr;   // the queue of a GPU, on which kernels and copies are executed in order
  Tf32 tf32;

  bool is_meta() const { return device.is_meta(); }
  /// Runs tasks as ThreadPool::run does. Without a pool the tasks run serially.
  void run(i64 count, const std::function<void(i64 task, int thread)>& task) const;
  /// Calls `body` as ThreadPool::for_ranges does. Without a pool the calls are serial.
  void for_ranges(i64 n, i64 grain, const std::function<void(i64 begin, i64 end)>& body) const;
  int thread_count() const { return threads ? threads->threads() : 1; }

  static const Stream& current();
};

class StreamScope {
 public:
  explicit StreamScope(const Stream& stream);  // makes `stream`, which must outlive the scope, the current stream
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  const Stream* outer_;
};

}  // namespace spillway
