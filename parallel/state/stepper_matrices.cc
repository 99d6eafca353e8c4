// The direction in which a rule of matrices moves one: a pass over its gradient and state before the pass that updates.
#include <algorithm>

#include "device/stream.h"
#include "optim/matrices/orthogonalize.h"
#include "optim/rules/muon.h"
#include "parallel/state/stepper.h"

namespace spillway::parallel {

const std::byte* Stepper::direction_of(const Bucket& bucket, TileRange tiles, const AllScalars& scalars, const Update& u, u64 from,
                                       std::span<std::byte> gradient) {
  require(tiles.count() == bucket.tiles, "[optimizer] expected a matrix as a whole");
  go_over(bucket, tiles, from, gradient, Pass::direction, [&](const Chunk& chunk) { gather_direction(bucket, chunk, scalars, u); });
  const Segment& matrix = plan_.layout.groups[bucket.group].matrix_of(bucket);
  return optim::orthogonalize(state_.matrix(), matrix.rows, matrix.columns(), wide_dtype(plan_.scheduling.format.weight));
}

i64 Stepper::direction_bytes(const Bucket& bucket, i64 tile) const {
  return (tile * kTileElems - bucket.begin) * size_of(wide_dtype(plan_.scheduling.format.weight));
}

void Stepper::gather_direction(const Bucket& bucket, const Chunk& chunk, const AllScalars& all, const Update& u) {
  const Group& group = plan_.layout.groups[bucket.group];
  const Segment& matrix = group.matrix_of(bucket);
  const optim::StateFormat format = format_of(group);
  const optim::Scalars<double>& scalars = scalars_for(matrix, all, u);
  const bool nesterov = std::get<optim::MuonSettings>(u.settings).nesterov;
  const auto gather = [&]<class T>(i64 tile, T* out) {
    const i64 elems = std::min(kTileElems, matrix.begin + matrix.elems - (chunk.range.begin + tile) * kTileElems);
    optim::direction_tile(format, chunk.gradients.of(tile, chunk.gradients.old).data(), chunk.state.of(tile, chunk.state.old).data(), elems,
                          scalars, nesterov, out);
    std::fill(out + elems, out + kTileElems, T(0));  // behind the matrix
  };
  Stream::current().run(chunk.range.count(), [&](i64 tile, int) {
    for (const Operand* o : {&chunk.gradients, &chunk.state}) verify(*o, chunk, tile);
    std::byte* const out = state_.matrix() + direction_bytes(bucket, chunk.range.begin + tile);
    if (format.weight == DType::f64)
      gather(tile, reinterpret_cast<double*>(out));
    else
      gather(tile, reinterpret_cast<float*>(out));
  });
}

}  // namespace spillway::parallel
