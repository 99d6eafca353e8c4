#include <cstring>

#include "device/copy.h"
#include "device/cuda_handle.h"
#include "device/gpu_copy_cuda.h"
#include "device/stream.h"
#include "device/transfer.h"

namespace spillway {

void put_transfer(std::byte* to, const std::byte* from, i64 bytes) {
  const Stream& stream = Stream::current();
  if (!stream.device.is_cuda()) return copy_past_caches(to, from, bytes);
  put_gpu_copy(to, from, bytes, stream.queue);
}

void transfer(std::byte* to, const std::byte* from, i64 bytes) {
  put_transfer(to, from, bytes);
  if (Stream::current().device.is_cuda()) wait_for_gpu_queue(Stream::current().queue, Stream::current().device.index);
}

void fill_zeros(std::byte* at, i64 bytes) {
  const Stream& stream = Stream::current();
  if (bytes == 0) return;
  if (stream.device.is_cuda()) {
    cuda_check(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), stream.queue), "cudaMemsetAsync");
  } else {
    std::memset(at, 0, static_cast<size_t>(bytes));
  }
}

}  // namespace spillway
