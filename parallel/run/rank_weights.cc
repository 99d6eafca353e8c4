// The weights that a rank computes with: loading them, and where the model's parameters see them.
#include "optim/tile_values.h"
#include "parallel/run/rank.h"

namespace spillway::parallel {

// What stays on the device is seen where its generation lies.
void Rank::show_resident_weights() {
  for (const Group& g : plan_.layout.groups) {
    if (!g.held() || plan_.weights_move(g)) continue;
    if (model_.parameters[g.segments[0].parameter]->storage->resident()) drop_group(g.id);
    fill_group(g.id, state_.weights(g.id).view(whole(g), state_.generation()).data());
  }
}

void Rank::fill_group(u16 group, std::byte* base) {
  for (const Segment& s : plan_.layout.groups[group].segments) {
    model_.parameters[s.parameter]->storage->fill(base + s.begin * size_of(format().weight));
  }
}

void Rank::drop_group(u16 group) {
  for (const Segment& s : plan_.layout.groups[group].segments) model_.parameters[s.parameter]->storage->drop();
}

void Rank::load(const Source& source, const MomentSource& moments) {
  for (const Group& g : plan_.layout.groups) {
    state_.fill(g.id, [&](TileRange range, std::span<std::byte> weights, std::span<std::byte> state) {
      device_.streams.compute.run(range.count(), [&](i64 tile, int) {
        fill_tile(g, range.begin + tile, source, moments, weights.data() + tile * format().weight_tile_bytes(),
                  state.empty() ? nullptr : state.data() + tile * format().state_tile_bytes());
      });
    });
  }
}

// Without a state (nothing is trained) the master goes no further than its weight.
void Rank::fill_tile(const Group& group, i64 tile, const Source& source, const MomentSource& moments, std::byte* weight, std::byte* state) {
  std::vector<double> values(3 * kTileElems, 0);
  const auto part = [&](optim::StatePart which) { return std::span(values).subspan(static_cast<size_t>(which) * kTileElems, kTileElems); };
  const i64 from = tile * kTileElems;
  for_segments(group, from, from + kTileElems, [&](i64 begin, i64 end, const Segment* s) {
    if (!s) return;
    const nn::Parameter& p = *model_.parameters[s->parameter];
    const auto piece = [&](optim::StatePart which) {
      return part(which).subspan(static_cast<size_t>(begin - from), static_cast<size_t>(end - begin));
    };
    source(p, begin - s->begin, piece(optim::StatePart::master));
    for (const auto which : {optim::StatePart::m, optim::StatePart::v}) {
      if (moments) moments(p, which, begin - s->begin, piece(which));
    }
  });
  std::vector<std::byte> unused(state ? 0 : static_cast<size_t>(format().state_tile_bytes()));
  const optim::TileValues<double> all{part(optim::StatePart::master), part(optim::StatePart::m), part(optim::StatePart::v)};
  optim::write_tile(format(), all, weight, state ? state : unused.data());
}

}  // namespace spillway::parallel
