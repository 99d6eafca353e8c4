// A parameter's values as a file holds them: what the writers of export formats share.
#pragma once
#include <functional>

#include "models/weights.h"

namespace spillway::models {

/// "fp32", "fp64", "bf16", "fp16". Throws Error(usage) on another.
DType exported_dtype(const std::string& name);

/// Calls `write` with the bytes from an offset within the parameter on, in order, some thousand elements at once: little-endian, rounded to
/// nearest even.
void write_bytes(const WeightSource& source, const nn::Parameter& parameter, DType dtype,
                 const std::function<void(i64 offset, std::span<const std::byte> bytes)>& write);

}  // namespace spillway::models
