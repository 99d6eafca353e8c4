#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <map>
#include <mutex>

#include "base/units.h"
#include "device/arena.h"
#include "device/cuda_handle.h"
#include "device/gpu_queue.h"
#include "device/memory_source.h"

namespace spillway {
namespace {

[[noreturn]] void refuse(int gpu, i64 bytes, const char* help) {
  static_cast<void>(cudaGetLastError());
  size_t free_bytes = 0, total_bytes = 0;
  cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  throw Error(ErrorCode::refused, fmt::format("[device memory] expected {} of free memory on cuda:{}, got {} free of {}: {}, or end other "
                                              "processes on this GPU (see nvidia-smi)",
                                              format_bytes(bytes), gpu, format_bytes(static_cast<i64>(free_bytes)),
                                              format_bytes(static_cast<i64>(total_bytes)), help));
}

class GpuMemory final : public MemorySource {
 public:
  GpuMemory(int gpu, i64 bytes) : gpu_(gpu), arena_(reserve(gpu, bytes), bytes) {}
  ~GpuMemory() override {
    pieces_.clear();
    static_cast<void>(cudaSetDevice(gpu_));
    static_cast<void>(cudaFree(reserved_));
  }
  std::byte* take(i64 bytes) override {
    try {
      Allocation piece = arena_.allocate(bytes, "");
      std::byte* at = piece.data();
      pieces_.emplace(at, std::move(piece));
      return at;
    } catch (const Error&) {
      return nullptr;  // no free piece of GPU memory is long enough
    }
  }
  void give_back(std::byte* at, i64) noexcept override { pieces_.erase(at); }

 private:
  std::byte* reserve(int gpu, i64 bytes) {
    cuda_check(cudaSetDevice(gpu), "cudaSetDevice");
    cudaError_t status = cudaMalloc(reinterpret_cast<void**>(&reserved_), static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      trim_gpu_memory(gpu);
      status = cudaMalloc(reinterpret_cast<void**>(&reserved_), static_cast<size_t>(bytes));
    }
    if (status == cudaErrorMemoryAllocation) refuse(gpu, bytes, "lower --device-memory");
    cuda_check(status, "cudaMalloc");
    return reserved_;
  }

  const int gpu_;
  std::byte* reserved_ = nullptr;
  Arena arena_;
  std::map<std::byte*, Allocation> pieces_;
};

// The driver's pools that this library made, one for each GPU that it used. They are never destroyed, because memory may still be released
// while the process ends.
struct OwnPools {
  std::mutex mutex;
  std::map<int, cudaMemPool_t> of_gpu;
};
OwnPools& own_pools() {
  static auto* const pools = new OwnPools();
  return *pools;
}

// Returns the pool of a GPU, which is made by the first call.
cudaMemPool_t own_pool(int gpu) {
  const std::lock_guard lock(own_pools().mutex);
  cudaMemPool_t& pool = own_pools().of_gpu[gpu];
  if (pool) return pool;
  const CurrentDevice current(Device::cuda(gpu));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice, properties.location.id = gpu;
  cudaMemPool_t made = nullptr;
  cuda_check(cudaMemPoolCreate(&made, &properties), "cudaMemPoolCreate");
  // the size up to which the pool keeps released memory: no limit
  std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  cuda_check(cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &all), "cudaMemPoolSetAttribute");
  return pool = made;
}

class PooledGpuMemory final : public MemorySource {
 public:
  explicit PooledGpuMemory(int gpu) : gpu_(Device::cuda(gpu)), pool_(own_pool(gpu)) {}
  std::byte* take(i64 bytes) override {
    const CurrentDevice current(gpu_);
    void* at = nullptr;
    cudaError_t status = cudaMallocFromPoolAsync(&at, static_cast<size_t>(bytes), pool_, common_gpu_queue());
    if (status == cudaErrorMemoryAllocation) {  // the pool may keep enough memory, in pieces that are too short
      trim_gpu_memory(gpu_.index);
      status = cudaMallocFromPoolAsync(&at, static_cast<size_t>(bytes), pool_, common_gpu_queue());
    }
    if (status == cudaErrorMemoryAllocation) refuse(gpu_.index, bytes, "free some tensors");
    cuda_check(status, "cudaMallocFromPoolAsync");
    return static_cast<std::byte*>(at);
  }
  void give_back(std::byte* at, i64) noexcept override {
    try {
      const CurrentDevice current(gpu_);
      static_cast<void>(cudaFreeAsync(at, common_gpu_queue()));
    } catch (const Error&) {  // the GPU is lost; the code that waits for the GPU gets the error
    }
  }

 private:
  const Device gpu_;
  const cudaMemPool_t pool_;
};

}  // namespace

void trim_gpu_memory(int gpu) {
  static_cast<void>(cudaGetLastError());  // a refused allocation leaves its error there
  cudaMemPool_t pool = nullptr;
  {
    const std::lock_guard lock(own_pools().mutex);
    const auto found = own_pools().of_gpu.find(gpu);
    if (found == own_pools().of_gpu.end() || !found->second) return;
    pool = found->second;
  }
  const CurrentDevice current(Device::cuda(gpu));
  cuda_check(cudaStreamSynchronize(common_gpu_queue()), "cudaStreamSynchronize");
  cuda_check(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
}

std::unique_ptr<MemorySource> gpu_memory(int gpu, i64 bytes) { return std::make_unique<GpuMemory>(gpu, bytes); }
std::unique_ptr<MemorySource> pooled_gpu_memory(int gpu) { return std::make_unique<PooledGpuMemory>(gpu); }

}  // namespace spillway
