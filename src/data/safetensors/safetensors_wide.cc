#include <array>

#include "data/safetensors/safetensors.h"
#include "data/safetensors/wide.h"

namespace spillway::data {

void SafetensorsReader::widen(const TensorInfo& info, i64 begin, std::span<double> out) const {
  // The buffer is on the stack, not the heap: a training run may read weights when all of its memory is already assigned by the plan.
  std::array<std::byte, 32768> raw;
  const i64 width = size_of(info.dtype), step = static_cast<i64>(raw.size()) / width, count = static_cast<i64>(out.size());
  for (i64 at = 0; at < count; at += step) {
    const auto n = static_cast<size_t>(std::min(step, count - at) * width);
    read(info, (begin + at) * width, std::span(raw).first(n));
    widen_stored(std::span(raw).first(n), info.dtype, out.subspan(static_cast<size_t>(at), n / static_cast<size_t>(width)));
  }
}

}  // namespace spillway::data
