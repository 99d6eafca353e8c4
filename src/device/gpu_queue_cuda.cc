#include "device/gpu_queue.h"

#include "device/cuda_handle.h"
#include "device/gpu_copy_cuda.h"

namespace spillway {

void use_device(Device device) {
  if (device.is_cuda()) cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
}

GpuQueue::GpuQueue(Device gpu) : gpu_(gpu) {
  use_device(gpu);
  cuda_check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

GpuQueue::~GpuQueue() {
  static_cast<void>(cudaStreamSynchronize(handle_));
  static_cast<void>(cudaStreamDestroy(handle_));
}

void GpuQueue::wait() const { cuda_check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize"); }

void GpuQueue::copy(std::byte* to, const std::byte* from, i64 bytes) const {
  use_device(gpu_);  // a thread that was never given one would wake another GPU
  put_gpu_copy(to, from, bytes, handle_);
}

void GpuQueue::wait_for(const GpuEvent& event) const { cuda_check(cudaStreamWaitEvent(handle_, event.handle(), 0), "cudaStreamWaitEvent"); }

GpuEvent::GpuEvent(Device gpu) {
  use_device(gpu);
  cuda_check(cudaEventCreateWithFlags(&handle_, cudaEventBlockingSync), "cudaEventCreateWithFlags");
}

GpuEvent::~GpuEvent() { static_cast<void>(cudaEventDestroy(handle_)); }

void GpuEvent::record(const GpuQueue& queue) const { cuda_check(cudaEventRecord(handle_, queue.handle()), "cudaEventRecord"); }

void GpuEvent::wait() const { cuda_check(cudaEventSynchronize(handle_), "cudaEventSynchronize"); }

double GpuEvent::seconds_since(const GpuEvent& earlier) const {
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, earlier.handle(), handle_), "cudaEventElapsedTime");
  return milliseconds / 1e3;
}

}  // namespace spillway
