// Bytes between the memory of a GPU and the host's, and zeros, on the queue of the stream in force, which must be that GPU's. Where no GPU
// is concerned these are memcpy and memset. Two versions, as device_query.h. Error(io) when the driver reports one, also of earlier work.
#pragma once
#include "device/device.h"

namespace spillway {

/// Done on return, and after everything that the queue held. `bytes` may be 0.
void transfer(std::byte* to, Device to_device, const std::byte* from, Device from_device, i64 bytes);
/// Put on the queue.
void fill_zeros(std::byte* at, Device device, i64 bytes);

}  // namespace spillway
