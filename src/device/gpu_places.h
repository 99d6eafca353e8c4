// Where the visible GPUs are plugged in, asked of the driver without opening any of them: for a process that has not chosen one yet. Two
// versions, as device_query.h. Thread-safe.
#pragma once
#include <string>
#include <vector>

namespace spillway {

/// By Device::cuda's index, as the kernel names them below /sys/bus/pci/devices: "0000:3b:00.0". Empty without a driver or GPUs.
std::vector<std::string> gpu_places();

}  // namespace spillway
