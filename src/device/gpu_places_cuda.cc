#include "device/gpu_places.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace spillway {

std::vector<std::string> gpu_places() {
  int count = 0;
  std::vector<std::string> places;
  for (int gpu = 0; cudaGetDeviceCount(&count) == cudaSuccess && gpu < count; ++gpu) {
    cudaDeviceProp p;
    const bool known = cudaGetDeviceProperties(&p, gpu) == cudaSuccess;
    places.push_back(known ? fmt::format("{:04x}:{:02x}:{:02x}.0", p.pciDomainID, p.pciBusID, p.pciDeviceID) : "");
  }
  static_cast<void>(cudaGetLastError());  // the status is cleared; the code that opens the GPU reports the problem
  return places;
}

}  // namespace spillway
