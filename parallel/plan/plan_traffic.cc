// Counts the bytes that the steps of a plan move, from the plan's lists of instructions, and the bytes that cross the link between host
// and GPU.
#include "parallel/plan/plan.h"

namespace spillway::parallel {

std::vector<Lane> Plan::passing_lanes() const {
  std::vector<Lane> lanes;
  if (gpu_to_gpu) return lanes;
  if (on_gpu() && scheduling.sharding.ranks > 1) lanes.push_back(Lane::data);
  if (on_gpu() && scheduling.pipeline.ranks > 1) lanes.insert(lanes.end(), {Lane::send, Lane::receive});
  return lanes;
}

Plan::LinkBytes Plan::step_link_bytes(const Instruction& step) const {
  const bool given = step.in.bytes > 0;
  if (!on_gpu() || steps_on_gpu(step.group, given)) return {};
  const optim::StateFormat& format = scheduling.format;
  const bool streams = streams_step(step.group, given);
  const auto copied = [&](Tier tier, i64 tile_bytes) { return (tier == Tier::device) != streams ? step.tiles.count() * tile_bytes : 0; };
  const i64 weights = copied(placement.parameters[step.group], format.weight_tile_bytes()),
            state = copied(placement.optimizer[step.group], state_tile_bytes(layout.groups[step.group])),
            gradient =
                copied(given ? Tier::device : placement.gradients[step.group], kTileElems * size_of(resting_gradient({step.group, 0})));
  const i64 read_weights = format.update_reads_weight() ? weights : 0;
  const i64 read = gradient + read_weights + state, written = weights + state;
  if (streams) return {read, written};
  LinkBytes link{written, read};
  if (!layout.groups[step.group].by_parameter) return link;
  // A parameter that is updated as a whole is read once more, to compute the direction of its update. A matrix to be orthogonalized is
  // also copied to the GPU and back.
  const bool matrix = is_of_matrices(format.rule);
  const i64 there = matrix ? step.tiles.count() * kTileElems * size_of(wide_dtype(format.weight)) : 0;
  link.to_gpu += there, link.from_gpu += gradient + state + (matrix ? there : read_weights);
  return link;
}

TierBytes Plan::moved_per_step() const {
  TierBytes sum = moved_bytes(train.head);
  return sum += moved_bytes(train.commit);
}

}  // namespace spillway::parallel
