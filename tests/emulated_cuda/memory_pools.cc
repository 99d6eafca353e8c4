// Page-locked memory, and the memory pools of emulated GPUs, from which cudaMallocAsync and cudaMallocFromPoolAsync take memory. Of
// released memory a pool keeps only the sizes of the pieces, so that using it is an error. What it keeps of one piece serves a shorter one;
// two pieces are never joined.
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "work.h"

namespace emulated_cuda {
namespace {

struct Pool {
  int gpu = 0;
  uint64_t threshold = 0;  // a pool keeps released memory if this is not 0
  std::multiset<size_t> pieces;
};

// All pools, and the pool of each piece of memory that is in use.
struct Pools {
  std::mutex mutex;
  std::deque<Pool> all;
  std::map<int, Pool*> default_of;
  std::map<void*, Pool*> owner;

  Pool* make(int gpu) { return &all.emplace_back(Pool{.gpu = gpu}); }
};
// The pools are never destroyed: memory may still be released while the process ends.
Pools& pools() {
  static auto* const one = new Pools();
  return *one;
}

Pool* pool_of(cudaMemPool_t handle) { return reinterpret_cast<Pool*>(handle); }

Pool* default_pool(int gpu) {
  const std::lock_guard lock(pools().mutex);
  Pool*& pool = pools().default_of[gpu];
  if (!pool) pool = pools().make(gpu);
  return pool;
}

}  // namespace

size_t kept_bytes(int gpu) {
  const std::lock_guard lock(pools().mutex);
  size_t bytes = 0;
  for (const Pool& pool : pools().all) {
    if (pool.gpu == gpu) bytes = std::accumulate(pool.pieces.begin(), pool.pieces.end(), bytes);
  }
  return bytes;
}

void keep(void* memory, size_t bytes) {
  const std::lock_guard lock(pools().mutex);
  const auto found = pools().owner.find(memory);
  if (found == pools().owner.end()) return;
  if (found->second->threshold > 0) found->second->pieces.insert(bytes);
  pools().owner.erase(found);
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = reinterpret_cast<cudaMemPool_t>(default_pool(device));
  return said(open_context(device));
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (const cudaError_t status = planted("cudaMemPoolCreate"); status != cudaSuccess) return said(status);
  if (properties->allocType != cudaMemAllocationTypePinned || properties->location.type != cudaMemLocationTypeDevice)
    return said(cudaErrorInvalidValue);
  const std::lock_guard lock(pools().mutex);
  *pool = reinterpret_cast<cudaMemPool_t>(pools().make(properties->location.id));
  return said(open_context(properties->location.id));
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* release_threshold) {
  const std::lock_guard lock(pools().mutex);
  pool_of(pool)->threshold = *static_cast<uint64_t*>(release_threshold);
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* release_threshold) {
  const std::lock_guard lock(pools().mutex);
  *static_cast<uint64_t*>(release_threshold) = pool_of(pool)->threshold;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  const std::lock_guard lock(pools().mutex);
  pool_of(pool)->pieces.clear();
  return cudaSuccess;
}
// Allocates at once, without waiting for the stream.
cudaError_t cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t handle, cudaStream_t) {
  if (const cudaError_t status = planted("cudaMallocFromPoolAsync"); status != cudaSuccess) return said(status);
  Pool* const pool = pool_of(handle);
  if (pool->gpu != current_gpu()) return said(cudaErrorInvalidValue);  // the stream is one of the current GPU
  {
    const std::lock_guard lock(pools().mutex);
    constexpr size_t page = 4096;
    const size_t whole = (bytes + page - 1) / page * page;
    if (const auto piece = pool->pieces.lower_bound(whole); piece != pool->pieces.end()) {
      const size_t rest = *piece - whole;
      pool->pieces.erase(piece);
      if (rest > 0) pool->pieces.insert(rest);
    }
  }
  if (const cudaError_t status = cudaMalloc(memory, bytes); status != cudaSuccess) return status;
  const std::lock_guard lock(pools().mutex);
  pools().owner[*memory] = pool;
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  return cudaMallocFromPoolAsync(memory, bytes, reinterpret_cast<cudaMemPool_t>(default_pool(current_gpu())), stream);
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  constexpr size_t page = 4096;
  *memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  return *memory ? cudaHostRegister(*memory, bytes, flags & cudaHostRegisterPortable) : said(cudaErrorMemoryAllocation);
}
