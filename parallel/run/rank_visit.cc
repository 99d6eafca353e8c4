// Reads the weights of a parameter, in whatever tier they are stored, and holds only a few tiles of them at a time.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "parallel/run/rank.h"

namespace spillway::parallel {
namespace {

TileRange tiles_with(const Segment& s) { return {s.begin / kTileElems, (s.begin + s.elems + kTileElems - 1) / kTileElems}; }

template <class T>
void widen_all(const std::byte* from, std::span<float> to) {
  const T* values = reinterpret_cast<const T*>(from);
  for (size_t i = 0; i < to.size(); ++i) to[i] = widen(values[i]);
}

void to_f32(DType dtype, const std::byte* from, std::span<float> to) {
  switch (dtype) {
    case DType::f32:
      return widen_all<float>(from, to);
    case DType::bf16:
      return widen_all<BFloat16>(from, to);
    case DType::f16:
      return widen_all<Float16>(from, to);
    case DType::f64:
      std::transform(reinterpret_cast<const double*>(from), reinterpret_cast<const double*>(from) + to.size(), to.begin(),
                     [](double value) { return static_cast<float>(value); });
      return;
    default:
      throw Error(ErrorCode::bug, std::string("[rank] expected floating-point weights, got ") + std::string(to_string(dtype)));
  }
}

}  // namespace

void Rank::visit(u32 parameter, const Visit& visit) {
  require(waiting_ == Waiting::nothing, "[rank] expected no deferred update while weights are read: call settle() first");
  const auto& [group_id, index] = plan_.layout.parameter_segment[parameter];
  const Group& group = plan_.layout.groups[group_id];
  if (!group.held() || !plan_.layout.owns(group)) return;
  const Segment& segment = group.segments[index];
  const DType dtype = work_.format().weight;
  const auto see = [&](i64 tile, const std::byte* weights, int thread) {
    const i64 first = tile * kTileElems, begin = std::max(first, segment.begin),
              end = std::min(first + kTileElems, segment.begin + segment.elems);
    std::array<float, kTileElems> values;
    const std::span<float> shown(values.data(), static_cast<size_t>(end - begin));
    to_f32(dtype, weights + (begin - first) * size_of(dtype), shown);
    visit(shown, thread);
  };
  work_.state.scan_weights(group_id, intersection(tiles_with(segment), work_.sharding().own(group)),
                           [&](TileRange range, std::span<const std::byte> weights, std::span<const std::byte>) {
                             work_.streams().compute.run(range.count(), [&](i64 tile, int thread) {
                               see(range.begin + tile, weights.data() + tile * work_.format().weight_tile_bytes(), thread);
                             });
                           });
}

}  // namespace spillway::parallel
