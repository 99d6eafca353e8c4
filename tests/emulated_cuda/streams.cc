// Implements streams (each has a thread), the hardware connections that the streams share, and events.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "work.h"

using namespace emulated_cuda;

namespace {

// Emulates a hardware connection to a GPU. There are CUDA_DEVICE_MAX_CONNECTIONS of them, by default 8. Work on
// a connection begins in the order in which it was queued, whatever its stream. A wait for an event must end
// before the next piece of work begins. Source: "CUDA C++ Programming Guide 13.0, CUDA Environment Variables".
class Connection {
 public:
  /// Gives the next ticket to `push`, which puts work on a stream.
  template <class Push>
  void queue(Push push) {
    const std::lock_guard lock(mutex_);
    push(queued_++);
  }
  void wait_for_turn(std::uint64_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ == ticket; });
  }
  /// Records that work began, at `when` or after earlier work, and lets the next work begin. Returns the time at which it began.
  Nanoseconds began(Nanoseconds when) {
    const std::lock_guard lock(mutex_);
    clock_ = std::max(clock_, when);
    ++begun_;
    changed_.notify_all();
    return clock_;
  }
  Nanoseconds clock() {
    const std::lock_guard lock(mutex_);
    return clock_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t queued_ = 0, begun_ = 0;
  Nanoseconds clock_ = 0;
};

std::shared_ptr<Connection> next_connection(int gpu) {
  struct OfGpu {
    std::vector<std::shared_ptr<Connection>> all;
    size_t next = 0;
  };
  static std::mutex mutex;
  static std::map<int, OfGpu> gpus;
  const std::lock_guard lock(mutex);
  OfGpu& of = gpus[gpu];
  if (of.all.empty()) {
    const char* most = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    for (int i = 0; i < (most ? std::clamp(std::atoi(most), 1, 32) : 8); ++i) of.all.push_back(std::make_shared<Connection>());
  }
  return of.all[of.next++ % of.all.size()];
}

// Holds all streams of a GPU.
struct Streams {
  std::mutex mutex;
  std::set<CUstream_st*> all;
};
Streams& streams(int gpu) {
  static std::mutex mutex;
  static std::map<int, Streams> all;
  const std::lock_guard lock(mutex);
  return all[gpu];
}

void dally(std::minstd_rand& chance) {
  static const char* const most_us = std::getenv("SPILLWAY_EMULATED_DELAY");
  if (most_us && chance() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(chance() % (std::atoi(most_us) + 1)));
}

}  // namespace

// A stream is a queue and the thread that works it off. An error ends the context and so all
// of its streams. After it, queued work is skipped, except for work that others may wait for.
struct CUstream_st {
  struct Task {
    bool always, waits;
    std::function<cudaError_t()> run;
    Cost cost;
    Nanoseconds queued;
    std::uint64_t ticket;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> queue;
  bool busy = false, ends = false;
  const int gpu = current_gpu();
  const std::shared_ptr<Connection> connection = next_connection(gpu);
  Nanoseconds clock = 0;  // the simulated time of the stream's thread; others read it while the stream is idle
  int priority = 0;       // the priority that queries return; it has no effect
  std::thread thread{[this] { work(); }};

  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_all();
    thread.join();
  }
  void work() {
    std::minstd_rand chance(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(this) >> 6));
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ends || !queue.empty(); });
      if (queue.empty()) return;
      const Task task = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      connection->wait_for_turn(task.ticket);
      clock = std::max({clock, task.queued, connection->clock()});
      if (!task.waits) begin(task.cost);
      dally(chance);
      const cudaError_t status = task.always || open_context(gpu) == cudaSuccess ? task.run() : cudaSuccess;
      if (task.waits) begin(task.cost);
      lock.lock();
      if (status != cudaSuccess) end_context(gpu, status);
      busy = false;
      changed.notify_all();
    }
  }
  void begin(const Cost& cost) {
    if (cost.engine != Engine::none) clock = engine_of(gpu, cost.engine).take(clock, cost.time);
    connection->began(clock);
    clock += cost.time;
  }
  void push(bool always, std::function<cudaError_t()> task, Cost cost = {}, bool waits = false) {
    connection->queue([&](std::uint64_t ticket) {
      const std::lock_guard lock(mutex);
      queue.push_back({always, waits, std::move(task), cost, thread_clock(), ticket});
    });
    changed.notify_all();
  }
  cudaError_t wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !busy && queue.empty(); });
    thread_clock() = std::max(thread_clock(), clock);
    return open_context(gpu);
  }
};

// Tracks the recordings of an event: recording n is complete if `done` is at least n. It outlives the event while somebody waits for it.
struct Happening {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, done = 0;
  std::chrono::steady_clock::time_point time;
  Nanoseconds at = 0;

  void happen(std::uint64_t n, Nanoseconds when) {
    {
      const std::lock_guard lock(mutex);
      done = n;
      time = std::chrono::steady_clock::now();
      at = when;
    }
    changed.notify_all();
  }
  Nanoseconds wait(std::uint64_t n) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done >= n; });
    return at;
  }
};

