#include <cuda_runtime.h>

#include "base/thread.h"
#include "device/cuda_handle.h"
#include "device/device_query.h"

namespace spillway {
namespace {

constexpr int kLeastCapability = 80;  // bf16 on tensor cores, and copies to shared memory beside computing

// A kernel that is never launched. If the CUDA runtime finds its code for a GPU, this build's kernels can run on that GPU.
__global__ void probe() {}

std::string describe(cudaError_t status) {
  return std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ", " + std::to_string(static_cast<int>(status)) + ")";
}

std::string version(int cuda) { return std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10); }  // 13000 is CUDA 13.0

std::string problem_of_count(cudaError_t status) {
  int driver = 0, built_with = 0;
  if (status == cudaErrorInsufficientDriver) {
    static_cast<void>(cudaDriverGetVersion(&driver)), static_cast<void>(cudaRuntimeGetVersion(&built_with));
    if (driver == 0) return "no NVIDIA driver is loaded: " + describe(status);
    return "the NVIDIA driver is for CUDA " + version(driver) + " at most, this build is of CUDA " + version(built_with) +
           ": update the driver (CUDA 13 needs 580 or newer, CUDA 12 needs 525), or build with an older CUDA: " + describe(status);
  }
  if (status == cudaErrorNoDevice) return "no GPU is visible (check CUDA_VISIBLE_DEVICES): " + describe(status);
  return "the CUDA runtime cannot count GPUs: " + describe(status);
}

// Reads the free memory of the current GPU and checks that this build has code for it. Returns the problem; empty if there is none.
std::string problem_of_use(GpuFacts& gpu) {
  size_t free_bytes = 0, total_bytes = 0;
  if (const cudaError_t status = cudaMemGetInfo(&free_bytes, &total_bytes); status != cudaSuccess) {
    return "cannot be used now: " + describe(status);
  }
  gpu.free_bytes = static_cast<i64>(free_bytes);
  cudaFuncAttributes attributes;
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, probe); status != cudaSuccess) {
    if (gpu.compute_capability < kLeastCapability) {
      return "its compute capability is " + std::to_string(gpu.compute_capability) + ", and the kernels need " +
             std::to_string(kLeastCapability) + " (Ampere) or newer: " + describe(status);
    }
    return "this build has no code for compute capability " + std::to_string(gpu.compute_capability) +
           " (build with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(gpu.compute_capability) + "): " + describe(status);
  }
  return "";
}

// Opens the GPU. Threads that wait for it asleep continue at its interrupt.
cudaError_t open(int index, GpuWaiting waiting) {
  const cudaError_t status =
      waiting == GpuWaiting::asleep ? cudaInitDevice(index, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid) : cudaSuccess;
  return status == cudaSuccess ? cudaSetDevice(index) : status;
}

GpuFacts facts_of(int index, bool opened, GpuWaiting waiting) {
  GpuFacts gpu;
  gpu.index = index;
  cudaDeviceProp properties;
  cudaError_t status = cudaGetDeviceProperties(&properties, index);
  if (status == cudaSuccess) {
    gpu.name = properties.name;
    gpu.bus =
        std::to_string(properties.pciDomainID) + ":" + std::to_string(properties.pciBusID) + ":" + std::to_string(properties.pciDeviceID);
    for (const char byte : properties.uuid.bytes) {
      for (const int half : {byte >> 4 & 15, byte & 15}) gpu.unique += "0123456789abcdef"[half];
    }
    gpu.total_bytes = static_cast<i64>(properties.totalGlobalMem);
    gpu.compute_capability = properties.major * 10 + properties.minor;
    if (opened) status = open(index, waiting);
  }
  if (status != cudaSuccess) {
    gpu.problem = "cannot be opened (busy in exclusive mode, or faulty): " + describe(status);
  } else {
    gpu.problem = opened ? problem_of_use(gpu) : "the GPU was not examined";
  }
  static_cast<void>(cudaGetLastError());  // clears CUDA's error, which is reported in gpu.problem, so that no later call finds it
  return gpu;
}

}  // namespace

GpuReport query_gpus(std::optional<int> one, GpuWaiting waiting) {
  int count = 0;  // cudaGetDeviceCount() leaves this value unchanged on failure
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return {{}, problem_of_count(status)};
  }
  if (count == 0) return {{}, problem_of_count(cudaErrorNoDevice)};
  // The query runs on its own thread, which may change its current GPU freely. Restoring the caller's current GPU would open that GPU:
  // since CUDA 12, cudaSetDevice creates a context, which takes half a GiB of a GPU that another rank may need for itself.
  GpuReport report;
  start_thread([&] {
    for (int i = 0; i < count; ++i) report.gpus.push_back(facts_of(i, !one || *one % count == i, waiting));
  }).join();
  return report;
}

}  // namespace spillway
