// Streams, each with a thread of its own, and events.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "work.h"

using namespace emulated_cuda;

// A queue and the thread that works it off. After an error the rest of the queue is passed over, but for what others may wait for.
struct CUstream_st {
  struct Task {
    bool always;
    std::function<cudaError_t()> run;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> queue;
  bool busy = false, ends = false;
  cudaError_t error = cudaSuccess;
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
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ends || !queue.empty(); });
      if (queue.empty()) return;
      const Task task = std::move(queue.front());
      queue.pop_front();
      if (error != cudaSuccess && !task.always) continue;
      busy = true;
      lock.unlock();
      const cudaError_t status = task.run();
      lock.lock();
      if (error == cudaSuccess) error = status;
      busy = false;
      changed.notify_all();
    }
  }
  void push(bool always, std::function<cudaError_t()> task) {
    {
      const std::lock_guard lock(mutex);
      queue.push_back({always, std::move(task)});
    }
    changed.notify_all();
  }
  cudaError_t wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !busy && queue.empty(); });
    return error;
  }
};

// The nth record has happened when `done` is n or more. It outlives its event where it is still waited for.
struct Happening {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, done = 0;
  std::chrono::steady_clock::time_point time;

  void happen(std::uint64_t n) {
    {
      const std::lock_guard lock(mutex);
      done = n;
      time = std::chrono::steady_clock::now();
    }
    changed.notify_all();
  }
  void wait(std::uint64_t n) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done >= n; });
  }
};

struct CUevent_st {
  std::shared_ptr<Happening> happening = std::make_shared<Happening>();
};

namespace emulated_cuda {

cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work) {
  const auto task = [what, work = std::move(work)] {
    const cudaError_t status = planted(what);
    if (status != cudaSuccess) return status;
    work();
    return cudaSuccess;
  };
  if (!stream) return said(task());
  {
    const std::lock_guard lock(stream->mutex);
    if (stream->error != cudaSuccess) return said(stream->error);
  }
  stream->push(false, task);
  return cudaSuccess;
}

}  // namespace emulated_cuda

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t status = planted("cudaStreamCreateWithFlags"); status != cudaSuccess) return said(status);
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
// Not called after an error of the stream, and not while the GPUs' memory can be touched.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (!function) return said(cudaErrorInvalidValue);
  return enqueue(stream, "cudaLaunchHostFunc", [=] { function(data); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return stream ? said(stream->wait()) : cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(stream->mutex);
  if (stream->error != cudaSuccess) return said(stream->error);
  return stream->busy || !stream->queue.empty() ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto& happening = event->happening;
  const std::lock_guard lock(happening->mutex);
  return enqueue(stream, "cudaStreamWaitEvent", [happening, n = happening->recorded] { happening->wait(n); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
// Happens whatever became of the work before it: whoever waits must not hang, and finds the error at the stream.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto& happening = event->happening;
  std::uint64_t n;
  {
    const std::lock_guard lock(happening->mutex);
    n = ++happening->recorded;
  }
  const auto happens = [happening, n] {
    happening->happen(n);
    return cudaSuccess;
  };
  if (stream) {
    stream->push(true, happens);
  } else {
    happens();
  }
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Happening& h = *event->happening;
  const std::lock_guard lock(event->happening->mutex);
  return h.done >= h.recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::uint64_t n;
  {
    const std::lock_guard lock(event->happening->mutex);
    n = event->happening->recorded;
  }
  event->happening->wait(n);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->happening->time - begin->happening->time).count();
  return cudaSuccess;
}