struct CUevent_st {
  const int gpu = current_gpu();
  std::shared_ptr<Happening> happening = std::make_shared<Happening>();
};

namespace {

// Returns the stream that a handle means. cudaStreamLegacy is the current GPU's default stream, which is made at its first use.
cudaStream_t meant(cudaStream_t stream) {
  if (stream != cudaStreamLegacy) return stream;
  static std::mutex mutex;
  static auto* const all = new std::map<int, cudaStream_t>();
  const std::lock_guard lock(mutex);
  cudaStream_t& own = (*all)[current_gpu()];
  if (!own) static_cast<void>(cudaStreamCreateWithFlags(&own, 0));
  return own;
}

}  // namespace

namespace emulated_cuda {

void wait_for_streams(int gpu) {
  Streams& of_gpu = streams(gpu);
  const std::lock_guard lock(of_gpu.mutex);
  for (CUstream_st* stream : of_gpu.all) static_cast<void>(stream->wait());
}

cudaError_t enqueue(cudaStream_t given, const char* what, std::function<void()> work, Cost cost) {
  const cudaStream_t stream = meant(given);
  note(what);
  const auto task = [what, work = std::move(work)] {
    const cudaError_t status = planted(what);
    if (status != cudaSuccess) return status;
    work();
    return cudaSuccess;
  };
  if (!stream) {
    thread_clock() += cost.time;
    return said(task());
  }
  if (const cudaError_t status = open_context(stream->gpu); status != cudaSuccess) return said(status);
  stream->push(false, task, cost);
  return cudaSuccess;
}

}  // namespace emulated_cuda

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t status = planted("cudaStreamCreateWithFlags"); status != cudaSuccess) return said(status);
  if (const cudaError_t status = open_context(); status != cudaSuccess) return said(status);
  *stream = new CUstream_st;
  Streams& of_gpu = streams((*stream)->gpu);
  const std::lock_guard lock(of_gpu.mutex);
  of_gpu.all.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const cudaError_t status = cudaStreamCreateWithFlags(stream, flags);
  if (status == cudaSuccess) (*stream)->priority = priority;
  return status;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream->priority;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    Streams& of_gpu = streams(stream->gpu);
    const std::lock_guard lock(of_gpu.mutex);
    of_gpu.all.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}
// Puts a host function on the stream. It is not called after an error of the stream, nor while GPU memory can be accessed.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (!function) return said(cudaErrorInvalidValue);
  return enqueue(stream, "cudaLaunchHostFunc", [=] { function(data); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t given) {
  const cudaStream_t stream = meant(given);
  return stream ? said(stream->wait()) : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t given) {
  const cudaStream_t stream = meant(given);
  if (const cudaError_t status = open_context(stream->gpu); status != cudaSuccess) return said(status);
  const std::lock_guard lock(stream->mutex);
  return stream->busy || !stream->queue.empty() ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t event, unsigned) {
  const cudaStream_t stream = meant(given);
  if (const cudaError_t status = open_context(stream->gpu); status != cudaSuccess) return said(status);
  const auto& happening = event->happening;
  std::uint64_t n;
  {
    const std::lock_guard lock(happening->mutex);
    n = happening->recorded;
  }
  const auto wait = [stream, happening, n] {
    stream->clock = std::max(stream->clock, happening->wait(n));
    return planted("cudaStreamWaitEvent");
  };
  stream->push(false, wait, {}, true);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t status = open_context(); status != cudaSuccess) return said(status);
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
// Records an event. The record completes even after an error, so that nobody waits forever, and waiters get the context's error.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t given) {
  const cudaStream_t stream = meant(given);
  const auto& happening = event->happening;
  std::uint64_t n;
  {
    const std::lock_guard lock(happening->mutex);
    n = ++happening->recorded;
  }
  if (stream) {
    stream->push(true, [stream, happening, n] {
      happening->happen(n, stream->clock);
      return cudaSuccess;
    });
  } else {
    happening->happen(n, thread_clock());
  }
  return said(open_context(event->gpu));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t status = open_context(event->gpu); status != cudaSuccess) return said(status);
  const Happening& h = *event->happening;
  const std::lock_guard lock(event->happening->mutex);
  if (h.done < h.recorded) return cudaErrorNotReady;
  thread_clock() = std::max(thread_clock(), h.at);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::uint64_t n;
  {
    const std::lock_guard lock(event->happening->mutex);
    n = event->happening->recorded;
  }
  thread_clock() = std::max(thread_clock(), event->happening->wait(n));
  return said(open_context(event->gpu));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Happening &from = *begin->happening, &to = *end->happening;
  *milliseconds =
      has_rates() ? static_cast<float>(to.at - from.at) * 1e-6f : std::chrono::duration<float, std::milli>(to.time - from.time).count();
  return cudaSuccess;
}
