// A parameter's values as a file holds them: what the writers of export formats share.
#pragma once
#include <functional>

#include "models/weights.h"

namespace spillway::models {

/// "fp32", "fp64", "bf16", "fp16". Throws Error(usage) on another.
DType exported_dtype(const std::string& name);

/// Takes bytes that stand from `offset` on within a parameter.
using WriteBytes = std::function<void(i64 offset, std::span<const std::byte> bytes)>;

/// Hands all bytes of the parameter to `write`, as WeightSource::read_as() gives them, at most a MiB at once. The threads of the stream in
/// force call `write` at the same time, in any order.
void write_bytes(const WeightSource& source, const nn::Parameter& parameter, DType dtype, const WriteBytes& write);

}  // namespace spillway::models
