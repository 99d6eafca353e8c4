// Emulates lazy loading: a kernel is loaded when it is first launched, unless
// CUDA_MODULE_LOADING=EAGER. A real driver may then wait for all work on the GPU.
#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>

#include <nccl.h>
#include "work.h"

namespace emulated_cuda {
namespace {

std::mutex loading;  // protects the set of loaded kernels and the number of late loads
std::set<const void*> loaded;
int late = 0;

}  // namespace

void load(const void* kernel) {
  const char* mode = std::getenv("CUDA_MODULE_LOADING");
  const std::lock_guard lock(loading);
  const bool now = loaded.insert(kernel).second && !(mode && std::string_view(mode) == "EAGER");
  if (now && nccl_waiting() > 0) ++late;
}

void forget_kernels() {
  const std::lock_guard lock(loading);
  loaded.clear();
  late = 0;
}

int late_loads() {
  const std::lock_guard lock(loading);
  return late;
}

}  // namespace emulated_cuda
