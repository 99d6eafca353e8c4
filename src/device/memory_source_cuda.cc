#include <fmt/format.h>

#include <map>

#include "base/units.h"
#include "device/arena.h"
#include "device/cuda_handle.h"
#include "device/memory_source.h"

namespace spillway {
namespace {

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
      return nullptr;  // no gap is long enough
    }
  }
  void give_back(std::byte* at, i64) noexcept override { pieces_.erase(at); }

 private:
  std::byte* reserve(int gpu, i64 bytes) {
    cuda_check(cudaSetDevice(gpu), "cudaSetDevice");
    const cudaError_t status = cudaMalloc(reinterpret_cast<void**>(&reserved_), static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      size_t free_bytes = 0, total_bytes = 0;
      cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
      throw Error(
          ErrorCode::refused,
          fmt::format("[device memory] expected {} of cuda:{}, got {} free of {}: lower --device-memory, or end "
                      "what else runs there (nvidia-smi tells)",
                      format_bytes(bytes), gpu, format_bytes(static_cast<i64>(free_bytes)), format_bytes(static_cast<i64>(total_bytes))));
    }
    cuda_check(status, "cudaMalloc");
    return reserved_;
  }

  const int gpu_;
  std::byte* reserved_ = nullptr;
  Arena arena_;
  std::map<std::byte*, Allocation> pieces_;
};

}  // namespace

std::unique_ptr<MemorySource> gpu_memory(int gpu, i64 bytes) { return std::make_unique<GpuMemory>(gpu, bytes); }

}  // namespace spillway
