#include "device/gpu_copy_cuda.h"

#include <algorithm>

#include "device/cuda_handle.h"

namespace spillway {

void put_gpu_copy(std::byte* to, const std::byte* from, i64 bytes, CUstream_st* queue) {
  for (i64 piece = 0; bytes > 0; to += piece, from += piece, bytes -= piece) {
    piece = std::min({bytes, rest_of_piece(to), rest_of_piece(from)});
    cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(piece), cudaMemcpyDefault, queue), "cudaMemcpyAsync");
  }
}

}  // namespace spillway
