// PCI addresses of the visible GPUs, read from the driver without opening any of them, for a process that has not chosen one yet. There is
// a version with CUDA and one without. Thread-safe.
#pragma once
#include <string>
#include <vector>

namespace spillway {

/// Returns the addresses in the order of Device::cuda's index, in the kernel's form below /sys/bus/pci/devices: "0000:3b:00.0". Empty
/// without a driver or GPUs.
std::vector<std::string> gpu_places();

}  // namespace spillway
