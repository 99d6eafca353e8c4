// Selects how the losses of single elements or rows are combined.
#pragma once

namespace spillway::ops {

enum class Reduction { none, sum, mean };

}  // namespace spillway::ops
