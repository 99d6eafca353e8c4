#include "device/device_query.h"

namespace spillway {

GpuReport query_gpus(std::optional<int>) { return {{}, "this build has no CUDA; the one that has: cmake --preset cuda && cmake --build build/cuda, with nvcc on PATH"}; }

}  // namespace spillway
