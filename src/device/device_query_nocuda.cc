#include "device/device_query.h"

namespace spillway {

GpuReport query_gpus(std::optional<int>, GpuWaiting) {
  return {{}, "this build has no CUDA; to build with CUDA, put nvcc on PATH and run: cmake --preset cuda && cmake --build build/cuda"};
}

}  // namespace spillway
