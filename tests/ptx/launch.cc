// The part of the CUDA runtime that loads and launches kernels, for objects that nvcc compiled: kernels are run from their PTX. The rest
// of the runtime is tests/emulated_cuda's.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "emulated_cuda/work.h"
#include "ptx/fat_binary.h"
#include "ptx/interpreter.h"

namespace {

// The code of one object file, loaded when one of its kernels is first launched.
struct Binary {
  const void* wrapper = nullptr;
  std::unique_ptr<ptx::Loaded> loaded;
};
struct Registered {
  Binary* binary = nullptr;
  std::string name;
};
// Static objects of any file register kernels before main() and use them after it, so this is never destroyed.
struct Registry {
  std::mutex mutex;
  std::map<const void*, Registered> kernels;  // by the address of the function that stands for the kernel on the host
};
Registry& registry() {
  static auto* const one = new Registry;
  return *one;
}

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "ptx: %s\n", what.c_str());
  std::abort();
}

// Returns the module of a kernel, or null if the object has no PTX of it. Unlocked afterwards: modules are never unloaded.
ptx::Loaded* module_of(const Registered& kernel) {
  const std::lock_guard lock(registry().mutex);
  std::unique_ptr<ptx::Loaded>& loaded = kernel.binary->loaded;
  if (!loaded) {
    try {
      loaded = std::make_unique<ptx::Loaded>(ptx::ptx_of(kernel.binary->wrapper));
    } catch (const std::exception& error) {
      give_up(error.what());
    }
  }
  return loaded->has(kernel.name) ? loaded.get() : nullptr;
}

unsigned seed() {
  const char* text = std::getenv("SPILLWAY_EMULATED_SEED");
  return text ? static_cast<unsigned>(std::atoi(text)) : 0;
}

}  // namespace

namespace emulated_cuda {

void memory_taken(const void* memory, size_t bytes, bool is_of_host) { ptx::add_piece(memory, bytes, is_of_host); }
void memory_given_back(const void* memory) { ptx::remove_piece(memory); }
void memory_written(const void* memory, size_t bytes) { ptx::mark_written(memory, bytes); }

}  // namespace emulated_cuda

using namespace emulated_cuda;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  auto* const binary = new Binary;
  binary->wrapper = wrapper;
  return reinterpret_cast<void**>(binary);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  const std::lock_guard lock(registry().mutex);
  registry().kernels[host] = {reinterpret_cast<Binary*>(handle), name};
}

// nvcc's stubs refer to these functions, and are never called: kernels are launched by cudaLaunchKernelExC.
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { give_up("a launch by <<<>>>, expected cudaLaunchKernelEx"); }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { give_up("a launch by <<<>>>, expected cudaLaunchKernelEx"); }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  give_up("a launch by <<<>>>, expected cudaLaunchKernelEx");
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  Registered kernel;
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().kernels.find(function);
    if (found == registry().kernels.end()) return said(cudaErrorInvalidDeviceFunction);
    kernel = found->second;
  }
  ptx::Loaded* const loaded = module_of(kernel);
  if (!loaded) return said(cudaErrorNoKernelImageForDevice);
  const dim3 &grid = config->gridDim, &block = config->blockDim;
  const size_t threads = size_t{block.x} * block.y * block.z;
  const bool legal = threads > 0 && threads <= loaded->most_threads(kernel.name) && grid.x > 0 && grid.y > 0 && grid.z > 0 &&
                     grid.y <= 65535 && grid.z <= 65535 && config->dynamicSmemBytes <= dynamic_shared_bytes(function);
  if (!legal) return said(cudaErrorInvalidValue);
  load(function);
  const ptx::Launch launch{{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, config->dynamicSmemBytes};
  const int gpu = current_gpu();
  const auto run = [=, parameters = loaded->parameters_of(kernel.name, arguments)] {
    const Running running;
    const std::string fault = loaded->run(kernel.name, launch, parameters, seed());
    if (fault.empty()) return;
    std::fprintf(stderr, "ptx: %s\n", fault.c_str());
    end_context(gpu, cudaErrorIllegalAddress);
  };
  return enqueue(config->stream, "cudaLaunchKernelEx", run, cost_of_kernel(threads * grid.x * grid.y * grid.z));
}
}
