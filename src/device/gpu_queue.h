// A queue of work for a GPU (a CUDA stream), and copies on it. Two versions, as device_query.h: without CUDA none can be made. Errors of
// the driver are Error(io), also those of work put on the queue before. Thread-safe: whoever puts work on it at the same time does so in
// some order.
#pragma once
#include <memory>

#include "device/device.h"
#include "device/event.h"

struct CUstream_st;  // cudaStream_t's
struct CUevent_st;   // cudaEvent_t's

namespace spillway {

class GpuEvent;

/// Blocks of urgent work take multiprocessors that come free before those of other queues.
enum class Urgency { plain, urgent };

class GpuQueue {
 public:
  /// Error(usage) in a build without CUDA.
  explicit GpuQueue(Device gpu, Urgency urgency = Urgency::plain);
  ~GpuQueue();
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;

  CUstream_st* handle() const { return handle_; }
  /// Until all that is on it is done.
  void wait() const;
  /// Between any memory of the GPU and the host. Done when the queue has come to it.
  void copy(std::byte* to, const std::byte* from, i64 bytes) const;
  /// What is put on it from now on begins when that has happened.
  void wait_for(const GpuEvent& event) const;
  /// What is put on it from now on begins when all that is on `other` now is done.
  void follow(const GpuQueue& other) const;
  /// When all that is on it now is done. The queue outlives whoever asks.
  Event moment() const;

 private:
  class Moment;
  struct Idle;
  const Device gpu_;
  CUstream_st* handle_ = nullptr;
  std::shared_ptr<Idle> idle_;  // events that no moment needs any more
};

/// A moment on a queue: when all that is on it at record() is done. Recorded again it is another moment; whoever waits for the one before
/// still does. Thread-safety: one thread records, others wait for what was recorded before they were told of it.
class GpuEvent {
 public:
  explicit GpuEvent(Device gpu);
  ~GpuEvent();
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  void record(const GpuQueue& queue) const;
  bool ready() const;
  /// The calling thread, until it has happened.
  void wait() const;
  /// Both have happened.
  double seconds_since(const GpuEvent& earlier) const;
  CUevent_st* handle() const { return handle_; }

 private:
  CUevent_st* handle_ = nullptr;
};

/// How often threads of this process stood still for a GPU: waited for a queue or an event that work stood before, or copied host memory
/// that is not page-locked, which the driver does not do beside them.
i64 gpu_waits();

/// Makes the GPU the calling thread's; nothing for a CPU.
void use_device(Device device);
/// The same while one lives; then the one that was is current again, as the other libraries of a process expect (unless nobody uses it).
class CurrentDevice {
 public:
  explicit CurrentDevice(Device device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  // none to go back to
};

/// Of the calling thread's GPU: the queue that libraries put work on unless they are told another (CUDA's legacy default stream; PyTorch's
/// too), so that what they and we do to the same memory is done in order. Ranks have queues of their own. Null in a build without CUDA.
CUstream_st* common_gpu_queue();
/// Until all that is on any queue of the GPU is done, of whatever library of this process.
void wait_for_gpu(Device gpu);

}  // namespace spillway
