// A tensor's bytes as GGUF holds them, out of the parameters that it is made of, encoded in pieces on the threads of
// the stream in force, with at most some 100 MiB of them in memory at once.
#pragma once
#include "models/gguf/gguf_architecture.h"
#include "models/weights.h"

namespace spillway::models {

/// Error(data), naming the tensor, where a number does not fit the type: infinite in f16, or none that Q8_0 has.
void write_gguf_tensor(const GgufPart& part, GgufType type, i64 head_dim, const WeightSource& source, GgufWriter& writer);

}  // namespace spillway::models
