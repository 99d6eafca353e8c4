// What becomes of the losses of single elements or rows.
#pragma once

namespace spillway::ops {

enum class Reduction { none, sum, mean };

}  // namespace spillway::ops
