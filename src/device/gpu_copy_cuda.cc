#include "device/gpu_copy_cuda.h"

#include <algorithm>
#include <atomic>

#include "device/cuda_handle.h"
#include "device/gpu_queue.h"
#include "device/index_fault_cuda.h"

namespace spillway {
namespace {

std::atomic<i64> waits{0};

bool is_pageable(const std::byte* at) {
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, at), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered;
}

}  // namespace

i64 gpu_waits() { return waits; }
void count_gpu_wait() { ++waits; }

void put_gpu_copy(std::byte* to, const std::byte* from, i64 bytes, CUstream_st* queue) {
  for (i64 piece = 0; bytes > 0; to += piece, from += piece, bytes -= piece) {
    piece = std::min({bytes, rest_of_piece(to), rest_of_piece(from)});
    if (is_pageable(to) || is_pageable(from)) count_gpu_wait();
    cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(piece), cudaMemcpyDefault, queue), "cudaMemcpyAsync");
  }
}

void wait_for_gpu_queue(CUstream_st* queue, int gpu) {
  const cudaError_t status = cudaStreamQuery(queue);
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // clears the status "not ready", which cudaGetLastError() would otherwise report as an error
    count_gpu_wait();
    cuda_check(cudaStreamSynchronize(queue), "cudaStreamSynchronize");
  } else {
    cuda_check(status, "cudaStreamQuery");
  }
  throw_index_fault(gpu);
}

}  // namespace spillway
