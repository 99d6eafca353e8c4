// Reads the PCI addresses of the visible GPUs from the driver without opening any GPU, for a
// process that has not chosen one yet. One version is built with CUDA and one without. Thread-safe.
#pragma once
#include <string>
#include <vector>

namespace spillway {

/// Returns the PCI addresses in the order of Device::cuda's index, in the form that the kernel
/// uses below /sys/bus/pci/devices: "0000:3b:00.0". The list is empty without a driver or GPUs.
std::vector<std::string> gpu_places();

}  // namespace spillway
