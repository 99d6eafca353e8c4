// Computes the update direction of a parameter that its rule updates as a whole. This takes a pass over the gradient and the state,
// before the pass that updates the parameter. The CPU's threads gather the direction in host memory, with a GPU as without one. If there
// is a GPU, it then computes the matrix products.
#include <algorithm>

#include "device/stream.h"
#include "optim/matrices/orthogonalize.h"
#include "optim/rules/muon.h"
#include "parallel/state/stepper.h"

namespace spillway::parallel {

const std::byte* Stepper::direction_of(const Bucket& bucket, TileRange tiles, AllScalars& scalars, const Update& u, u64 from,
                                       std::span<std::byte> gradient) {
  require(tiles.count() == bucket.tiles, "[optimizer] expected to step all tiles of the parameter together");
  const Group& group = plan_.layout.groups[bucket.group];
  const Segment& segment = group.segment_of(bucket);
  const auto* adafactor = std::get_if<optim::AdafactorSettings>(&u.settings);
  go_over(bucket, tiles, from, gradient, Pass::direction, [&](const Chunk& chunk) {
    adafactor ? gather_adafactor(bucket, chunk, scalars, u) : gather_direction(bucket, chunk, scalars, u);
  });
  if (!adafactor) {
    const DType dtype = wide_dtype(plan_.scheduling.format.weight);
    const auto& [number, rows, columns] = segment.matrices;
    if (!plan_.on_gpu()) return optim::orthogonalize(state_.whole(), rows, columns, dtype);
    optim::orthogonalize_on_gpu(state_.whole(), rows, columns, dtype, state_.whole_on_gpu());
    return state_.whole();
  }
  const optim::StateFormat format = format_of(group);
  const double factor = optim::adafactor_direction(adafactor_step(format, segment), scalars_for(segment, scalars, u), *adafactor);
  for (Scalars& rates : scalars.rates) rates.decayed.step_size *= factor, rates.plain.step_size *= factor;
  return state_.whole();
}

optim::AdafactorStep Stepper::adafactor_step(const optim::StateFormat& format, const Segment& segment) const {
  return {format, segment.matrices, segment.elems, state_.whole()};
}

void Stepper::gather_adafactor(const Bucket& bucket, const Chunk& chunk, const AllScalars& all, const Update& u) {
  const Group& group = plan_.layout.groups[bucket.group];
  const Segment& segment = group.segment_of(bucket);
  const optim::StateFormat format = format_of(group);
  const optim::AdafactorStep step = adafactor_step(format, segment);
  const auto& settings = std::get<optim::AdafactorSettings>(u.settings);
  Stream::current().run(chunk.range.count(), [&](i64 tile, int) {
    for (const Operand* o : {&chunk.weights, &chunk.gradients, &chunk.state}) verify(*o, chunk, tile);
    const auto at = [&](const Operand& o) { return o.read ? o.of(tile, o.old).data() : nullptr; };
    optim::adafactor_gather(step, chunk.range.begin + tile - bucket.begin / kTileElems, at(chunk.gradients), at(chunk.weights),
                            at(chunk.state), scalars_for(segment, all, u), settings);
  });
}

i64 Stepper::direction_bytes(const Bucket& bucket, i64 tile) const {
  return (tile * kTileElems - bucket.begin) * size_of(wide_dtype(plan_.scheduling.format.weight));
}

void Stepper::gather_direction(const Bucket& bucket, const Chunk& chunk, const AllScalars& all, const Update& u) {
  const Group& group = plan_.layout.groups[bucket.group];
  const Segment& matrix = group.segment_of(bucket);
  const optim::StateFormat format = format_of(group);
  const optim::Scalars<double>& scalars = scalars_for(matrix, all, u);
  const bool nesterov = std::get<optim::MuonSettings>(u.settings).nesterov;
  const auto gather = [&]<class T>(i64 tile, T* out) {
    const i64 elems = std::min(kTileElems, matrix.begin + matrix.elems - (chunk.range.begin + tile) * kTileElems);
    optim::direction_tile(format, chunk.gradients.of(tile, chunk.gradients.old).data(), chunk.state.of(tile, chunk.state.old).data(), elems,
                          scalars, nesterov, out);
    std::fill(out + elems, out + kTileElems, T(0));  // sets the padding after the matrix to zero
  };
  Stream::current().run(chunk.range.count(), [&](i64 tile, int) {
    for (const Operand* o : {&chunk.gradients, &chunk.state}) verify(*o, chunk, tile);
    std::byte* const out = state_.whole() + direction_bytes(bucket, chunk.range.begin + tile);
    if (format.weight == DType::f64)
      gather(tile, reinterpret_cast<double*>(out));
    else
      gather(tile, reinterpret_cast<float*>(out));
  });
}

}  // namespace spillway::parallel
