#include "device/gpu_queue.h"

#include "device/cuda_handle.h"

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
  if (bytes == 0) return;
  use_device(gpu_);  // a thread that was never given one would wake another GPU
  cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, handle_), "cudaMemcpyAsync");
}

}  // namespace spillway
