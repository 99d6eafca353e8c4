#include "parallel/blocks/accumulator.h"

#include "base/error.h"
#include "device/transfer.h"
#include "kernels/accumulate.h"

namespace spillway::parallel {

void Accumulator::place(GroupUse use, std::byte* base, bool first) {
  const Group& group = layout_.groups[use.group];
  places_[{use.group, use.use}] = {base, first, group.segments.size()};
  if (!first || !base) return;
  const i64 size = size_of(dtype_);
  for_segments(group, 0, group.elems, [&](i64 begin, i64 end, const Segment* segment) {
    if (!segment) fill_zeros(base + begin * size, (end - begin) * size);
  });
}

void Accumulator::finish() {
  for (const auto& [key, place] : places_)
    require(place.pending == 0, "[accumulator] expected a gradient for each parameter of the block, got none for at least one");
  places_.clear();
}

Tensor Accumulator::home(u32 parameter, const Place& place, const Shape& shape) const {
  const Device device = Stream::current().device;
  const Segment& segment = layout_.segment(parameter);
  auto storage = Storage::vacant(device, segment.elems * size_of(dtype_));
  storage->fill(place.base ? place.base + segment.begin * size_of(dtype_) : nullptr);
  return Tensor(std::move(storage), 0, shape, dtype_);
}

Tensor Accumulator::target(u32 parameter, u8 use, const Shape& shape, DType dtype) {
  require(dtype == dtype_, "[accumulator] expected a gradient of the dtype that the plan has for gradients");
  const Place& place = places_.at({layout_.parameter_segment[parameter].first, use});
  if (place.first) return home(parameter, place, shape);
  return addends_[{parameter, use}] = empty(shape, dtype, "weight gradient");
}

void Accumulator::done(u32 parameter, u8 use) {
  Place& place = places_.at({layout_.parameter_segment[parameter].first, use});
  --place.pending;
  if (place.first) return;
  const auto addend = addends_.find({parameter, use});
  kernels::accumulate(home(parameter, place, addend->second.shape()), addend->second);
  addends_.erase(addend);
}

}  // namespace spillway::parallel
