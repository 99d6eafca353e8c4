#include "device/gpu_queue.h"

#include <mutex>
#include <vector>

#include "device/cuda_handle.h"
#include "device/gpu_copy_cuda.h"
#include "device/index_fault_cuda.h"
#include "device/shared_library.h"

namespace spillway {

void use_device(Device device) {
  if (device.is_cuda()) cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
}

namespace {

// Returns whether this process has opened the GPU already. If it has not, cudaSetDevice() must not be called to make the GPU current again:
// since CUDA 12 that call opens the GPU, which takes half a GiB of its memory ("CUDA Driver API 13.0, cuDevicePrimaryCtxGetState").
bool is_open(int gpu) {
  using GetState = int (*)(int gpu, unsigned* flags, int* active);
  static const auto* const driver = new SharedLibrary({"libcuda.so.1"});
  static const auto get_state = *driver ? reinterpret_cast<GetState>(driver->find("cuDevicePrimaryCtxGetState")) : nullptr;
  unsigned flags = 0;
  int active = 1;
  return !get_state || get_state(gpu, &flags, &active) != 0 || active != 0;
}

}  // namespace

CurrentDevice::CurrentDevice(Device device) {
  if (!device.is_cuda()) return;
  int before = 0;
  cuda_check(cudaGetDevice(&before), "cudaGetDevice");
  if (before != device.index && is_open(before)) before_ = before;
  use_device(device);
}
CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
}

CUstream_st* common_gpu_queue() { return cudaStreamLegacy; }

void wait_for_common_queue(Device gpu) {
  const CurrentDevice current(gpu);
  cuda_check(cudaStreamSynchronize(common_gpu_queue()), "cudaStreamSynchronize");
}

void let_follow_common_queue(Device gpu, CUstream_st* other) {
  const CurrentDevice current(gpu);
  const CudaEvent event = make_cuda_event();
  cuda_check(cudaEventRecord(event.get(), common_gpu_queue()), "cudaEventRecord");
  cuda_check(cudaStreamWaitEvent(other, event.get(), 0), "cudaStreamWaitEvent");
}

void wait_for_gpu(Device gpu) {
  const CurrentDevice current(gpu);
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

struct GpuQueue::Idle {
  std::unique_ptr<GpuEvent> take(Device gpu) {
    const std::lock_guard lock(mutex);
    if (events.empty()) return std::make_unique<GpuEvent>(gpu);
    std::unique_ptr<GpuEvent> event = std::move(events.back());
    events.pop_back();
    return event;
  }
  void give_back(std::unique_ptr<GpuEvent> event) {
    const std::lock_guard lock(mutex);
    events.push_back(std::move(event));
  }
  std::mutex mutex;
  std::vector<std::unique_ptr<GpuEvent>> events;
};

class GpuQueue::Moment final : public Event::Awaited {
 public:
  explicit Moment(const GpuQueue& queue) : gpu_(queue.gpu_), queue_(queue.handle_), idle_(queue.idle_), event_(idle_->take(gpu_)) {
    event_->record(queue);
  }
  ~Moment() override { idle_->give_back(std::move(event_)); }

  const GpuEvent& event() const { return *event_; }
  bool ready() const override { return event_->ready(); }
  // Work that was queued before the event may have failed. The CUDA event does not report such an error, but the queue's status does.
  void wait() const override {
    use_device(gpu_);
    event_->wait();
    const cudaError_t status = cudaStreamQuery(queue_);
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
    } else {
      cuda_check(status, "cudaStreamQuery");
    }
    throw_index_fault(gpu_.index);
  }

 private:
  const Device gpu_;
  CUstream_st* const queue_;
  const std::shared_ptr<Idle> idle_;
  std::unique_ptr<GpuEvent> event_;
};

GpuQueue::GpuQueue(Device gpu, Urgency urgency) : gpu_(gpu), idle_(std::make_shared<Idle>()) {
  use_device(gpu);
  int least = 0, greatest = 0;
  cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  const int priority = urgency == Urgency::urgent ? greatest : least;
  cuda_check(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, priority), "cudaStreamCreateWithPriority");
}

GpuQueue::~GpuQueue() {
  static_cast<void>(cudaStreamSynchronize(handle_));
  static_cast<void>(cudaStreamDestroy(handle_));
}

void GpuQueue::wait() const { wait_for_gpu_queue(handle_, gpu_.index); }

void GpuQueue::copy(std::byte* to, const std::byte* from, i64 bytes) const {
  use_device(gpu_);  // the GPU is selected first; otherwise CUDA would open GPU 0 for this thread
  put_gpu_copy(to, from, bytes, handle_);
}

void GpuQueue::wait_for(const GpuEvent& event) const { cuda_check(cudaStreamWaitEvent(handle_, event.handle(), 0), "cudaStreamWaitEvent"); }

void GpuQueue::follow(const GpuQueue& other) const {
  const Moment moment(other);
  wait_for(moment.event());
}

Event GpuQueue::moment() const {
  use_device(gpu_);
  return Event::of(std::make_shared<const Moment>(*this));
}

GpuEvent::GpuEvent(Device gpu) {
  use_device(gpu);
  cuda_check(cudaEventCreateWithFlags(&handle_, cudaEventBlockingSync), "cudaEventCreateWithFlags");
}

GpuEvent::~GpuEvent() { static_cast<void>(cudaEventDestroy(handle_)); }

void GpuEvent::record(const GpuQueue& queue) const { cuda_check(cudaEventRecord(handle_, queue.handle()), "cudaEventRecord"); }

bool GpuEvent::ready() const {
  const cudaError_t status = cudaEventQuery(handle_);
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // clears the status "not ready", which cudaGetLastError() would otherwise report as an error
    return false;
  }
  cuda_check(status, "cudaEventQuery");
  return true;
}

void GpuEvent::wait() const {
  if (ready()) return;
  count_gpu_wait();
  cuda_check(cudaEventSynchronize(handle_), "cudaEventSynchronize");
}

double GpuEvent::seconds_since(const GpuEvent& earlier) const {
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, earlier.handle(), handle_), "cudaEventElapsedTime");
  return milliseconds / 1e3;
}

}  // namespace spillway
