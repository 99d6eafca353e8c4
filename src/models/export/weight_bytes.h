// Converts a parameter's values to the bytes of a file. The writers of export formats share it.
#pragma once
#include <functional>

#include "models/weights.h"

namespace spillway::models {

/// Returns the type named "fp32", "fp64", "bf16" or "fp16". Throws Error(usage) on any other name.
DType exported_dtype(const std::string& name);

/// A function that receives some bytes of a parameter and their offset in the parameter.
using WriteBytes = std::function<void(i64 offset, std::span<const std::byte> bytes)>;

/// Passes all bytes of the parameter to `write`, as WeightSource::read_as() returns them, in pieces of at most 1 MiB. The threads of the
/// current stream call `write` concurrently and in any order.
void write_bytes(const WeightSource& source, const nn::Parameter& parameter, DType dtype, const WriteBytes& write);

}  // namespace spillway::models
