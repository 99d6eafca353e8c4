#include "parallel/run/data_meetings.h"

namespace spillway::parallel {

void DataMeetings::gather(const Instruction& i) {
  const bool stepped = i.out.bytes == 0;
  const Group& group = work_.plan.layout.groups[i.group];
  offload::Blob& blob = work_.state.weights(i.group);
  const auto all = stepped ? blob.view(whole(group), step_.of(i).from + 1) : work_.memory.bytes(i.out);
  std::span<const std::byte> mine = work_.memory.bytes(i.in);
  if (i.in.bytes == 0) mine = blob.view(i.tiles, stepped ? step_.of(i).from + 1 : work_.state.generation());
  work_.ranks.exchange().gather(work_.queue(i.lane), mine, all.data(), dealt(group, blob.tile_bytes()));
  bytes_ += std::ssize(all);
  if (!stepped) work_.weights.show(i.group, all.data());
}

void DataMeetings::exchange(const Instruction& i) {
  const Group& group = work_.plan.layout.groups[i.group];
  const DType dtype = work_.format().gradient;
  const std::span<std::byte> all(work_.memory.gradient(i.in, {i.group, i.use}), static_cast<size_t>(group.elems * size_of(dtype)));
  if (work_.sharding().splits_state()) {
    work_.ranks.exchange().sum_part(work_.queue(i.lane), all.data(), dtype, dealt(group, kTileElems * size_of(dtype)));
  } else {
    work_.ranks.exchange().sum(work_.queue(i.lane), all, dtype);
  }
  bytes_ += std::ssize(all);
}

}  // namespace spillway::parallel
