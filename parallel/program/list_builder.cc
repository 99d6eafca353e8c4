#include "parallel/program/list_builder.h"

#include <algorithm>

namespace spillway::parallel {

u32 ListBuilder::add(Instruction i) {
  count_bytes(i);
  std::sort(i.after.begin(), i.after.end());
  i.after.erase(std::unique(i.after.begin(), i.after.end()), i.after.end());
  std::erase_if(i.after, [&](u32 a) { return list[a].lane == i.lane; });
  list.push_back(std::move(i));
  return static_cast<u32>(list.size()) - 1;
}

// Fills in the bytes that the instruction moves. They follow from the layout and from the tiers in which data is stored.
void ListBuilder::count_bytes(Instruction& i) const {
  const optim::StateFormat& format = scheduling.format;
  i.read_bytes = i.written_bytes = {};
  const auto moves = [](Tier tier) { return tier != Tier::device; };
  if (i.spill.bytes > 0 && !scheduling.activations_travel(placement.activations[i.block].tier)) {
    (i.op == Op::Forward ? i.written_bytes : i.read_bytes)[static_cast<size_t>(Tier::host)] = i.spill.bytes;
  }
  if (i.what == What::activations) {
    const auto tier = static_cast<size_t>(placement.activations[i.block].tier);
    (i.op == Op::Fetch ? i.read_bytes : i.written_bytes)[tier] = (i.op == Op::Fetch ? i.out : i.in).bytes;
  } else if (i.op == Op::Fetch || i.op == Op::Evict) {
    const GroupResidency& group = residency[i.group];
    const Tier tier = (i.what == What::weights ? group.weights : group.gradients).tier;
    auto& bytes = i.op == Op::Fetch ? i.read_bytes : i.written_bytes;
    const DType dtype = i.what == What::weights ? format.weight : group.resting_gradient[i.use];
    if (moves(tier)) bytes[static_cast<size_t>(tier)] = i.tiles.count() * kTileElems * size_of(dtype);
  } else if (i.op == Op::Reduce && residency[i.group].gradients.tier == Tier::host && !residency[i.group].gradients.beside) {
    const DType dtype = residency[i.group].resting_gradient[0];
    i.written_bytes[static_cast<size_t>(Tier::host)] = i.tiles.count() * kTileElems * size_of(dtype);
  }
  if (i.op == Op::SendActivation || i.op == Op::SendGradient) i.sent_bytes = i.in.bytes;
  if (i.op == Op::SendTied || (i.op == Op::ReceiveTied && i.what == What::weights)) {
    const i64 bytes = i.tiles.count() * kTileElems * size_of(i.what == What::weights ? format.weight : format.gradient);
    const Tier tier = residency[i.group].weights.tier;
    const bool rests = i.what == What::weights && moves(tier);
    if (rests) (i.op == Op::SendTied ? i.read_bytes : i.written_bytes)[static_cast<size_t>(tier)] = bytes;
    if (i.op == Op::SendTied) i.sent_bytes = bytes;
  }
  if (i.op == Op::Gather || i.op == Op::Exchange)
    i.exchanged_bytes = layout.groups[i.group].elems * size_of(i.op == Op::Gather ? format.weight : format.gradient);
  if (i.op == Op::Step) {
    const i64 tiles = i.tiles.count();
    const GroupResidency& group = residency[i.group];
    // each parameter is read once to find the direction of its update and once more to apply the update
    const i64 times = layout.groups[i.group].by_parameter ? 2 : 1;
    const auto move = [&](Tier tier, i64 tile_bytes, i64 read, bool written) {
      if (!moves(tier)) return;
      i.read_bytes[static_cast<size_t>(tier)] += read * tiles * tile_bytes;
      if (written) i.written_bytes[static_cast<size_t>(tier)] += tiles * tile_bytes;
    };
    const Tier gradient = i.in.bytes > 0 ? Tier::device : group.gradients.tier;
    move(gradient, kTileElems * size_of(group.resting_gradient[0]), times, false);
    const i64 weight_times = is_of_parameters(format.rule) ? times : 1;
    move(group.weights.tier, format.weight_tile_bytes(), format.update_reads_weight() ? weight_times : 0, true);
    move(placement.optimizer[i.group], scheduling.format_of(layout.groups[i.group]).state_tile_bytes(), times, true);
  }
}

}  // namespace spillway::parallel
