// The memory pools of emulated GPUs, from which cudaMallocAsync takes memory. Of released memory a pool keeps only the sizes of the pieces,
// so that using it is an error. What it keeps of one piece serves a shorter one; two pieces are never joined.
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "work.h"

namespace emulated_cuda {
namespace {

struct Pool {
  bool keeps = false;  // whether it was told to keep released memory
  std::multiset<size_t> pieces;
};
std::mutex mutex;
// Returns the pool of a GPU. The pools are never destroyed: memory may still be released while the process ends.
Pool& pool_of(int gpu) {
  static auto* const all = new std::map<int, Pool>();
  return (*all)[gpu];
}

int gpu_of(cudaMemPool_t pool) { return static_cast<int>(reinterpret_cast<intptr_t>(pool)) - 1; }

}  // namespace

size_t kept_bytes(int gpu) {
  const std::lock_guard lock(mutex);
  const std::multiset<size_t>& pieces = pool_of(gpu).pieces;
  return std::accumulate(pieces.begin(), pieces.end(), size_t{0});
}

void keep(int gpu, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (Pool& pool = pool_of(gpu); pool.keeps) pool.pieces.insert(bytes);
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = reinterpret_cast<cudaMemPool_t>(static_cast<intptr_t>(device) + 1);
  return said(open_context(device));
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* release_threshold) {
  const std::lock_guard lock(mutex);
  pool_of(gpu_of(pool)).keeps = *static_cast<uint64_t*>(release_threshold) > 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  const std::lock_guard lock(mutex);
  pool_of(gpu_of(pool)).pieces.clear();
  return cudaSuccess;
}
// Allocates at once, without waiting for the stream.
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) {
  if (const cudaError_t status = planted("cudaMallocAsync"); status != cudaSuccess) return said(status);
  {
    const std::lock_guard lock(mutex);
    constexpr size_t page = 4096;
    const size_t whole = (bytes + page - 1) / page * page;
    std::multiset<size_t>& pieces = pool_of(current_gpu()).pieces;
    if (const auto piece = pieces.lower_bound(whole); piece != pieces.end()) {
      const size_t rest = *piece - whole;
      pieces.erase(piece);
      if (rest > 0) pieces.insert(rest);
    }
  }
  return cudaMalloc(memory, bytes);
}
