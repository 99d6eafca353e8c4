#include <cstring>

#include "device/cuda_handle.h"
#include "device/stream.h"
#include "device/transfer.h"

namespace spillway {
namespace {

cudaStream_t queue_of(Device gpu) {
  const Stream& stream = Stream::current();
  require(stream.device == gpu, "[transfer] expected the stream of the GPU whose memory it is");
  return stream.queue;
}

}  // namespace

void transfer(std::byte* to, Device to_device, const std::byte* from, Device from_device, i64 bytes) {
  if (bytes == 0) return;
  if (!to_device.is_cuda() && !from_device.is_cuda()) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const cudaStream_t queue = queue_of(to_device.is_cuda() ? to_device : from_device);
  cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, queue), "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(queue), "cudaStreamSynchronize");
}

void fill_zeros(std::byte* at, Device device, i64 bytes) {
  if (bytes == 0) return;
  if (device.is_cuda()) {
    cuda_check(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), queue_of(device)), "cudaMemsetAsync");
  } else {
    std::memset(at, 0, static_cast<size_t>(bytes));
  }
}

}  // namespace spillway
