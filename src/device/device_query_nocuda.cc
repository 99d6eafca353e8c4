#include "device/device_query.h"

namespace spillway {

GpuReport query_gpus() { return {{}, "this build has no CUDA: put nvcc on PATH and build again"}; }

}  // namespace spillway
