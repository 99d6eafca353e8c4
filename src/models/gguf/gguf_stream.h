// Writes a tensor of a GGUF file from the parameters that it is made of. The threads
// of the current stream encode pieces, with at most some 100 MiB in memory at once.
#pragma once
#include "models/gguf/gguf_architecture.h"
#include "models/weights.h"

namespace spillway::models {

/// Writes the whole tensor. `tensor` is its index in the list given to the GgufWriter. Throws an Error(data) that names the
/// parameter when a number does not fit the type: a finite number that overflows in f16, or one that Q8_0 cannot represent.
void write_gguf_tensor(const GgufPart& part, GgufType type, i64 head_dim, const WeightSource& source, GgufWriter& writer, size_t tensor);

}  // namespace spillway::models
