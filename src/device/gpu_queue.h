// Defines GpuQueue, a queue of work for a GPU (a CUDA stream), and GpuEvent, an event on it. One version is built
// with CUDA and one without, in which no queue can be created. Driver errors, including those of work queued
// earlier, are Error(io). An index outside its range that a kernel found is Error(data) of the next wait. Thread-safe: work that several threads queue at one time is executed in some order.
#pragma once
#include <memory>

#include "device/device.h"
#include "device/event.h"

struct CUstream_st;  // the struct behind cudaStream_t
struct CUevent_st;   // the struct behind cudaEvent_t

namespace spillway {

class GpuEvent;

/// The priority of a queue. When multiprocessors become free, thread blocks of urgent work get them before those of other queues.
enum class Urgency { plain, urgent };

class GpuQueue {
 public:
  /// Creates a queue on `gpu`. Throws Error(usage) in a build without CUDA.
  explicit GpuQueue(Device gpu, Urgency urgency = Urgency::plain);
  ~GpuQueue();
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;

  CUstream_st* handle() const { return handle_; }
  /// Blocks until all work on the queue is done.
  void wait() const;
  /// Puts a copy on the queue. Each region may be memory of the GPU or of the host. The copy is executed when the queue reaches it.
  void copy(std::byte* to, const std::byte* from, i64 bytes) const;
  /// Makes work that is queued from now on start only after `event` has happened.
  void wait_for(const GpuEvent& event) const;
  /// Makes work that is queued on this queue from now on start only after all present work of `other` is done.
  void follow(const GpuQueue& other) const;
  /// Returns an event that happens when all present work of the queue is done. The queue must outlive the event's users.
  Event moment() const;

 private:
  class Moment;
  struct Idle;
  const Device gpu_;
  CUstream_st* handle_ = nullptr;
  std::shared_ptr<Idle> idle_;  // reusable CUDA events that nobody waits for any more
};

/// A point on a queue: the moment when all work queued before record() is done. Another record() replaces the
/// point, but threads that already wait for the previous point go on waiting for the previous one. Thread
/// safety: one thread records; other threads may wait for a recording that they were told of after it was made.
class GpuEvent {
 public:
  explicit GpuEvent(Device gpu);
  ~GpuEvent();
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  void record(const GpuQueue& queue) const;
  bool ready() const;
  /// Blocks the calling thread until the event has happened.
  void wait() const;
  /// Returns the seconds between two events, both of which must have happened.
  double seconds_since(const GpuEvent& earlier) const;
  CUevent_st* handle() const { return handle_; }

 private:
  CUevent_st* handle_ = nullptr;
};

/// Returns how often threads of this process stalled for a GPU: they waited for a queue or an event with unfinished work, or copied host
/// memory that is not page-locked, which the driver does synchronously.
i64 gpu_waits();

/// Makes the GPU the current one of the calling thread. For a CPU the call does nothing.
void use_device(Device device);
/// Makes a GPU current for as long as the object lives. The destructor makes the previous GPU current
/// again, as other libraries in the process expect, unless this process has not opened the previous GPU.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  // the GPU to restore; -1 if there is none
};

/// Returns the queue of the calling thread's GPU that libraries use by default (CUDA's legacy default stream, also PyTorch's). Work on this
/// queue is thus ordered with the work of other libraries on shared memory. Ranks use other queues. Returns null in a build without CUDA.
CUstream_st* common_gpu_queue();
/// Blocks until all present work on common_gpu_queue() is done.
void wait_for_common_queue(Device gpu);
/// Makes what another library puts on its queue `other` from now on start only after all present work on common_gpu_queue(). Does not
/// block.
void let_follow_common_queue(Device gpu, CUstream_st* other);
/// Blocks until all work on all queues of the GPU is done, whichever library of this process queued it.
void wait_for_gpu(Device gpu);

}  // namespace spillway
